"""What fine-tuning leaves on disk and is recognised by: a run's predictions, and a fine-tuned model."""
import contextlib
import gzip
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

from nanoencoder import huggingface, tasks
from nanoencoder.pretraining.cost import flops_of_state
from nanoencoder.durable import locked, read_json, remove_temporaries, sha256, whole_folder, write_json
from nanoencoder.judging.protocols import run_name
from nanoencoder.settings import flat, leaves


def run_folder(cfg, dataset):
    """predictions/<model>/<TASK>/<dataset>/lr1e-04_sd0."""
    return Path(cfg.predictions) / cfg.name / cfg.kind / dataset / run_name(cfg.lr, cfg.seed)


def saved_folder(cfg):
    return Path('fine-tuned') / run_folder(cfg, cfg.dataset).relative_to(cfg.predictions)


@contextlib.contextmanager
def alone(cfg, sets=()):
    """Hold a run, all its folders: one process at a time works on it. What a killed one left there goes.

    BlockingIOError if another process has it, another OSError if nothing can be written there.
    """
    names = dict.fromkeys([cfg.dataset, *(data.task.dataset for data in sets)])
    with contextlib.ExitStack() as stack:
        for folder in [run_folder(cfg, name) for name in names] + [saved_folder(cfg)] * cfg.save_model:
            folder.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.parent, f'.{folder.name}.lock'))
            remove_temporaries(folder.parent, folder.name)
        yield


def about_run(cfg, base, sets, data, kind='fine-tuned', grid=()):
    """run.json: what fixes the numbers, so that a run is not taken for another."""
    return json.loads(json.dumps({
        'settings': flat(cfg, ('numbers',)), 'kind': kind, 'weights': cfg.weights, 'labels': sets[0].labels,
        'scheme': cfg.scheme, 'trained_on': cfg.trained_on, 'grid': grid, **base.about,
        'data': data.scored_sha256, 'training_data': sets[0].training_sha256}))


def is_done(cfg, base, sets):
    """Whether a run's predictions are all there. ValueError if they are of other settings or data."""
    done = not cfg.save_model or saved_folder(cfg).exists()
    for data in sets:
        folder = run_folder(cfg, data.task.dataset)
        names = 'run.json', *(f'{split}.jsonl.gz' for split in tasks.SCORED)
        done &= all((folder / name).exists() for name in names)
        if (folder / 'run.json').exists():
            refuse_another(cfg, folder / 'run.json', about_run(cfg, base, sets, data))
    if cfg.save_model and (saved_folder(cfg) / 'run.json').exists():  # --predictions is not in its path
        refuse_another(cfg, saved_folder(cfg) / 'run.json', about_run(cfg, base, sets, sets[0]))
    return done


def refuse_another(cfg, path, ours):
    """ValueError if a run.json says another thing than ours. What it does not say was the default."""
    theirs = read_json(path, {'settings': dict})
    theirs = {name: entry.default for name, entry in leaves(type(cfg)).items()} | theirs['settings'] | theirs
    for name, value in (ours['settings'] | ours).items():
        # of pretraining, the checkpoint's digest says all; older run.json do not name its row
        if name not in ('settings', 'grid', 'pretraining') and theirs.get(name) != value:
            raise ValueError(
                f'{path}: was made with {name} = {str(theirs.get(name))[:60]}, this run has '
                f'{str(value)[:60]}; remove the folder, or take another --name')


def write_run(folder, about, rows, log=()):
    """A run's folder, whole or not at all: {split: rows} as .jsonl.gz, run.json, log.jsonl."""
    with whole_folder(folder) as temporary:
        for split, predictions in rows.items():
            lines = (json.dumps(row, ensure_ascii=False) + '\n' for row in predictions)
            with open(temporary / f'{split}.jsonl.gz', 'wb') as raw, \
                    gzip.GzipFile('', 'wb', fileobj=raw, mtime=0) as file:  # the same bytes each time
                file.writelines(line.encode('utf-8', 'replace') for line in lines)
        about = about | {'sha256': {path.name: sha256(path) for path in sorted(temporary.iterdir())}}
        about = json.dumps(about, indent=1, ensure_ascii=False) + '\n'
        (temporary / 'run.json').write_text(about, encoding='utf-8')
        lines = ''.join(json.dumps(line) + '\n' for line in log)
        (temporary / 'log.jsonl').write_text(lines, encoding='utf-8')


def about_model(cfg, checkpoint, transformer):
    """What run.json says of the model."""
    tokenizer, sizes = checkpoint.tokenizer(), asdict(transformer.sizes)
    sizes |= {'max_position_embeddings': checkpoint.context}
    sizes |= {f'{role}_token_id': number for role, number in tokenizer.ids.items()}
    about = {'tokenizer': tokenizer.fingerprint(), 'sizes': sizes, 'checkpoint': 'none', 'pretraining': None}
    if not cfg.untrained:
        about['checkpoint'] = checkpoint.digest()
        parameters = sum(p.numel() for p in transformer.parameters())
        about['pretraining'] = past = pretraining(checkpoint.folder, parameters)
        if past and past.get('row'):
            past['row'] += variant(cfg)
    return about


def variant(cfg):
    """What it adds to the name of a model."""
    return f'+{cfg.variant}' if cfg.variant else ''


def pretraining(folder, parameters):
    """What a checkpoint of ours was trained with, for tables and figures; None for another's.

    A study's runs of a row differ in their seed alone: so `continues` is their parents' row.
    """
    path = folder / 'state.json'
    if not path.exists():
        return None
    state = read_json(path)
    family = f'{parameters / 1e6:.{0 if parameters >= 1e7 else 1}f}M'
    try:
        past, step = state['settings'], int(state['step'])
        row, seed, parent = past.get('row', ''), past.get('seed', 0), Path(past.get('weights_from', ''))
        parent = (parent.parent if parent.name.isdigit() else parent).name  # may be empty
        facts = {'family': f'{parameters / 1e9:.1f}B' if parameters >= 1e9 else family,
                 'phases': [(str(kind), int(steps)) for kind, steps in past['phases']],
                 'mask_ratio': past['mask_ratio'], 'step': step, 'flops': flops_of_state(state),
                 'continues': parent.removesuffix(f'-s{seed}') if row else parent,
                 'row': row if not row or is_end(past, step) else f'{row}-{step}', 'seed': seed}
        return facts | ({'repeat': past['repeat']} if past.get('repeat', 1) > 1 else {})
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise ValueError(f'{path}: not the state of a pretraining run: {error!r}') from None


def is_end(past, step):
    """Whether a pretraining with these settings ends at a step."""
    return step == sum(steps for _, steps in past['phases']) * past.get('repeat', 1)


def model_name(cfg, folder, past):
    """The run's name, with -<step> for a checkpoint before its end and +<variant> where there is one."""
    if cfg.name or cfg.untrained:
        return (cfg.name or 'untrained') + variant(cfg)
    folder = Path(os.path.abspath(folder))  # for . has no name
    run = huggingface.run_of(folder).name
    if huggingface.is_hub_id(cfg.model):
        run = cfg.model.split('/')[-1]  # its local folder bears the name of a commit
    if re.fullmatch(r'lr\S+_sd\d+', run):
        run = '-'.join(folder.parts[-4:])  # a fine-tuned model's: whose, for what, and which
    run = run if not past or is_end(past, past['step']) else f'{run}-{folder.name}'
    return run + variant(cfg)


def save_encoder(cfg, base, data, encoder, folder):
    """A Hugging Face folder: EuroBert, or with norms of q and k a Qwen3, and the task's head."""
    sizes, checkpoint, tokenizer = base.transformer.sizes, base.checkpoint, base.checkpoint.tokenizer()
    export = tasks.kind_of(cfg).export(data.labels, sizes)
    tensors = {name.removeprefix('head.'): p.float() for name, p in encoder.named_parameters()}
    more = {'architectures': [('Qwen3' if sizes.qk_norm else 'EuroBert') + export.architecture]}
    if export.labels:
        more['id2label'] = dict(enumerate(export.labels))
        more['label2id'] = {label: k for k, label in enumerate(export.labels)}
    if export.prompts:  # a bare transformer, which sentence-transformers opens
        tensors = {name.removeprefix('model.'): p for name, p in tensors.items()}
    elif sizes.qk_norm:
        tensors = {name.replace('classifier.', 'score.'): p for name, p in tensors.items()}
    origin, count = '' if cfg.untrained else checkpoint.base_model(), len(data.examples['train'])
    rows = {'texts': f'{export.texts}; then eos, which the tokenizer adds; at most {cfg.max_length:,} tokens',
            'training': f'{cfg.num_steps(count):,} steps of {cfg.batch_size}, of {count:,} examples'}
    with whole_folder(folder) as temporary:
        write_json(temporary / 'run.json', about_run(cfg, base, [data], data))
        huggingface.save(temporary, sizes, checkpoint.context, tokenizer.ids, tensors, **more)
        tokenizer.save(temporary, append_eos=True, model_max_length=cfg.max_length)
        if export.prompts:
            huggingface.write_sentence_transformers(temporary, sizes.hidden_size, cfg.max_length,
                                                    dict(export.prompts))
        huggingface.write_card(
            temporary, title=f'{cfg.name} on {cfg.dataset}, {folder.name}', rows=rows, use=export.use,
            about=f'{cfg.name}{f" (from {origin})" if origin else ""}, a bidirectional encoder, fine-tuned '
                  f'on {cfg.dataset} with nanoEncoder.', pipeline=export.pipeline, base_model=origin,
            library='sentence-transformers' if export.prompts else 'transformers')
