"""Make of a task's training rows a task of its own, to choose settings on: none is ever scored elsewhere.

    python studies/hold_out.py texts/ewt_pos texts/wn_sc texts/squad_ir    # writes texts/ewt_pos_tuning, ...

Of train.jsonl the last third is held out, as it stands in the file: neighbours come from one document. Its
rows are validation and test in turn. Rows with the columns `query` and `positive` are pairs: they become a
search over the documents that are held out. Each pair is one query with one relevant document, so of a query
in several pairs only one document counts at a time, and another of its documents as a miss. A study with
choose = 'held-out rows' does all this by itself."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where nanoencoder is

from nanoencoder.files import json_lines, locked, whole
from nanoencoder.settings import plain_words, run_main
from nanoencoder.tables import json_objects

TUNING = '_tuning'      # ends the name of a task that is made


def read_rows(path):
    return json_objects(path)


def write_text(path, text):
    with whole(path) as temporary:
        temporary.write_text(text, encoding='utf-8')


def write_rows(path, rows):
    write_text(path, json_lines(rows))


def tuning_folder(data):
    """Return where the task lies that is made of a folder's training rows."""
    folder = Path(data)
    return folder.with_name(folder.name + TUNING)


def on_held_out_rows(settings):
    """Return settings of finetune.py for the task that hold_out makes. ValueError if it makes none of it."""
    is_train = settings.get('train', 'train') in ('train', 'train.jsonl')
    if not settings.get('data') or not is_train or settings.get('score_on') or settings.get('pair'):
        raise ValueError("choose = 'held-out rows' wants `data`, a folder whose train.jsonl is the training "
                         'rows, no score_on, and no pair: columns of retrieval are query and positive')
    splits = {split: split for split in ('train', 'validation', 'test')}
    return settings | splits | {'data': str(tuning_folder(settings['data']))}


def hold_out(folder, made_by=''):
    """Write the task made of a folder's train.jsonl beside it, the same bytes each time, and return its
    folder.

    made_by  the command that writes the folder, for whoever has not run it yet"""
    path = folder / 'train.jsonl'
    if not path.exists():
        advice = f'; first run: {made_by}' if made_by else ''
        raise ValueError(f'{path}: is not there, so no third of its rows can be held out{advice}')
    rows = read_rows(path)
    if len(rows) < 4:
        raise ValueError(f'{path}: has {len(rows)} rows, too few for three splits')
    cut = len(rows) * 2 // 3
    made = tuning_folder(folder)
    with locked(made, wait=True):
        write_task(made, rows[:cut], rows[cut:])
    return made


def write_task(made, train, held):
    if held[0].keys() >= {'query', 'positive'}:
        documents = write_search(made, held)
        train = [row for row in train if row['positive'] not in documents]
    else:
        write_rows(made / 'validation.jsonl', held[::2])
        write_rows(made / 'test.jsonl', held[1::2])
    write_rows(made / 'train.jsonl', train)


def write_search(made, pairs):
    """Write pairs in BEIR's layout. Each is a query with one relevant document. Returns {document: id}."""
    ids = {}
    queries = []
    grades = []
    for number, pair in enumerate(pairs):
        document = ids.setdefault(pair['positive'], f'd{len(ids)}')
        queries.append({'_id': f'q{number}', 'text': pair['query']})
        grades.append(f'q{number}\t{document}\t1\n')
    write_rows(made / 'queries.jsonl', queries)
    write_rows(made / 'corpus.jsonl', [{'_id': name, 'text': text} for text, name in ids.items()])
    head = 'query-id\tcorpus-id\tscore\n'
    write_text(made / 'qrels/validation.tsv', head + ''.join(grades[::2]))
    write_text(made / 'qrels/test.tsv', head + ''.join(grades[1::2]))
    return ids


def main():
    for folder in plain_words(sys.argv[1:]):
        print(hold_out(Path(folder)))


if __name__ == '__main__':
    run_main(main)
