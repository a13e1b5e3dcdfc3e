"""The model that a task is given: what run.json says of it, and the folder that a tuned one is saved to."""
import sys
from dataclasses import asdict, dataclass, replace

from nanoencoder import huggingface, sentence_encoders
from nanoencoder.files import whole, write_sealed
from nanoencoder.predictions import about_run, run_folder
from nanoencoder.settings import may_change, setting
from nanoencoder.tokenizer import is_hub_id


@dataclass(frozen=True)
class Scoring:
    """Which model is scored on a task, where it is computed, and what its predictions are called."""
    model: str = may_change('')  # a checkpoint, a hub id, or a run: its newest checkpoint
    name: str = may_change('')  # of the model in predictions; empty: its run's
    variant: str = may_change('')  # +<variant> is added to that name and to its study's row
    tokens_at_once: int = may_change(16_384, 1)  # a batch takes several passes
    device: str = may_change('auto', choices=('auto', 'cpu', 'cuda', 'mps'))
    dtype: str = setting('auto', choices=('auto', 'fp32', 'bf16'))  # auto: bf16 where CUDA has it
    predictions: str = may_change('predictions')


def describe(checkpoint, sizes, cfg, is_untrained=False):
    """Return (a model's name in predictions, what run.json says of it).

    The name is cfg.name, or its run's: with -<step> before the end of the run, and +<cfg.variant> where one
    is given."""
    tokenizer = checkpoint.tokenizer()
    sizes = asdict(sizes) | {'max_position_embeddings': checkpoint.context}
    sizes |= {f'{role}_token_id': number for role, number in tokenizer.ids.items()}
    about = {
        'tokenizer': tokenizer.fingerprint(),
        'sizes': sizes,
        'pretraining': None,
        'checkpoint': 'none'}
    if is_hub_id(cfg.model):
        about['commit'] = checkpoint.folder.name    # that the hub's revision was
    suffix = f'+{cfg.variant}' if cfg.variant else ''
    if is_untrained:
        return (cfg.name or 'untrained') + suffix, about

    past = checkpoint.state.get('pretraining')
    # not checkpoint.folder: a hub id's local folder bears the name of a commit
    run = huggingface.run_of_checkpoint(cfg.model).name
    if past:
        total = sum(steps for _, steps in past['phases']) * past.get('repeat', 1)
        if past['step'] < total:
            run = f'{run}-{past["step"]}'
        past = past | {'fixed': checkpoint.state['fixed']}
        if past['row']:
            past['row'] += suffix
    about |= {'pretraining': past, 'checkpoint': checkpoint.digest()}
    return (cfg.name or run) + suffix, about


def reading_length(cfg, checkpoint):
    """Return how many tokens of a text are read: max_length, or the authors' share of the context, or as many
    as a sentence encoder says that it reads."""
    tokenizer = checkpoint.tokenizer()
    longest = sentence_encoders.read_longest(checkpoint.folder, checkpoint.context)
    max_length = cfg.max_length or longest or round(0.99 * checkpoint.context)
    least = 1 + len(tokenizer.prefix) + len(tokenizer.suffix)
    if not least <= max_length <= checkpoint.context:
        raise ValueError(f'max_length {max_length}: the model reads {least} to {checkpoint.context} tokens')
    return max_length


def print_prompts(cfg, kind, folder):
    """Print the task's templates and the prompts that a sentence encoder names: nothing but the templates is
    put before a text."""
    if not sentence_encoders.read_modules(folder):
        return
    prompts, default, similarity = sentence_encoders.read_prompts(folder)
    templates = ', '.join(f'{name} {getattr(cfg, name)!r}' for name in kind.templates)
    named = ', '.join(f'{name} {prompt!r:.200}' for name, prompt in prompts.items() if prompt) or 'none'
    if default:
        named += f', {default!r} is the default'
    print(f'{cfg.dataset}: templates: {templates}\n{cfg.model}: prompts: {named}')
    if kind.head == 'vector' and similarity != 'cosine':
        print(f'{cfg.model}: it ranks by {similarity!r:.80}, this program by cosines', file=sys.stderr)


def saved_folder(cfg):
    """Return fine-tuned/<model>/<TASK>/<dataset>/lr1e-04_sd0."""
    return run_folder(replace(cfg, predictions='fine-tuned'), cfg.dataset)


def check_export(kind, sizes):
    """ValueError if transformers, or sentence-transformers, cannot hold a fine-tuned model."""
    if kind.head == 'text' and sizes.qk_norm:
        raise ValueError('save_model: transformers has no such classifier with norms of q and k (Qwen3)')
    if kind.head == 'vector':
        for name in ('query', 'document'):
            template = getattr(kind.task, name)
            if not template.endswith('}'):
                raise ValueError(f'{name} {template!r:.80} must end with a column to be saved as a prompt')


def save_encoder(cfg, base, data, encoder, folder):
    """Write a fine-tuned model as a Hugging Face folder: EuroBERT with the task's head, Qwen3 where q and k
    are normalised. A retrieval model is one that sentence-transformers opens, with its prompts."""
    sizes = base.transformer.sizes
    head = data.kind.head
    tokenizer = base.checkpoint.tokenizer()
    tensors = {}
    for name, p in encoder.named_parameters():
        name = name.removeprefix('head.')
        if head == 'vector':
            name = name.removeprefix('model.')
        elif sizes.qk_norm:
            name = name.replace('classifier.', 'score.', 1)
        tensors[name] = p.float()

    architecture = 'Qwen3' if sizes.qk_norm else 'EuroBert'
    endings = {'tokens': 'ForTokenClassification', 'text': 'ForSequenceClassification', 'vector': 'Model'}
    config = {'architectures': [architecture + endings[head]]}
    if data.labels:
        config['id2label'] = dict(enumerate(data.labels))
        config['label2id'] = {label: k for k, label in enumerate(data.labels)}
        if head == 'text':
            config['problem_type'] = data.kind.problem_type

    with whole(folder) as temporary:
        temporary.mkdir()
        huggingface.write_folder(temporary, sizes, base.checkpoint.context, tokenizer.ids, tensors, **config)
        tokenizer.save(temporary, cfg.max_length)
        if head == 'vector':
            prompts = {
                name: getattr(cfg, name).split('{')[0]
                for name in ('query', 'document')}
            huggingface.write_pooling(temporary, sizes.hidden_size, cfg.max_length, prompts)
        about = about_run(cfg, base.about, data, data)
        write_sealed(temporary / 'run.json', about)
