"""examples/pairs.py: which pairs are made, by hand; what is held out; and the way to a search."""
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import assert_near, jsonl, ran, read_rows, refused_line
from examples import pairs
from german_texts import TEXTS
from nanoencoder.settings import parse

SCRIPT = 'examples.pairs'


def write_texts(folder, texts):
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def village(tmp_path, monkeypatch):
    """A folder of German texts, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / 'dorf', TEXTS)
    return tmp_path


def read(name):
    return read_rows(Path(f'suche/{name}.jsonl'))


def made_of(title, text, *kinds):
    """[(kind, query, document)] of one text."""
    passages = [pairs.Passage(str(k), *one) for k, one in enumerate(pairs.passages_of(title, text))]
    return [pair[:3] for pair in pairs.pairs_of(passages, kinds or tuple(pairs.KINDS))]


def test_pairs_of_a_german_text():
    assert made_of('', TEXTS['chronik/brunnen.txt'].split('Heute')[0]) == [
        ('heading', 'Der Brunnen auf dem Dorfplatz',
         'Der alte Brunnen wurde im Jahre 1784 aus rotem Sandstein gebaut. Drei Steinmetze arbeiteten einen '
         'ganzen Sommer daran, und die Gemeinde bezahlte sie mit Korn und Wein.'),
        ('sentence', 'Bis zum Jahre 1911 holten alle Familien ihr Wasser dort.',
         'Dann legte man Leitungen in die Häuser, und am Brunnen wurde es still.')]
    # the title stands before the headings of a Markdown file
    queries = [query for _, query, _ in made_of('', TEXTS['rezepte/brot.md'])]
    assert queries[:2] == ['Roggenbrot Zutaten', 'Roggenbrot Zubereitung']
    # an ordinal ends no sentence, and a greeting joins the first paragraph
    (_, query, _), = made_of('', 'Liebe Anna,\n\nwir fahren schon am 3. Mai mit der Bahn. '
                                 'Dein Bruder bleibt noch zwei Tage länger hier.')
    assert query == 'Liebe Anna, wir fahren schon am 3. Mai mit der Bahn.'


def test_pairs_of_a_japanese_text():
    first = '村の広場にある古い井戸は、赤い石で\n造られました。三人の石工がひと夏かけて働きました。'
    second = '今では旅人が水を飲みます。冬には管が凍らないように止められます。'
    passage = first.replace('\n', '')       # no space between lines, where there are none between words
    assert made_of('', f'広場の井戸\n\n{first}\n\n{second}') == [
        ('heading', '広場の井戸', passage),
        ('sentence', '今では旅人が水を飲みます。', '冬には管が凍らないように止められます。')]
    assert made_of('', f'{first}\n\n{second}', 'next') == [('next', passage, second)]


def test_a_heading_that_stands_twice_in_a_text_is_no_query():
    """It would have two answers, of which one counts."""
    text = '# Brot\n' + ''.join(
        f'\n## {heading}\n\n{what} werden gut miteinander vermengt und geknetet.\n'
        for heading, what in (('Teig', 'Mehl und Salz'), ('Teig', 'Hefe und Milch'), ('Guss', 'Ei und Rahm')))
    passages = [pairs.Passage(str(k), *one) for k, one in enumerate(pairs.passages_of('', text))]
    document = pairs.Document(text, passages)
    pairs.add_pairs([document], pairs.KINDS)
    assert [pair.query for pair in document.pairs] == ['Brot Guss']


def test_long_paragraphs_are_divided_at_sentences_and_nothing_is_lost():
    sentences = [f'Im Jahre {year} war die Ernte gut und der Winter kurz. ' for year in range(1800, 1900)]
    passages = [passage for _, passage in pairs.passages_of('', ''.join(sentences))]
    assert len(passages) > 3
    assert all(passage.endswith('kurz.') and len(passage) <= 1_200 for passage in passages)
    assert ' '.join(passages) == ''.join(sentences).strip()


def test_splits_share_no_text_and_no_passage_finds_itself(village):
    copy = TEXTS['chronik/muehle.txt'].replace('heißt', 'hieß').replace('Abel', 'Kain')
    write_texts(village / 'dorf', {'alt/muehle.txt': copy, 'alt/notizen.csv': 'a,b'})
    result = ran(SCRIPT, '--path=dorf', '--out=suche')
    assert 'dorf: 1 other files left out: alt/notizen.csv' in result.stderr
    assert '24 texts; 1 more are copies or near-copies' in result.stdout

    queries = {row['_id']: row['text'] for row in read('queries')}
    corpus = {row['_id']: row['text'] for row in read('corpus')}
    whole = {row['_id']: row['text'] for row in read('passages')}
    assert not {*queries.values()} & {*corpus.values()}
    held_out = []
    for split in ('validation', 'test'):
        lines = Path(f'suche/qrels/{split}.tsv').read_text().splitlines()[1:]
        held_out.append({line.split('#')[0] for line in lines})
        for line in lines:
            query, document, _ = line.split('\t')
            if queries[query].endswith('.'):    # a first sentence, and no heading
                assert queries[query] not in corpus[document]
    assert not held_out[0] & held_out[1]
    files = {file: ''.join(text for name, text in whole.items() if name.startswith(file + '#'))
             for file in held_out[0] | held_out[1]}
    trained = [row[side] for row in read('train') for side in ('query', 'positive')]
    for text in trained:
        assert not any(text in file for file in files.values())
    texts = trained + [*queries.values()]
    assert len({*texts}) == len(texts)


def test_titles_of_a_column(tmp_path):
    rows = [
        {'text': f'Der {k}. Bericht handelt von Regen und Wind. Im Tal blieb es trocken und warm.',
         'Titel': f'Wetter am {k}. Tag' if k else None}
        for k in range(3)]
    path = tmp_path / 'wetter.jsonl'
    jsonl(path, rows)
    cfg, _ = parse(pairs.Settings, [f'--path={path}', '--title=Titel', '--out=x'])
    titles = [title for title, _ in pairs.texts_of(path, cfg)]
    assert titles == ['', 'Wetter am 1. Tag', 'Wetter am 2. Tag']
    refused_line('no row has a text in the column --title=Tietel', SCRIPT, f'--path={path}', '--title=Tietel',
                 f'--out={tmp_path}/out')


def test_from_german_texts_to_a_search(village, checkpoint):
    """As the printed commands say, with a small random encoder. sentence-transformers judges the vectors."""
    from sentence_transformers import SentenceTransformer

    from nanoencoder.fine_tuned import open_fine_tuned
    from nanoencoder.tasks.heads import outputs
    from nanoencoder.tasks.kind import Example, framed
    result = ran(SCRIPT, '--path=dorf', '--out=suche', f'--model={checkpoint}')
    for script in ('baselines.py', 'finetune.py', 'evaluate.py', 'predict.py', 'SentenceTransformer('):
        assert script in result.stdout
    ran('examples.baselines', 'suche/task.py')
    task = 'suche/task.py', f'--model={checkpoint}', '--device=cpu'
    ran('finetune.py', *task, '--lr=5e-5', '--steps=3', '--save_model')
    table = ran('evaluate.py', 'table', '--datasets=suche').stdout
    assert 'BM25' in table and checkpoint.name in table

    folder = f'fine-tuned/{checkpoint.name}/IR/suche/lr5e-05_sd0'
    assert f"SentenceTransformer('{folder}')" in result.stdout
    # the model's card says how its documents are given
    command = re.search('`python predict.py FOLDER (.*?)`', Path(folder, 'README.md').read_text()).group(1)
    ran('predict.py', folder, *re.sub('queries|corpus', r'suche/\g<0>', command).split())
    assert len(read_rows(Path('found.jsonl'))) == len(read('queries'))

    passages = [row['text'] for row in read('passages')]
    theirs = SentenceTransformer(folder, device='cpu')
    model = open_fine_tuned(folder, 'cpu', 'fp32')
    examples = [
        Example(framed(model.tokenizer.encode(text), model.tokenizer, model.max_length)) for text in passages]
    cfg = SimpleNamespace(tokens_at_once=4_096)
    ours = np.array(outputs(cfg, model.world, model.encoder, examples, per_token=False))
    assert_near(theirs.encode_document(passages), ours)
    assert_near(theirs.encode(passages), ours)      # there are no prompts


@pytest.mark.parametrize('texts, words', [
    ({}, r'dorf: no text there \(.txt, .*, .md\); --path names the texts'),
    ({'a.txt': TEXTS['verein/chor.txt']}, '1 texts with pairs, of 1 texts and 0 copies; 10 are needed'),
    ({f'{k}.txt': TEXTS['verein/chor.txt'] for k in range(20)},
     '1 texts with pairs, of 1 texts and 19 copies; 10 are needed'),
    ({f'{k}.txt': f'Zeile {k}' for k in range(20)}, '0 texts with pairs, of 20 .* --txt=blank_lines')])
def test_what_makes_no_search_is_one_line(texts, words, tmp_path):
    folder = tmp_path / 'dorf'
    folder.mkdir()
    write_texts(folder, texts)
    refused_line(words, SCRIPT, f'--path={folder}', f'--out={tmp_path}/suche')
    assert not (tmp_path / 'suche').exists()


def test_settings_that_cannot_be_are_one_line(tmp_path):
    refused_line('path and out are both needed', SCRIPT)
    refused_line("kinds are of heading, sentence, next, not 'title'", SCRIPT, '--path=a', '--out=b',
                 '--kinds=title')
    refused_line('is there already: remove it', SCRIPT, '--path=a', f'--out={tmp_path}')
    refused_line('would lie among the texts', SCRIPT, f'--path={tmp_path}', f'--out={tmp_path}/suche')
    refused_line('a.csv: is a table; write it as .jsonl', SCRIPT, '--path=a.csv', f'--out={tmp_path}/suche')
    write_texts(tmp_path / 'dorf', TEXTS)
    refused_line('change hold_out: 0.01 leaves validation', SCRIPT, f'--path={tmp_path}/dorf',
                 f'--out={tmp_path}/suche', '--hold_out=0.01')


def test_a_text_in_one_line(tmp_path):
    """It is cut into texts, and these into passages."""
    line = ' '.join(str(number) for number in range(160_000))
    (tmp_path / 'a.txt').write_text(line)
    cfg, _ = parse(pairs.Settings, [f'--path={tmp_path}/a.txt', '--out=x'])
    (_, text), *others = pairs.texts_of(tmp_path / 'a.txt', cfg)
    assert len(others) > 30
    passages = [passage for _, passage in pairs.passages_of('', text)]
    assert len(passages) > 10
    assert max(map(len, passages)) <= 1_200
    assert {kind for kind, _, _ in made_of('', text)} == {'next'}
