"""Tables of files and of the hub: where they lie, and which file is meant."""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from nanoencoder.files import blame
from nanoencoder.settings import may_change, selects_data, setting
from nanoencoder.tables import READERS, read_iob, reader_of, with_names


@dataclass(frozen=True)
class Source:
    """Where rows come from, and how their files are read."""
    dataset: str = selects_data('')  # names the folder of its predictions
    source: str = selects_data('')  # a dataset of the hub
    subset: str = selects_data('')  # of a hub dataset, as sst2 of nyu-mll/glue
    revision: str = selects_data('')  # refs/convert/parquet where the main one is a script
    data: str = may_change('')  # a folder of local files, read instead of the hub
    made_by: str = may_change('')  # the command that writes that folder
    delimiter: str = selects_data('')  # of .csv files, as ";"; empty: ","
    # files of a word a line
    columns: tuple = selects_data((), of=int)  # of word and tag, from 0; -1 is the last one
    words: str = selects_data('tokens')  # what these columns are called elsewhere
    tags: str = selects_data('tags')
    max_length: int = setting(0, 0)     # tokens of a text; 0: as the authors, round(0.99 x the context)


def read_table(source, names, split, subset='', only=None):
    """The table of a split, from local files or from the hub.

    source  a Source, or a Task
    names   datasets of the hub that it may be in; a local copy may lie in a folder of any of these names
    only    ids of the queries or documents to read; None: all rows"""
    if not source.data:
        return read_hub(names[0], subset, split, source.revision, only)
    folder = Path(source.data)
    if source.made_by and not folder.exists():
        raise ValueError(f'{folder}: is not there yet; first run: {source.made_by}')
    paths = local_files(folder, names, subset, split)
    others = f' and {len(paths) - 1} more' if len(paths) > 1 else ''
    print(f'reads {paths[0]}{others}', file=sys.stderr)
    return read_files(paths, source, only)


def local_files(folder, names, subset, split):
    """The files of a split: `split` is a name, with or without suffix, or a path. They lie in `folder` or in
    the dataset's own folder within it, and there may be in one more, as on the hub. Those in the subset's own
    folder come first. ValueError if more than one file may be meant."""
    names = [name.split('/')[-1] for name in names]
    root = next((folder / name for name in names if (folder / name).is_dir()), folder)
    spellings = [split, 'dev'] if split == 'validation' else [split]
    places = ['', 'data', 'default', 'plain_text', *names]
    searched = [(places, spelling) for spelling in spellings]
    if subset:
        searched = [([subset], spelling) for spelling in spellings] + searched
    for places, spelling in searched:
        paths = dict.fromkeys(root / place / spelling for place in places)
        choices = [files for path in paths for files in files_of(path)]
        if len(choices) > 1:
            there = ', '.join(str(files[0]) for files in choices)
            single = min(choices, key=len)[0]
            raise ValueError(f'{there}: which of them is {split!r}? Remove the others, or name one by its '
                             f'whole path, as --train={single.absolute()}')
        if choices:
            return choices[0]
    there = ', '.join(sorted(path.name for path in root.glob('*'))) or 'nothing'
    raise FileNotFoundError(f'{root}: no {split} with a suffix such as .jsonl, .csv, .parquet or .iob; '
                            f'what is there: {there:.200}; another file is named whole, as '
                            '--train=train.txt; without a validation file, validation = "" holds out a '
                            'share of train')


def files_of(path):
    """What a name may mean: [[a file, with or without its suffix], ..., parquet shards <path>-*.parquet, or
    all in that folder]."""
    files = [Path(f'{path}{suffix}') for suffix in ('', *READERS)]
    choices = [[file] for file in files if file.is_file()]
    # train-small.parquet is a shard of train, but not where there is a train.csv
    beside = f'{path.name}-*-of-*.parquet' if choices else f'{path.name}-*.parquet'
    for shards in (path.parent.glob(beside), path.glob('*.parquet')):
        shards = shards_of(path, sorted(shards))
        if shards:
            choices.append(shards)
    return choices


def shards_of(path, shards):
    """Those of a split among parquet files; ValueError if they are numbered and one is missing."""
    numbered = {}
    for shard in shards:
        # others, as train-clean-00000-of-00001 beside train's own, are another split's
        match = re.match(rf'(?:{re.escape(path.name)}-)?(\d+)-of-(\d+)', shard.name)
        if match:
            numbered[shard] = match
    if not numbered:
        return [shard for shard in shards if shard.parent == path or '-of-' not in shard.name]
    numbers = sorted(int(match[1]) for match in numbered.values())
    total = max(int(match[2]) for match in numbered.values())
    if numbers != [*range(total)]:
        raise ValueError(f'{path}: its shards have the numbers {numbers!s:.200} and not 0 to {total - 1}, '
                         'each once; fetch those that are missing, or remove shards of another set')
    return [*numbered]


def read_files(paths, source, only=None):
    """(rows, {column: names of its labels}) of files; of queries and documents `only` some ids, if given."""
    rows = []
    for path in paths:
        read = read_iob if source.columns else reader_of(path)
        part, names = read(path, source)
        if only is not None:
            part = [row for row in part if id_of(row) in only]
        rows += part
    if not rows and only is None:
        raise ValueError(f'{paths[0]}: holds no row')
    return rows, names


def id_of(row):
    """The id of a query or document, as BEIR and MLDR call it; None if there is none."""
    for column in ('_id', 'docid'):
        if column in row:
            return str(row[column])
    return None


def read_hub(name, subset, split, revision, only=None):
    import datasets
    options = {'name': subset or None}
    if revision == 'refs/convert/parquet':  # has no list of its files
        options = {'data_files': {split: f'{subset or "default"}/{split}/*.parquet'}}
    what = f'no {split} of {name} {subset}, of which --data takes a local copy'
    with blame(what, OSError, ValueError, RuntimeError):
        dataset = datasets.load_dataset(name, split=split, revision=revision or None, **options)
    if only is not None:
        column = '_id' if '_id' in dataset.column_names else 'docid'
        dataset = dataset.select([k for k, value in enumerate(dataset[column]) if str(value) in only])
    return with_names(list(dataset), dataset.features.to_dict())
