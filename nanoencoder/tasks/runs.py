"""What fine-tuning leaves on disk: a run's predictions and their scores, and a model."""
import gzip
import json
from dataclasses import asdict
from pathlib import Path

from nanoencoder import huggingface
from nanoencoder.files import read_sealed, sha256, whole, write_json, write_sealed
from nanoencoder.judging.metrics import both_scores, lr_text
from nanoencoder.settings import flat
from nanoencoder.tasks.files import json_lines


def run_folder(cfg, dataset):
    """predictions/<model>/<TASK>/<dataset>/lr1e-04_sd0"""
    return Path(cfg.predictions) / cfg.name / cfg.kind / dataset / f'lr{lr_text(cfg.lr)}_sd{cfg.seed}'


def saved_folder(cfg):
    return Path('fine-tuned') / run_folder(cfg, cfg.dataset).relative_to(cfg.predictions)


def run_folders(cfg, sets):
    """{folder: the Data it is of} of all that a run writes."""
    folders = {run_folder(cfg, data.kind.task.dataset): data for data in sets}
    return folders | ({saved_folder(cfg): sets[0]} if cfg.save_model else {})


def is_done(cfg, base, sets):
    """Whether a run's folders are all there. ValueError if one is of other settings or data."""
    paths = {folder / 'run.json': data for folder, data in run_folders(cfg, sets).items()}
    for path, data in paths.items():
        if path.exists():
            found = read_sealed(path, 'remove its folder, and fine-tune again')
            wanted = about_run(cfg, base, sets, data)
            for name, value in (wanted['settings'] | wanted).items():
                there = (found | found['settings']).get(name, getattr(type(cfg), name, None))   # may be newer
                # of pretraining the checkpoint's digest says all, and of rows their own
                if name not in ('settings', 'rows', 'grid', 'pretraining') and there != value:
                    raise ValueError(f'{path}: was made with {name} = {str(there)[:60]}, this run has '
                                     f'{str(value)[:60]}; remove the folder, or give this a --variant')
    return all(path.exists() for path in paths)


def describe(cfg, checkpoint, transformer):
    """(a model's name in predictions: its run's, -<step> before its end, +<variant>; what run.json says)"""
    sizes = asdict(transformer.sizes) | {'max_position_embeddings': checkpoint.context}
    sizes |= {f'{role}_token_id': number for role, number in checkpoint.tokenizer().ids.items()}
    past = None if cfg.untrained else checkpoint.state.get('pretraining')
    if past:
        row = past['row'] + f'+{cfg.variant}' * bool(past['row'] and cfg.variant)
        past = past | {'fixed': checkpoint.state['fixed'], 'row': row}
    is_on_hub = huggingface.is_hub_id(cfg.model)    # its local folder bears the name of a commit
    run = cfg.model.split('/')[-1] if is_on_hub else huggingface.run_of(checkpoint.folder).name
    if past and past['step'] < sum(steps for _, steps in past['phases']) * past.get('repeat', 1):
        run = f'{run}-{past["step"]}'
    name = (cfg.name or ('untrained' if cfg.untrained else run)) + (cfg.variant and f'+{cfg.variant}')
    return name, {'tokenizer': checkpoint.tokenizer().fingerprint(), 'sizes': sizes, 'pretraining': past,
                  'checkpoint': 'none' if cfg.untrained else checkpoint.digest()}


def about_run(cfg, base, sets, data, grid=()):
    """run.json: what fixes the numbers, so that a run is not taken for another."""
    return json.loads(json.dumps({
        'settings': flat(cfg, ('numbers',)), 'rows': flat(cfg, ('rows',)), 'weights': cfg.weights,
        'labels': sets[0].labels, 'scheme': cfg.scheme, 'grid': grid, **base.about,
        'data': data.scored_sha256, 'training_data': sets[0].training_sha256}))


def write_run(folder, task, about, predictions, log=()):
    """A run's folder: {split: rows} as .jsonl.gz, their scores, run.json, log. {split: score in words}."""
    scores = {}
    with whole(folder) as temporary:
        temporary.mkdir()
        for split, rows in predictions.items():
            (temporary / f'{split}.jsonl.gz').write_bytes(gzip.compress(json_lines(rows).encode(), mtime=0))
            scores['name'], scores[split] = both_scores(task.kind, rows, task.scheme, task.metric)
        write_json(temporary / 'scores.json', scores, indent=None)
        digests = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        write_sealed(temporary / 'run.json', about | {'sha256': digests})
        (temporary / 'log.jsonl').write_text(json_lines(log))
    return {part: f'{scores["name"]} {100 * scores[part]["standard"]["score"]:.1f}' for part in predictions}


# transformers' name for what the outputs of a text's head mean, by the kind's loss
PROBLEM_TYPES = {'labels': None, 'squares': 'regression'}   # None: one of several labels, as it takes it for


def check_export(kind, sizes):
    """ValueError if transformers, or sentence-transformers, cannot hold a fine-tuned model."""
    if kind.head == 'text' and kind.loss not in PROBLEM_TYPES:
        raise ValueError(f'save_model: {kind.loss!r} is not in PROBLEM_TYPES of nanoencoder/tasks/runs.py; '
                         "add what transformers is to make of the outputs, 'multi_label_classification' or "
                         "'regression'")
    if kind.head == 'text' and sizes.qk_norm:
        raise ValueError('save_model: transformers has no such classifier with norms of q and k (Qwen3)')
    for name in ('query', 'document') if kind.head == 'vector' else ():
        if not (template := getattr(kind.task, name)).endswith('}'):
            raise ValueError(f'{name} {template!r} must end with a column to be saved as a prompt')


def save_encoder(cfg, base, data, encoder, folder):
    """A Hugging Face folder: EuroBert, or with norms of q and k a Qwen3, and the task's head."""
    sizes, checkpoint, head = base.transformer.sizes, base.checkpoint, data.kind.head
    check_export(data.kind, sizes)
    tokenizer, is_bare = checkpoint.tokenizer(), head == 'vector'   # which sentence-transformers opens
    tensors = {name.removeprefix('head.'): p.float() for name, p in encoder.named_parameters()}
    if is_bare or sizes.qk_norm:
        old, new = ('model.', '') if is_bare else ('classifier.', 'score.')
        tensors = {name.replace(old, new, 1): p for name, p in tensors.items()}
    names = {'tokens': 'ForTokenClassification', 'text': 'ForSequenceClassification', 'vector': 'Model'}
    more = {'architectures': [('Qwen3' if sizes.qk_norm else 'EuroBert') + names[head]]}
    if labels := data.labels:
        more |= {'id2label': dict(enumerate(labels)), 'label2id': {name: k for k, name in enumerate(labels)}}
        if head == 'text':
            more |= {'problem_type': PROBLEM_TYPES[data.kind.loss]}
    with whole(folder) as temporary:
        temporary.mkdir()
        huggingface.save(temporary, sizes, checkpoint.context, tokenizer.ids, tensors, **more)
        tokenizer.save(temporary, append_eos=True, model_max_length=cfg.max_length)
        if is_bare:
            prompts = {name: getattr(cfg, name).split('{')[0] for name in ('query', 'document')}
            huggingface.write_pooling(temporary, sizes.hidden_size, cfg.max_length, prompts)
        write_sealed(temporary / 'run.json', about_run(cfg, base, [data], data))
