"""Keep a study's runs small enough for git, and use evaluate.py's commands on what is kept.

    python studies/packs.py studies/small                                   # pack runs/ and out/
    python studies/packs.py studies/small table --split=both
    python studies/packs.py studies/small compare mlm-1800 clm25-mlm-1800 --split=both

A pack holds no predictions. It holds what each instance adds to the sums of its score: intervals and tests
can be computed again, metrics cannot. packs.py writes:

    runs/s0.jsonl.gz, ...   a line a fine-tuning, those of pretraining seed 0; other.jsonl.gz has the rest
    scores.csv              the same runs, a score each
    losses.csv              a line for each validation of each pretraining
    sha256.json             of these files

Each pack adds to what is there. Folders in runs/ and out/ may be removed once they are packed."""
import functools
import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where evaluate.py is

import evaluate
from nanoencoder.files import changed_files, locked, plain_name, read_json, sha256, whole, write_json
from nanoencoder.predictions import SCORED, lr_text
from nanoencoder.settings import parse, run_main, split_words
from studies import losses
from studies.study import check_recorded, load

# of run.json
PACKED = ('method', 'weights', 'data', 'settings', 'grid', 'pretraining', 'checkpoint', 'tokenizer',
          'training_data', 'sizes', 'rows', 'scheme')
# of evaluate.Run
COLUMNS = ('model', 'origin', 'task', 'dataset', 'metric', 'lr', 'seed', 'n', 'validation', 'test', 'folder')


def check_packed(folder):
    """ValueError unless a study's packs are as sha256.json says."""
    folder = Path(folder)
    listing = folder / 'sha256.json'
    digests = read_json(listing) if listing.exists() else {}
    for path in sorted(folder.glob('runs/*.jsonl.gz')):
        if str(path.relative_to(folder)) not in digests:
            raise ValueError(f'{listing}: lacks {path.name}, as when a packing was stopped; if that belongs '
                             f'there, rm -f {listing} and run studies/packs.py {folder}')
    for name in changed_files(folder, digests):
        raise ValueError(f'{folder / name}: missing or changed since it was written; restore it, as from git')


def find_runs(folder, is_whole=False):
    """Yield (folder, run.json, a function that returns its scores) of each run in a study's runs/, then of
    those packed runs that have no folder. ValueError if a pack is not as sha256.json says. There is none
    before the first pack and if one was killed, which `is_whole` refuses."""
    if is_whole or Path(folder, 'sha256.json').exists():
        check_packed(folder)
    root = Path(folder, 'runs')
    there = set()
    for run in evaluate.find_runs(root):
        there.add(run[0])
        yield run
    for path in sorted(root.glob('*.jsonl.gz')):
        with gzip.open(path) as file:
            for line in file:
                content = json.loads(line)
                place = root / content['run']
                if place not in there:
                    yield place, content['about'], functools.partial(packed_scores, line)


def runs_in_order(folder):
    """Return what find_runs yields of a whole pack, in the order of rows.json. A row's variants follow it;
    models that are no rows come last."""
    path = Path(folder, 'rows.json')
    rows = {}
    if path.exists():
        rows = {row: number for number, row in enumerate(read_json(path))}

    def rank(run):
        place, about, _ = run
        row, _, variant = evaluate.model_of(place, about).partition('+')
        return rows.get(row, len(rows)), variant
    return sorted(find_runs(folder, is_whole=True), key=rank)


def packed_scores(line):
    return json.loads(line)['scores']


def packed_line(root, place, about, scores):
    """Return the line that a pack has of a run."""
    kept = {'name': scores['name']}
    for split in SCORED:
        standard = scores[split]['standard']
        ids = evaluate.key_of(standard['ids'])
        score = scores[split]['paper']['score']
        kept[split] = {'paper': {'score': score}, 'standard': standard | {'ids': ids}}
    about = {name: about[name] for name in PACKED if about.get(name)}
    line = {'run': str(place.relative_to(root)), 'scores': kept, 'about': about}
    return json.dumps(line, sort_keys=True, ensure_ascii=False).encode() + b'\n'


def pack_study(folder):
    """Write a study's packs, tables and sha256.json, and print how many runs they hold."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no such folder')
    with locked(folder, wait=True):
        write_packs(folder)


def write_packs(folder):
    import pandas
    root = folder / 'runs'
    packs = {}      # {file's name: lines}
    rows = []
    for place, about, load_predictions in find_runs(folder):
        run = evaluate.make_run(place, about, load_predictions, evaluate.Settings())
        origin = ''
        name = 'other'
        if run.origin is not None:
            origin = run.origin
            name = plain_name(f's{origin}', place)
        packs.setdefault(name, []).append(packed_line(root, place, about, load_predictions()))
        written = replace(run, origin=origin, lr=lr_text(run.lr), validation=f'{run.validation:.6f}',
                          test=f'{run.test:.6f}')
        rows.append([str(getattr(written, name)) for name in COLUMNS])
    logs = [path.parent for path in sorted(folder.glob('out/*/log.jsonl'))]
    tables = {'scores.csv': pandas.DataFrame(sorted(rows), columns=COLUMNS),
              'losses.csv': losses.losses_table(folder / 'losses.csv', logs)}

    listing = folder / 'sha256.json'
    listing.unlink(missing_ok=True)     # until all files are of this pack, whatever kills it
    for name, lines in packs.items():
        with whole(root / f'{name}.jsonl.gz') as temporary, open(temporary, 'wb') as raw:
            with gzip.GzipFile('', 'wb', fileobj=raw, mtime=0) as file:     # the same bytes each time
                file.writelines(sorted(lines))
    for name, frame in tables.items():
        if frame is not None:
            with whole(folder / name) as temporary:
                frame.to_csv(temporary, index=False)
    paths = [*sorted(root.glob('*.jsonl.gz')), *sorted(folder.glob('*.csv'))]
    write_json(listing, {str(path.relative_to(folder)): sha256(path) for path in paths})
    print(f'{folder}: {len(rows):,} runs')


def evaluate_command(words, options, find, **settings):
    """Do what evaluate.py does with a command line, on the runs that find(folder) yields.

    words  a folder, and a command of evaluate.py"""
    cfg, _ = parse(evaluate.Settings, options)
    if not words:
        raise ValueError('name a folder, and a command of evaluate.py: studies/small table')
    folder, *command = words
    cfg = replace(cfg, predictions=folder, clusters=False, **settings)   # as in reports
    problems = []
    evaluate.run_command(command, cfg, problems, find(folder))
    sys.exit(evaluate.warn(problems))


def main():
    words, options = split_words(sys.argv[1:])
    is_packing = len(words) == 1 and not options
    if words and Path(words[0], 'config.py').exists():
        study, _ = load(words[:1])
        check_recorded(study, find_runs(words[0], is_whole=not is_packing))
    if is_packing:
        pack_study(words[0])
        return
    evaluate_command(words, options, runs_in_order)


if __name__ == '__main__':
    run_main(main)
