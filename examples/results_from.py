"""Make the results.csv of `evaluate.py compare` from what other programs write.

    python examples/results_from.py A=outputs/model_a B=outputs/model_b
    python examples/results_from.py A=out/a0 A=out/a1 B=out/b0 B=out/b1     # two trainings of each
    python evaluate.py compare A B --results=results.csv

A and B are names of your choice. Name a system once for each of its trainings: they become its seeds 0, 1, 2.
After = comes a file, or a folder in which they are found by their names:

    samples_*.jsonl       lm-evaluation-harness, with --log_samples
    *_predictions.json    mteb's rankings, with prediction_folder; --gold is the judgements' qrels (.tsv)
    predict_results*.txt  transformers' run_glue.py and run_classification.py; --gold is the .csv or .jsonl
                          that was predicted
    *.trec                trec_eval -q, whose output you saved as <test set>.trec
    *.json                a log of Inspect (inspect log convert --to json); its epochs become seeds"""
import fnmatch
import sys
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))   # nanoencoder is not installed as a package
from nanoencoder import metrics
from nanoencoder.files import blame, read_json
from nanoencoder.settings import check, parse, run_main, split_words
from nanoencoder.tables import json_objects, open_text

# correct, partly, incorrect, no answer: what they count in Inspect
INSPECT = {'C': 1.0, 'P': 0.5, 'I': 0.0, 'N': 0.0}


@dataclass(frozen=True)
class Settings:
    out: str = 'results.csv'
    metric: str = ''        # of several in a file; empty: the first one, or ndcg_cut_10 of trec_eval
    filter: str = ''        # of lm-evaluation-harness, such as flexible-extract; empty: the first one
    # field of a doc in lm-evaluation-harness, or of a sample's metadata in Inspect: items that have the same
    # there, such as the text that several questions are on, are a cluster
    cluster: str = ''
    gold: str = ''          # file with the right answers
    label: str = 'label'    # its column, of labels

    __post_init__ = check


class Result(NamedTuple):
    """What a reader yields of each item."""
    dataset: str
    item: object
    score: object
    cluster: object = None
    gold: object = None
    epoch: int = 1


# ---------------------------------------------------------------------------
# The readers


def read_lm_eval(path, cfg):
    """Yield the Results of a samples_<task>_<date>.jsonl. It has each doc once for each filter."""
    dataset = path.stem.removeprefix('samples_').rpartition('_')[0]
    samples = json_objects(path)
    wanted = cfg.filter or samples[0].get('filter', 'none')
    for sample in samples:
        if sample.get('filter', 'none') == wanted:
            names = ', '.join(sample.get('metrics', sample))
            with blame(f'{path}: --metric is one of {names}', KeyError):
                metric = cfg.metric or sample['metrics'][0]
                score = number(sample[metric], f'{path}: {metric}')
            yield Result(dataset, sample['doc_id'], score, cluster_of(sample['doc'], cfg))


def read_mteb(path, cfg):
    """Yield the NDCG@10 of each query in a <task>_predictions.json: {subset: {split: {query: {document:
    similarity}}}}. Documents of equal similarity are ranked as trec_eval does it, the greater id first."""
    grades = read_qrels(cfg.gold)
    task = path.name.removesuffix('_predictions.json')
    subsets = read_json(path)
    subsets.pop('mteb_model_meta', None)
    for subset, splits in subsets.items():
        for split, queries in splits.items():
            unusual = [name for name in (subset, split) if name not in ('default', 'test')]
            dataset = '-'.join([task, *unusual])
            for query, found in queries.items():
                if query in grades:
                    pairs = [(score, document) for document, score in found.items()]
                    ranked = [document for _, document in sorted(pairs, reverse=True)]
                    row = {'docs': ranked[:10], 'gold': grades[query]}
                    yield Result(dataset, query, metrics.ndcg(row))


def read_qrels(path):
    """Return {query: {document: grade}} of lines of query, document and grade, as BEIR has them, or of query,
    0, document and grade, as TREC has them."""
    if not path:
        raise ValueError("mteb's rankings need --gold, a file with the judgements: query, document, grade")
    grades = defaultdict(dict)
    lines = Path(path).read_text(encoding='utf-8-sig').splitlines()
    if lines and lines[0].split()[-1] in ('score', 'relevance', 'grade'):   # it names the columns
        lines = lines[1:]
    for line in lines:
        with blame(f'{path}: {line!r:.60} is no query, document and grade, with tabs between', ValueError):
            query, *_, document, grade = line.split()
            grades[query][document] = int(float(grade))
    return grades


def read_trainer(path, cfg):
    """Yield the Results of a predict_results_<task>.txt: lines of a row's number and its label."""
    if not cfg.gold:
        raise ValueError(f'{path}: lacks right answers: --gold=FILE is the .csv or .jsonl that was predicted')
    dataset = path.stem.removeprefix('predict_results').strip('_') or Path(cfg.gold).stem
    golds = read_labels(cfg)
    lines = path.read_text(encoding='utf-8').splitlines()[1:]   # the first names the columns
    if len(lines) != len(golds):
        raise ValueError(f'{path}: has {len(lines):,} predictions for {len(golds):,} rows of {cfg.gold}')
    preds = [line.split('\t')[1].strip() for line in lines]
    if not {*preds} & {*golds}:
        raise ValueError(f'{path}: predicts {preds[0]!r:.40}, and a label of {cfg.gold} is {golds[0]!r:.40}: '
                         'give both the same names')
    for number, (pred, gold) in enumerate(zip(preds, golds)):
        yield Result(dataset, number, pred, gold=gold)


def read_labels(cfg):
    """Return the labels in --gold, as texts."""
    import pandas
    path = Path(cfg.gold)
    if path.suffix == '.jsonl':
        table = pandas.DataFrame(json_objects(path)).astype(str)
    else:
        separator = '\t' if path.suffix == '.tsv' else ','
        with open_text(path) as file:
            table = pandas.read_csv(file, sep=separator, dtype=str, keep_default_na=False)
    if cfg.label not in table:
        raise ValueError(f'{cfg.gold}: has no column {cfg.label!r}; --label is one of {", ".join(table)}')
    return [*table[cfg.label]]


def read_trec(path, cfg):
    """Yield the Results of trec_eval -q: lines of a metric, a query and its value; "all" is their mean."""
    for line in path.read_text(encoding='utf-8').splitlines():
        with blame(f'{path}: {line!r:.60} is no metric, query and value', ValueError):
            metric, query, value = line.split(maxsplit=2)
        if metric == (cfg.metric or 'ndcg_cut_10') and query != 'all':
            yield Result(path.stem, query, number(value, f'{path}: {metric}'))


def read_inspect(path, cfg):
    """Yield the Results of a log of Inspect: each sample's value by the first scorer, or by --metric."""
    log = read_json(path)
    if not {'eval', 'samples'} <= log.keys():
        raise ValueError(f'{path}: is no log of Inspect with samples (lm-evaluation-harness writes '
                         'samples_*.jsonl with --log_samples)')
    for sample in log['samples']:
        where = f'{path}: sample {sample["id"]}'
        scores = sample.get('scores')
        if not scores:
            raise ValueError(f'{where}: has no score; did it end with an error?')
        scorer = cfg.metric or [*scores][0]
        if scorer not in scores:
            raise ValueError(f'{where}: has no scorer {scorer!r}; --metric is one of {", ".join(scores)}')
        value = scores[scorer]['value']
        if isinstance(value, str):
            value = INSPECT.get(value, value)
        cluster = cluster_of(sample.get('metadata', {}), cfg)
        score = number(value, f'{where}: {scorer}')
        yield Result(log['eval']['task'], sample['id'], score, cluster, epoch=sample['epoch'])


def number(value, where):
    """Return a score as a float. ValueError that says where, if it is something else, such as a list."""
    if isinstance(value, (list, dict)):
        raise ValueError(f'{where} is {value!r:.60}, and no score of one item; --metric names another')
    with blame(where, TypeError, ValueError):
        return float(value)


def cluster_of(fields, cfg):
    """Return the name of an item's cluster: a number made of what its field has, which may be a long text."""
    if not cfg.cluster:
        return None
    with blame(f'--cluster is none of {", ".join(fields)}', KeyError):
        return zlib.crc32(str(fields[cfg.cluster]).encode())


READERS = {     # a file is read by the first pattern that fits
    'samples_*.jsonl': read_lm_eval,
    '*_predictions.json': read_mteb,
    'predict_results*.txt': read_trainer,
    '*.trec': read_trec,
    '*.json': read_inspect,
}


# ---------------------------------------------------------------------------
# The .csv


def files_in(path):
    """Return [(file, its reader)] of a file, or of a folder's files of the first pattern that it has."""
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(path.rglob('*'))
    elif not path.exists():
        raise ValueError(f'{path}: no such file or folder')
    for pattern, read in READERS.items():
        fitting = [file for file in files if fnmatch.fnmatch(file.name, pattern)]
        if fitting:
            return [(file, read) for file in fitting]
    raise ValueError(f'{path}: is, or has, none of {", ".join(READERS)}')


def rows_of(words, cfg):
    """Return the rows of the .csv.

    words  SYSTEM=PATH, once for each training"""
    rows = []
    seeds = defaultdict(dict)   # {system: {(place of the word, epoch): seed}}
    for place, word in enumerate(words):
        system, _, path = word.partition('=')
        if not path:
            raise ValueError(f'{word!r}: write NAME=PATH, such as A=outputs/model_a')
        origins = {}    # {dataset: its file}
        for file, read in files_in(path):
            with blame(f'{file}: is not as its program writes it', AttributeError, LookupError, TypeError):
                results = [*read(file, cfg)]
            for result in results:
                if origins.setdefault(result.dataset, file) != file:
                    raise ValueError(f'{path}: has {result.dataset} twice, in {origins[result.dataset]} and '
                                     f'{file}: name one file, or each as a training of its own')
                of_system = seeds[system]
                seed = of_system.setdefault((place, result.epoch), len(of_system))
                rows.append({'system': system, 'seed': seed} | result._asdict())
        if not origins:
            raise ValueError(f'{word}: has no results; are --metric, --filter and --gold right?')
    return rows


def main():
    import pandas
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(Settings, options)
    if not words:
        raise ValueError('write NAME=PATH for each training, such as A=outputs/model_a, and see --help')
    rows = rows_of(words, cfg)
    table = pandas.DataFrame(rows).dropna(axis='columns', how='all').drop(columns='epoch')
    table.to_csv(cfg.out, index=False)
    print(f'{cfg.out}: {len(table):,} results of {", ".join(dict.fromkeys(table["system"]))}')


if __name__ == '__main__':
    run_main(main)
