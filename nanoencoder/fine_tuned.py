"""A fine-tuned model in one folder. finetune.py --save_model writes it, and predict.py opens it.

    fine-tuned/<model>/<TASK>/<dataset>/lr1e-04_sd0/
        config.json, model.safetensors, tokenizer.json, ...    the encoder in its own format
        run.json    the task's settings and labels, how texts are read, and the sha256 of the other files

If transformers or sentence-transformers have a head that computes what ours does, the folder has their form,
and they open it. `opens_in` of run.json says who does:

    transformers             a classifier of tokens, but of ModernBERT, whose class has one more layer; and a
                             classifier of texts of our own architecture, EuroBERT
    sentence-transformers    vectors of texts; and other classifiers of texts, whose `encode` gives logits
    predict.py alone         the rest, whose head is in head.safetensors"""
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save as to_bytes
from torch import nn

from model import Model
from nanoencoder import huggingface, tasks
from nanoencoder.card import write_card
from nanoencoder.files import changed_files, read_json, sha256, whole, write_json, write_sealed
from nanoencoder.peers import Peer, open_written_peer, write_peer
from nanoencoder.predictions import ADVICE, about_run, read_about, run_folder
from nanoencoder.pretraining.log import commit
from nanoencoder.processes import World, pick_device
from nanoencoder.settings import make_settings
from nanoencoder.tasks.heads import Encoder, new_head, outputs
from nanoencoder.tokenizer import Tokenizer

HEAD_FILE = 'head.safetensors'
# modules of sentence-transformers that compute a classifier of texts: {folder: (our layer, its activation)}
DENSE = {
    '2_Dense': ('dense', 'torch.nn.modules.activation.GELU'),
    '3_Dense': ('classifier', 'torch.nn.modules.linear.Identity')}


class FineTuned(NamedTuple):
    kind: tasks.kind.Kind       # with its task
    labels: tuple               # in the order of the head's outputs
    encoder: Encoder            # on the device
    tokenizer: Tokenizer
    max_length: int             # tokens of a text that are read
    world: World                # of this process alone


# ---------------------------------------------------------------------------
# Writing


def saved_folder(cfg):
    """Return fine-tuned/<model>/<TASK>/<dataset>/lr1e-04_sd0."""
    return run_folder(replace(cfg, predictions='fine-tuned'), cfg.dataset)


def check_prompts(kind):
    """ValueError if a template cannot be a prompt of sentence-transformers, which stands before a text."""
    if kind.head == 'vector':
        for name in ('query', 'document'):
            template = getattr(kind.task, name)
            if not template.endswith('}'):
                raise ValueError(f'{name} {template!r:.80} must end with a column to be saved as a prompt')


def write_fine_tuned(cfg, base, data, encoder, folder):
    """Write what a run has trained. It appears whole, or not at all.

    base  the Pretrained that the run began with
    data  the Data that it was trained on"""
    kind = data.kind
    config = {}
    if data.labels:
        config['id2label'] = dict(enumerate(data.labels))
        config['label2id'] = {label: k for k, label in enumerate(data.labels)}
        if kind.head == 'text':
            config['problem_type'] = kind.problem_type
    encoder.cpu().float()   # as files hold it
    with whole(folder) as temporary:
        temporary.mkdir()
        if isinstance(base.checkpoint, Peer):
            classifier = encoder.head.classifier if kind.head == 'tokens' else None
            has_head = write_peer(temporary, base.checkpoint, encoder.model.inner, cfg.max_length, config,
                                  classifier)
        else:
            has_head = write_ours(temporary, base, encoder, kind.head, cfg.max_length, config)
        opens_in = 'transformers'
        if not has_head:
            opens_in = write_head(temporary, cfg, base, encoder, kind.head)
        digests = {
            str(path.relative_to(temporary)): sha256(path)
            for path in sorted(temporary.rglob('*')) if path.is_file()}
        about = about_run(cfg, base.about, data, data)
        write_sealed(temporary / 'run.json', about | {'opens_in': opens_in, 'sha256': digests})
        write_card(temporary, {'base_model': cfg.model, 'nanoencoder_commit': commit()})


def write_ours(folder, base, encoder, head, max_length, config):
    """Write an encoder of our own architecture: a EuroBERT, or a Qwen3 if q and k are normalised. Returns
    whether the head is with it: transformers has no classifier of texts with our head for Qwen3."""
    sizes = base.transformer.sizes
    tokenizer = base.checkpoint.tokenizer()
    has_head = head == 'tokens' or head == 'text' and not sizes.qk_norm
    if has_head:
        tensors = {name.removeprefix('head.'): p for name, p in encoder.named_parameters()}
    else:
        tensors = dict(encoder.model.named_parameters())
    if sizes.qk_norm:   # as transformers calls it there
        tensors = {name.replace('classifier.', 'score.', 1): p for name, p in tensors.items()}
    architecture = 'Qwen3' if sizes.qk_norm else 'EuroBert'
    ending = 'Model'
    if has_head:
        ending = 'ForTokenClassification' if head == 'tokens' else 'ForSequenceClassification'
    huggingface.write_folder(folder, sizes, base.checkpoint.context, tokenizer.ids, tensors,
                             architectures=[architecture + ending], **config)
    tokenizer.save(folder, max_length)
    return has_head


def write_head(folder, cfg, base, encoder, head):
    """Write what makes an encoder's states its outputs, beside the encoder. Returns who opens it."""
    if head == 'tokens':
        write_tensors(folder / HEAD_FILE, encoder.head)
        return 'predict.py alone'
    width = base.transformer.sizes.hidden_size
    if head == 'vector':
        prompts = {
            name: getattr(cfg, name).split('{')[0]
            for name in ('query', 'document')}
        huggingface.write_pooling(folder, width, cfg.max_length, prompts, base.pooling)
        return 'sentence-transformers'
    huggingface.write_pooling(folder, width, cfg.max_length, {}, after=('Dense', 'Dense'))
    for name, (layer, activation) in DENSE.items():
        linear = getattr(encoder.head, layer)
        write_json(folder / name / 'config.json', {
            'in_features': linear.in_features,
            'out_features': linear.out_features,
            'bias': True,
            'activation_function': activation})
        write_tensors(folder / name / huggingface.WEIGHTS, linear, 'linear.')
    return 'sentence-transformers'


def write_tensors(path, module, prefix=''):
    tensors = {prefix + name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    path.write_bytes(to_bytes(tensors, {'format': 'pt'}))


# ---------------------------------------------------------------------------
# Opening


def open_fine_tuned(folder, device='auto', dtype='auto'):
    """Open a folder as a FineTuned. ValueError if it holds no fine-tuned model, or a file has changed."""
    folder = Path(folder)
    if not (folder / 'run.json').exists() or not any(folder.glob('*.safetensors')):
        raise ValueError(f'{folder}: no fine-tuned model there; finetune.py writes one, below fine-tuned/, '
                         'if it is given --save_model, and its last line names the folder')
    about = read_about(folder)
    for name in changed_files(folder, about.get('sha256', {})):     # older folders have no digests
        raise ValueError(f'{folder / name}: missing or changed since it was written; {ADVICE}')

    labels = tuple(about['labels'])
    settings = about['settings'] | about['rows'] | {'labels': labels, 'data': str(folder)}
    kind = tasks.kind_of(make_settings(tasks.Task, settings))
    if about['weights'] == 'bf16':
        dtype = 'fp32'      # as in the run
    world = World(0, 1, *pick_device(device, dtype))

    config = read_json(folder / 'config.json', fields=huggingface.CONFIG)
    if config['model_type'] in huggingface.FAMILIES:
        checkpoint = huggingface.open_checkpoint(folder, weights=False)
        transformer = read_ours(checkpoint)
    else:
        checkpoint, transformer = open_written_peer(folder, config)
    head = new_head(kind.head, checkpoint.sizes.hidden_size, len(labels), about.get('pooling', 'mean'))
    if isinstance(head, nn.Module):
        head.load_state_dict(read_head(folder))
    encoder = Encoder(transformer, head).to(world.device)
    if about['weights'] == 'bf16':
        for p in encoder.parameters():
            p.data = p.data.bfloat16()
    max_length = about['settings']['max_length']
    return FineTuned(kind, labels, encoder.eval(), checkpoint.tokenizer(), max_length, world)


def read_ours(checkpoint):
    """Read the Transformer of a folder that may also hold a head."""
    with torch.device('meta'):
        transformer = Model(checkpoint.sizes).model
    weights = huggingface.read_tensors(checkpoint.folder)
    transformer.load_state_dict({
        name.removeprefix('model.'): tensor
        for name, tensor in weights.items() if name.startswith('model.')}, assign=True)
    return transformer


def read_head(folder):
    """{name: tensor} of a Classifier, from where the form of a folder has it."""
    path = folder / HEAD_FILE
    if path.exists():
        return load_file(path)
    weights = {}
    for name, (layer, _) in DENSE.items():
        path = folder / name / huggingface.WEIGHTS
        if path.exists():
            linear = load_file(path)
            weights |= {f'{layer}.{part}': linear[f'linear.{part}'] for part in ('weight', 'bias')}
    if weights:
        return weights
    for path in huggingface.weight_files(folder):
        for name, tensor in load_file(path).items():
            layer, _, part = name.partition('.')
            if layer == 'score':
                layer = 'classifier'
            if layer in ('dense', 'classifier'):
                weights[f'{layer}.{part}'] = tensor
    return weights


# ---------------------------------------------------------------------------
# Using


def outputs_of(cfg, model, examples, bar, num_rows):
    """Return the encoder's output for each example. After each pass a progress bar moves on by that pass's
    share of the rows."""
    num_tokens = sum(len(example.tokens) for example in examples)

    def move(encoder, inputs, output):
        tokens, _ = inputs
        bar.update(num_rows * len(tokens) / num_tokens)

    hook = model.encoder.register_forward_hook(move)
    try:
        return outputs(cfg, model.world, model.encoder, examples, model.kind.head == 'tokens')
    finally:
        hook.remove()
