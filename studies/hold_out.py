"""Make of a task's training rows a task of its own, to choose rates on: none is ever scored elsewhere.

    python studies/hold_out.py texts/ewt_pos texts/wn_sc texts/squad_ir    # writes texts/ewt_pos_tuning, ...

Of train.jsonl the last third is held out, as it stands in the file: neighbours come from one document. Its
rows are validation and test in turn. Pairs of queries and documents become a search over the documents that
are held out."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root, where nanoencoder is

from nanoencoder.files import json_lines
from nanoencoder.settings import plain_words, run_main
from nanoencoder.tables import json_objects


def read_rows(path):
    rows = json_objects(path)
    return rows


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_lines(rows), encoding='utf-8')


def hold_out(folder):
    """Write the task made of a folder's train.jsonl beside it, and return its folder."""
    rows = read_rows(folder / 'train.jsonl')
    cut = len(rows) * 2 // 3
    train = rows[:cut]
    held = rows[cut:]
    made = folder.with_name(folder.name + '_tuning')
    if 'positive' in rows[0]:
        documents = write_search(made, held)
        train = [row for row in train if row['positive'] not in documents]
    else:
        write_rows(made / 'validation.jsonl', held[::2])
        write_rows(made / 'test.jsonl', held[1::2])
    write_rows(made / 'train.jsonl', train)
    return made


def write_search(made, pairs):
    """Write pairs in BEIR's layout: each query has one document that is relevant to it. Returns
    {document: its id}."""
    ids = {}
    queries = []
    grades = []
    for number, pair in enumerate(pairs):
        document = ids.setdefault(pair['positive'], f'd{len(ids)}')
        queries.append({'_id': f'q{number}', 'text': pair['query']})
        grades.append(f'q{number}\t{document}\t1\n')
    write_rows(made / 'queries.jsonl', queries)
    write_rows(made / 'corpus.jsonl', [{'_id': name, 'text': text} for text, name in ids.items()])
    qrels = made / 'qrels'
    qrels.mkdir(exist_ok=True)
    head = 'query-id\tcorpus-id\tscore\n'
    (qrels / 'validation.tsv').write_text(head + ''.join(grades[::2]))
    (qrels / 'test.tsv').write_text(head + ''.join(grades[1::2]))
    return ids


def main():
    for folder in plain_words(sys.argv[1:]):
        print(hold_out(Path(folder)))


if __name__ == '__main__':
    run_main(main)
