"""The folder of one fine-tuned model in predictions/. finetune.py writes it and evaluate.py reads it.

    predictions/<model>/<TASK>/<dataset>/lr1e-04_sd0/
        validation.jsonl.gz, test.jsonl.gz   an object an instance: its id, what is right, what was predicted
        run.json                             model, settings and data, and the sha256 of the files above
        log.jsonl                            loss, learning rate and gradient norm of each step
        scores.json                          written by evaluate.py: scores, and of which files they are

This file needs no torch."""
import gzip
import json
import re
from pathlib import Path

from nanoencoder.files import changed_files, json_lines, read_sealed, sha256, whole, write_sealed
from nanoencoder.settings import flat

SCORED = ('validation', 'test')     # the splits that have predictions
ADVICE = 'remove its folder, and fine-tune again'
# the authors' folders of retrieval have a training set before the learning rate: msmarco_pairs_lr1e-04_sd0
RUN_NAME = re.compile(r'(?:.+_)?lr(\d+(?:\.\d+)?(?:e[-+]?\d+)?)_sd(\d{1,18})')


def lr_text(lr):
    """Write a learning rate as in a run's folder: 1e-04, or 0.00015 where one digit is not enough."""
    short = f'{lr:.0e}'
    return short if float(short) == lr else str(lr)


def run_folder(cfg, dataset):
    """Return predictions/<model>/<TASK>/<dataset>/lr1e-04_sd0."""
    run = f'lr{lr_text(cfg.lr)}_sd{cfg.seed}'
    return Path(cfg.predictions, cfg.name, cfg.kind, dataset, run)


def rate_and_seed(folder):
    """Read the learning rate and the seed from a run's folder, lr1e-04_sd0."""
    match = RUN_NAME.fullmatch(folder.name)
    if not match:
        raise ValueError(f'{folder}: not named as a run, SC/sst2/lr1e-04_sd0 or IR/nq/x_lr1e-04_sd0')
    return float(match[1]), int(match[2])


def write_run(folder, about, predictions, log=()):
    """Write a run's folder: it appears whole, or not at all.

    about        what run.json says of the model, the settings and the data
    predictions  {split: rows}, as the task's kind makes them
    log          an object for each step of training"""
    with whole(folder) as temporary:
        temporary.mkdir()
        for split, rows in predictions.items():
            path = temporary / f'{split}.jsonl.gz'
            content = json_lines(rows).encode()
            path.write_bytes(gzip.compress(content, mtime=0))
        digests = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        write_sealed(temporary / 'run.json', about | {'sha256': digests})
        (temporary / 'log.jsonl').write_text(json_lines(log))


def read_about(folder):
    """Read run.json. ValueError if it was edited."""
    return read_sealed(folder / 'run.json', ADVICE)


def check_predictions(folder, about):
    """Compare a run's predictions with run.json.
    ValueError if a file is gone or has changed: then there is no score."""
    for name in changed_files(folder, about['sha256']):
        raise ValueError(f'{folder / name}: missing or changed since it was written; {ADVICE}')


def read_predictions(folder, split):
    """Read the rows of a split."""
    path = Path(folder, f'{split}.jsonl.gz')
    with gzip.open(path) as file:   # lines of bytes, which json takes for UTF-8
        return [json.loads(line) for line in file]


def find_folders(root):
    """Return the folders <root>/<model>/<TASK>/<dataset>/<run>, sorted. A dot begins those in the making."""
    return sorted(Path(root).glob('*/*/*/[!.]*/'))


def about_run(cfg, about, data, trained_on, grid=()):
    """Return what run.json says of a run: all that fixes its numbers, so that no run is taken for another.

    about       what is said of the model: its checkpoint, tokenizer, sizes, pretraining, and the method
    data        the Data that it is scored on
    trained_on  the Data that it is trained on
    grid        the learning rates and the seeds that were asked for with it"""
    return {
        'settings': flat(cfg, ('results',)),
        'rows': flat(cfg, ('data',)),
        'weights': cfg.weights,
        'labels': trained_on.labels,
        'scheme': cfg.scheme,
        'grid': grid,
        **about,
        'data': data.scored_sha256,
        'training_data': trained_on.training_sha256,
    }


def is_written(folder, wanted, defaults):
    """Whether a run's folder is there. ValueError if it was made with other settings, of another model or of
    other data.

    wanted    what about_run says of the run that is asked for
    defaults  the settings' class: an older run.json does not say settings that are newer"""
    if not (folder / 'run.json').exists():
        return False
    wanted = json.loads(json.dumps(wanted))     # where tuples become lists, as in what was written
    made = read_about(folder)
    # an older run.json does not say these two
    made = {'pooling': 'mean', 'offset': wanted.get('offset')} | made | made['settings']
    # not compared: the checkpoint's digest covers pretraining and commit, the data's digests cover the rows
    ignored = ('settings', 'rows', 'grid', 'pretraining', 'commit')
    for name, value in (wanted['settings'] | wanted).items():
        was = made.get(name, getattr(defaults, name, None))
        if name not in ignored and was != value:
            raise ValueError(f'{folder}/run.json: was made with {name} = {str(was)[:60]}, this run has '
                             f'{str(value)[:60]}; remove the folder, or give this a --variant')
    return True
