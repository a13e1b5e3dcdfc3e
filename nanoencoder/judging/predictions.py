"""Runs on disk and their scores: of finetune.py, of the paper's authors, and packed. Needs no torch."""
import gzip
import itertools
import json
import re
import zlib
from pathlib import Path

from nanoencoder.files import (changed_files, locked, plain_name, read_json, read_sealed, sha256, whole,
                               write_json)
from nanoencoder.judging.metrics import CORRELATIONS, KINDS
from nanoencoder.judging.statistics import SCORED, Run, grouped, key_of, lr_text

IDENTITY = 'checkpoint', 'tokenizer', 'training_data', 'sizes'  # of a model; older packs lack them
FACTS = 'weights', 'data', 'settings', 'grid', 'pretraining', *IDENTITY     # of run.json, which a Run has
PACKED = 'method', *FACTS, 'rows', 'scheme'
COLUMNS = 'model', 'origin', 'task', 'dataset', 'metric', 'lr', 'seed', 'n', 'validation', 'test', 'folder'


def read_scores(folder, about):
    """scores.json of a run with this run.json; without, results.json in the authors' format."""
    content = read_json(path := folder / ('scores.json' if about else 'results.json'))
    if not about:
        scores = {}
        for split in SCORED:
            if not {'score', 'scores_i'} <= {*content.get(split, ())}:
                raise ValueError(f'{path}: lacks "score" or "scores_i" of {split}')
            scores[split] = {'paper': content[split], 'standard': {'columns': [content[split]['scores_i']]}}
        return scores
    if sha256(path) != about['sha256'][path.name]:
        raise ValueError(f'{path}: changed since it was written; remove its folder, and fine-tune again')
    return content


def check_packed(root):
    """ValueError unless what a study's sha256.json lists is as `pack` wrote it. root holds its runs."""
    folder = Path(root).parent
    digests = read_json(listing) if (listing := folder / 'sha256.json').exists() else {}
    for path in Path(root).glob('*.jsonl.gz'):
        if str(path.relative_to(folder)) not in digests:
            raise ValueError(f'{listing}: lacks {path.name}; remove either, then evaluate.py pack {folder}')
    for name in changed_files(listing, digests):
        why = 'changed since it was written' if (folder / name).exists() else 'No such file'
        raise ValueError(f'{folder / name}: {why}; restore it, as from git')


def find_runs(root, is_results):
    """(folder, run.json, () -> its scores) of each <root>/<model>/<TASK>/<dataset>/<run>, then of packed."""
    advice = 'remove its folder, and fine-tune again'
    for folder in sorted(path for path in Path(root).glob('*/*/*/[!.]*') if path.is_dir()):
        about = {} if is_results else read_sealed(folder / 'run.json', advice)
        yield folder, about, lambda folder=folder, about=about: read_scores(folder, about)
    for path in sorted(Path(root).glob('*.jsonl.gz')):
        for line in gzip.open(path, 'rb'):
            content, short = json.loads(line), zlib.compress(line, 1)   # lines wait compressed in memory
            pieces = [plain_name(piece, path) for piece in content['run'].split('/')]
            yield (Path(root, *pieces), content['about'],
                   lambda short=short: json.loads(zlib.decompress(short))['scores'])


def row_of(folder, about):
    """The model that a run is of: a study's row, else its folder. A probe is a model of its own."""
    past = about.get('pretraining') or {}
    row = past.get('row') or folder.parts[-4]
    return row.removesuffix('-probe') + '-probe' if about.get('method') == 'probe' else row


def rows_of_folders(cfg):
    """{folder of a model's runs: the row that they are runs of}, where the two differ"""
    rows = {folder.parts[-4]: row_of(folder, about) for folder, about, _ in find_runs(cfg.predictions, False)}
    return {folder: row for folder, row in rows.items() if folder != row}


def read_tree(cfg, root):
    """(Run, folder, run.json, scores) of each run beneath root, in a folder or packed."""
    done = set()
    for folder, about, load in find_runs(root, root == cfg.results):
        match = re.fullmatch(r'(?:.+_)?lr(\d+(?:\.\d+)?(?:e[-+]?\d+)?)_sd(\d{1,18})', folder.name)
        model, task, dataset, _ = folder.parts[-4:]
        if not match or task not in KINDS:      # the authors have a training set before the learning rate
            raise ValueError(f'{folder}: not named as a run, SC/sst2/lr1e-04_sd0 or IR/nq/x_lr1e-04_sd0')
        past = about.get('pretraining') or {}
        row = row_of(folder, about)
        origin = past.get('seed') if past.get('row') else None
        if origin is not None and type(origin) is not int:      # pack names a file by it
            raise ValueError(f'{folder}/run.json: seed of pretraining is {origin!r:.80}, which is no number')
        if folder in done or row not in (cfg.models or [row]) or dataset not in (cfg.datasets or [dataset]):
            continue
        done.add(folder)
        scores = load()
        run = Run(model=row, task=task, dataset=dataset, lr=float(match[1]), seed=int(match[2]),
                  **{split: scores[split][cfg.protocol]['score'] for split in SCORED},
                  metric=scores['name'] if cfg.protocol == 'standard' or scores.get('name') in CORRELATIONS
                  else KINDS[task].metric,
                  n=sum(len(scores[split]['standard']['columns'][0])
                        for split in SCORED if cfg.split in (split, 'both')),
                  instances=lambda split, load=load: load()[split]['standard'],
                  method=about.get('method', ''),
                  origin=origin, folder=model,
                  **{name: about[name] for name in FACTS if about.get(name)})
        yield run, folder, about, scores


def read_runs(cfg, problems):
    """The Runs of --predictions and --results. Whatever a grid lacks is a problem."""
    check_packed(cfg.predictions)
    runs = [run for root in (cfg.predictions, cfg.results) if root for run, *_ in read_tree(cfg, root)]
    for (*key, _), group in grouped(runs, 'folder', 'task', 'dataset', 'method').items():
        pairs = {(run.lr, run.seed) for run in group}
        axes = zip(zip(*pairs), *(run.grid for run in group if run.grid))    # learning rates, seeds
        grid = itertools.product(*(sorted(set().union(*axis)) for axis in axes))
        if missing := [f'lr{lr_text(lr)}_sd{seed}' for lr, seed in grid if (lr, seed) not in pairs]:
            problems.append(f'{"/".join(key)}: missing {", ".join(missing)}')
    absent = {*cfg.models} - {run.model for run in runs} | {*cfg.datasets} - {run.dataset for run in runs}
    rows = rows_of_folders(cfg) if absent else {}
    for name in sorted(absent & rows.keys()):
        problems.append(f'{name} is a run of the row {rows[name]}, which has all its seeds; name the row')
    if unknown := sorted(map(str, absent - rows.keys())):
        problems.append(f'there is no {", ".join(unknown)}')
    if not runs:
        raise ValueError('; '.join([f'{cfg.results or cfg.predictions}: no runs there', *problems]))
    return runs


def pack(folder, logs, cfg):
    """Write what git keeps of a study's folder: packed runs, scores.csv, losses.csv, sha256.json."""
    import pandas
    from nanoencoder.judging import losses  # and with it data.py, which a study's start need not read
    if not (folder := Path(folder)).is_dir():
        raise ValueError(f'{folder}: no such folder')
    listing, root = folder / 'sha256.json', folder / 'runs'
    logs = logs or [path.parent for path in sorted(folder.glob('out/*/log.jsonl'))]
    with locked(folder, wait=True):
        if listing.exists():    # none before the first pack, or killed in one
            check_packed(root)
        files, rows = {}, []    # {file's name: lines}
        for run, path, about, scores in read_tree(cfg, root):
            line = {'run': str(path.relative_to(root)), 'scores': {'name': scores['name']},
                    'about': {name: about[name] for name in PACKED if about.get(name)}}
            for split in SCORED:
                standard = scores[split]['standard']
                line['scores'][split] = {'paper': {'score': scores[split]['paper']['score']},
                                         'standard': standard | {'ids': key_of(standard['ids'])}}
            name, origin = ('other', '') if run.origin is None else (f's{run.origin}', run.origin)
            text = json.dumps(line, sort_keys=True, ensure_ascii=False) + '\n'
            files.setdefault(name, []).append(text.encode())
            rows.append((run.model, origin, run.task, run.dataset, run.metric, lr_text(run.lr), run.seed,
                         run.n, f'{run.validation:.6f}', f'{run.test:.6f}', run.folder))
        rows.sort(key=lambda row: list(map(str, row)))
        tables = {'scores.csv': pandas.DataFrame(rows, columns=COLUMNS),
                  'losses.csv': losses.table(folder / 'losses.csv', logs)}
        listing.unlink(missing_ok=True)     # until all files are of this pack, whatever kills it
        for name, lines in files.items():
            with whole(root / f'{name}.jsonl.gz') as temporary, open(temporary, 'wb') as raw, \
                    gzip.GzipFile('', 'wb', fileobj=raw, mtime=0) as file:      # the same bytes each time
                file.writelines(sorted(lines))
        for name, frame in tables.items():
            if frame is not None:
                with whole(folder / name) as temporary:
                    frame.to_csv(temporary, index=False)
        paths = [*sorted(root.glob('*.jsonl.gz')), *sorted(folder.glob('*.csv'))]
        write_json(listing, {str(path.relative_to(folder)): sha256(path) for path in paths})
    print(f'{folder}: {len(rows):,} runs')
