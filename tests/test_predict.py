"""predict.py: a kept model says of new rows what finetune.py said of its test, also after a kill."""
import csv
import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from pytest import approx
from sklearn.metrics import classification_report, confusion_matrix
from sklearn.preprocessing import MultiLabelBinarizer

import predict
from conftest import Script, edit, flip, jsonl, ran, read_rows, refused_line, run_script
from nanoencoder import table_writer
from nanoencoder.label_scores import LabelScores
from nanoencoder.predictions import read_predictions
from nanoencoder.tasks import Task, kind_of
from toys import data_of


@pytest.fixture
def kept(command, toy, tmp_path, monkeypatch):
    """A function that fine-tunes for a few steps, and keeps the model. Returns (its folder, the folder of its
    predictions, the files of the task)."""
    monkeypatch.chdir(tmp_path)     # fine-tuned/

    def keep(kind, *more):
        words = command(kind, '--steps=4', '--save_model', *more)
        ran(*words)
        run, = (tmp_path / 'p').glob(f'*/{kind}/toy/*/')
        data, = [word.removeprefix('--data=') for word in words if word.startswith('--data=')]
        return tmp_path / 'fine-tuned' / run.relative_to(tmp_path / 'p'), run, Path(data)
    return keep


def read_csv(path):
    with open(path, newline='') as file:
        return [*csv.DictReader(file)]


@pytest.mark.parametrize('kind, family', [
    ('SC', ''), ('ML', ''), ('TC', ''), ('QA', ''), ('number', ''),
    ('SC', 'bert'), ('TC', 'modernbert'), ('QA', 'roberta')])
def test_a_kept_model_predicts_what_the_run_did(kind, family, kept, toy, folders, tmp_path):
    """Labels, tags, answers and numbers of the test file, to the bit. Our classifier is opened by another
    process; it would take the others seconds to import transformers."""
    more = [f'--model={folders[family]}'] if family else []
    is_number = kind == 'number'
    if is_number:
        kind = 'SC'
        for path in shutil.copytree(data_of(toy, 'SC'), tmp_path / 'data').iterdir():
            edit(path, '"red"', '3.5')
            edit(path, '"blue"', '1')
        more = f'--data={tmp_path}/data', '--metric=Pearson'
    folder, run, data = kept(kind, *more)
    out = tmp_path / 'new.jsonl'
    words = 'predict.py', folder, data / 'test.jsonl', f'--out={out}'
    if (kind, family) == ('SC', '') and not is_number:
        result = Script(*words).ended_well()
    else:
        result = ran(*words)
    written = read_rows(out)
    given = read_rows(data / 'test.jsonl')
    assert [{name: row[name] for name in given[0]} for row in written] == given
    expected = [row['pred'] for row in read_predictions(run, 'test')]
    assert [row['predicted'] for row in written] == expected
    has_scores = kind != 'QA' and not is_number
    assert ('that have labels are right' in result.stdout) == has_scores
    if kind == 'SC' and has_scores:
        for row in written:
            shares = {label: row[f'p({label})'] for label in ('blue', 'red')}
            assert sum(shares.values()) == approx(1, abs=1e-5)
            assert max(shares, key=shares.get) == row['predicted']


def test_retrieval_finds_the_documents_that_the_run_did(kept, tmp_path):
    folder, run, data = kept('IR')
    documents = {}
    for split in ('validation', 'test'):
        for row in read_rows(data / f'{split}.jsonl'):
            documents[row['id']] = row['positive']
    jsonl(tmp_path / 'corpus.jsonl', [{'_id': name, 'text': text} for name, text in documents.items()])
    queries = [{'id': row['id'], 'text': row['query']} for row in read_rows(data / 'test.jsonl')]
    jsonl(tmp_path / 'queries.jsonl', queries)
    out = tmp_path / 'found.jsonl'
    words = 'predict.py', folder, tmp_path / 'queries.jsonl', f'--out={out}'
    refused_line('needs --documents=', *words)
    ran(*words, f'--documents={tmp_path}/corpus.jsonl', '--rows_at_once=9')
    expected = {row['id']: row for row in read_predictions(run, 'test')}
    written = read_rows(out)
    assert len(written) == len(expected) > 10
    for row in written:
        best = expected[row['id']]
        assert row['scores'] == approx(best['scores'], abs=3e-6)
        scores = dict(zip(row['predicted'], row['scores']))
        for name, score in zip(best['docs'], best['scores']):
            assert scores.get(name, min(row['scores'])) == approx(score, abs=3e-6)


@pytest.fixture
def new(kept, tmp_path):
    """(a kept model, new.csv without labels): 40 rows, some texts with quotes, commas and line ends."""
    folder, _, data = kept('SC')
    texts = [row['text'] for row in read_rows(data / 'test.jsonl')]
    texts[3] = 'a "red", array\nof blue'
    pandas.DataFrame({'number': range(len(texts)), 'text': texts}).to_csv(tmp_path / 'new.csv', index=False)
    return folder, tmp_path / 'new.csv'


def killed_at(moment, monkeypatch):
    """Have predict.py be killed after so many files of progress."""
    write = table_writer.write_json
    done = []

    def write_or_die(path, content):
        if len(done) == moment:
            raise KeyboardInterrupt
        done.append(path)
        write(path, content)
    monkeypatch.setattr(table_writer, 'write_json', write_or_die)


@pytest.mark.parametrize('suffix, moment', [('csv', 0), ('csv', 1), ('jsonl', 4)])
def test_a_killed_file_is_completed_and_nothing_is_there_twice(moment, suffix, new, tmp_path, monkeypatch):
    folder, path = new
    whole = tmp_path / f'whole.{suffix}'
    out = tmp_path / f'labels.{suffix}'
    ran('predict.py', folder, path, f'--out={whole}', '--rows_at_once=7')
    words = 'predict.py', folder, path, f'--out={out}', '--rows_at_once=7'
    with monkeypatch.context() as patch:
        killed_at(moment, patch)
        assert run_script(*words).returncode == 130
    assert not out.exists()
    ran(*words)
    assert out.read_bytes() == whole.read_bytes()
    rows = read_csv(out) if suffix == 'csv' else read_rows(out)
    assert [int(row['number']) for row in rows] == [*range(40)]
    assert 'already done' in ran(*words).stdout
    assert not list(tmp_path.glob('*.part'))
    flip(path)
    refused_line('was begun with another input', *words)
    whole.with_name(f'{whole.name}.progress.json').unlink()
    refused_line('is there already, and predict.py did not write it', *words[:3], f'--out={whole}')


def test_every_form_of_input_gives_the_same_labels(new, tmp_path, monkeypatch):
    folder, path = new
    ran('predict.py', folder, path, f'--out={tmp_path}/csv.csv')
    expected = [row['predicted'] for row in read_csv(tmp_path / 'csv.csv')]
    table = pandas.read_csv(path)
    table.to_parquet(tmp_path / 'new.parquet')
    table.to_csv(tmp_path / 'other.csv', sep=';', index=False)
    table.to_json(tmp_path / 'new.jsonl.gz', orient='records', lines=True)
    for name, *more in (['new.parquet'], ['other.csv', '--delimiter=;'], ['new.jsonl.gz']):
        ran('predict.py', folder, tmp_path / name, f'--out={tmp_path}/{name}.csv', *more)
        assert [row['predicted'] for row in read_csv(tmp_path / f'{name}.csv')] == expected
    for content in (path.read_bytes(), table.to_json(orient='records', lines=True).encode()):
        stdin = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr(sys, 'stdin', stdin)
        out = tmp_path / f'{len(content)}.csv'
        ran('predict.py', folder, '-', f'--out={out}')
        assert [row['predicted'] for row in read_csv(out)] == expected
    assert not list(tmp_path.glob('.*.input*'))


def test_no_character_of_a_text_ends_its_row(tmp_path):
    rows = [{'text': text, 'number': k} for k, text in enumerate(('a\rb', 'c\r\nd', 'e"\n', ' ', '\r'))]
    path = tmp_path / 'one.csv'
    path.write_bytes(table_writer.csv_of(rows, ['text', 'number'], has_header=True).encode())
    assert pandas.read_csv(path, lineterminator='\n').to_dict('records') == rows
    assert read_csv(path) == [row | {'number': str(row['number'])} for row in rows]


def test_scores_by_label_and_confusions_are_scikit_learns(kept, tmp_path):
    """Rows without a label, and of one that the model does not know, do no harm."""
    folder, run, data = kept('SC')
    rows = read_rows(data / 'test.jsonl')
    rows[5]['label'] = None
    rows[6]['label'] = ''
    rows[7]['label'] = 'green'
    jsonl(tmp_path / 'new.jsonl', rows)
    printed = ran('predict.py', folder, tmp_path / 'new.jsonl', f'--out={tmp_path}/out.jsonl').stdout
    scored = [row for row in read_rows(tmp_path / 'out.jsonl') if row['label']]
    gold = [row['label'] for row in scored]
    answers = [row['predicted'] for row in scored]
    report = classification_report(gold, answers, output_dict=True, zero_division=0)
    lines = [line.split() for line in printed.splitlines()]
    for label in ('blue', 'red', 'green'):
        expected = [f'{100 * report[label][name]:.1f}' for name in ('precision', 'recall', 'f1-score')]
        assert [label, *expected, str(int(report[label]['support']))] in lines
    counts = confusion_matrix(gold, answers, labels=['blue', 'green', 'red'])
    answered = sorted({*answers})
    for label, row in zip(('blue', 'green', 'red'), counts):
        shown = [str(count) for name, count in zip(('blue', 'green', 'red'), row) if name in answered]
        assert [label, *shown] in lines
    assert f'{np.trace(counts)} of 38 rows that have labels are right' in printed


def test_of_many_labels_the_most_frequent_confusions_are_listed(capsys):
    names = [f'label{k:02}' for k in range(20)]
    scores = LabelScores()
    for k, gold in enumerate(names):
        for predicted in (gold, *[names[k - 1]] * k):
            scores.add_one(gold, predicted)
    scores.print(names, unit='rows')
    *_, heads, first, second = capsys.readouterr().out.splitlines()[:-10]
    assert heads.split() == ['label', 'predicted', 'count']
    assert first.split() == ['label19', 'label18', '19']
    assert second.split() == ['label18', 'label17', '18']


def test_a_plain_text_is_split_into_words(kept, tmp_path):
    folder, _, _ = kept('TC')
    (tmp_path / 'new.csv').write_text('text\nthe array of Rome\n""\n[1]\n')
    ran('predict.py', folder, tmp_path / 'new.csv', f'--out={tmp_path}/tags.csv')
    assert [len(json.loads(row['predicted'])) for row in read_csv(tmp_path / 'tags.csv')] == [4, 1, 1]


@pytest.mark.parametrize('kind, column, names', [
    ('ML', 'label', ['blue', 'red']), ('TC', 'tags', ['B-LOC', 'O'])])
def test_lists_in_a_csv_are_read_and_scored_as_in_a_jsonl(kind, column, names, kept, tmp_path):
    folder, _, data = kept(kind)
    printed = ran('predict.py', folder, data / 'test.jsonl', f'--out={tmp_path}/one.csv').stdout
    rows = read_csv(tmp_path / 'one.csv')
    golds = [json.loads(row[column]) for row in rows]
    answers = [json.loads(row['predicted']) for row in rows]
    if kind == 'TC':
        golds, answers = ([[tag] for tags in lists for tag in tags] for lists in (golds, answers))
    binarizer = MultiLabelBinarizer(classes=names)
    report = classification_report(binarizer.fit_transform(golds), binarizer.transform(answers),
                                   target_names=names, output_dict=True, zero_division=0)
    lines = [line.split() for line in printed.splitlines()]
    for label in names:
        expected = [f'{100 * report[label][name]:.1f}' for name in ('precision', 'recall', 'f1-score')]
        assert [label, *expected, str(int(report[label]['support']))] in lines

    table = pandas.DataFrame(rows)
    answers = [*table['predicted']]
    table = table[[*read_rows(data / 'test.jsonl')[0]]]
    table.to_csv(tmp_path / 'new.csv', index=False)
    again = ran('predict.py', folder, tmp_path / 'new.csv', f'--out={tmp_path}/two.csv').stdout
    assert again.splitlines()[1:] == printed.splitlines()[1:]
    assert [row['predicted'] for row in read_csv(tmp_path / 'two.csv')] == answers
    table.assign(**{column: 'red;blue'}).to_csv(tmp_path / 'plain.csv', index=False)
    result = ran('predict.py', folder, tmp_path / 'plain.csv', f'--out={tmp_path}/three.csv')
    assert f'{len(rows)} rows are not scored' in result.stderr


def test_what_stands_for_no_label_is_not_taken_for_a_new_row():
    """A 0 stands in the place of the number that a new row lacks, and here it is in `unlabelled`, too."""
    task = Task(kind='SC', dataset='x', data='y', metric='Pearson', unlabelled=(0,))
    assert predict.Reader(kind_of(task)).read({'text': 'a'}, 'row 1')['text'] == 'a'


BAD_ROWS = {
    '{"text": "a"}\n{"text": null}\n': "new.jsonl row 2: 'text' holds None, which is no text",
    '{"title": "a"}\n': "row 1: has no column 'text', but title$",
    '{"text": "a", "predicted": 1}\n': "has a column 'predicted' already",
    '{"text": "a", "p(red)": 1}\n': r"has a column 'p\(red\)' already",
    '\n': 'holds no row',
    'a\n': 'new.jsonl:1: is no JSON object'}


def test_mistakes_get_one_line(new, checkpoint, tmp_path):
    folder, path = new
    for content, words in BAD_ROWS.items():
        (tmp_path / 'new.jsonl').write_text(content)
        refused_line(words, 'predict.py', folder, tmp_path / 'new.jsonl', f'--out={tmp_path}/labels.csv')
    out = f'--out={tmp_path}/x.csv'
    refused_line('random: no fine-tuned model .* --save_model', 'predict.py', checkpoint, path, out)
    refused_line('name the file to write, as --out=labels.csv', 'predict.py', folder, path)
    refused_line('is none of .jsonl, .* into a .csv', 'predict.py', folder, folder / 'config.json', out)
    refused_line('new.csv: is there already, and predict.py did not', 'predict.py', folder, path,
                 f'--out={path}')
    refused_line('documents: a model of retrieval', 'predict.py', folder, path, out, '--documents=y')
