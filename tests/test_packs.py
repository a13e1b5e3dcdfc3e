"""What is packed of a study is the same study; losses.csv; a run's losses beside those of earlier seeds."""
import csv
import shutil

import pytest

from answers import told
from conftest import ROOT, change, ran, refused_line, write_log
from nanoencoder.files import read_json, write_json
from studies import packs


@pytest.fixture
def study(rows, tmp_path):
    """The folder of a study with these rows."""
    (tmp_path / 'study').mkdir()
    return rows.rename(tmp_path / 'study/runs').parent


@pytest.mark.parametrize('words', [
    ['table', '--split=both'], ['table', '--protocol=paper'], ['compare', 'mlm', 'clm']])
def test_a_packed_study_is_the_same_study(study, words):
    """Each pack adds what is new; what was packed need not be there."""
    before = told(study / 'runs', *words)
    assert ran('studies.packs', study).stdout == f'{study}: 13 runs\n'
    files = {path: path.read_bytes() for path in (*study.glob('runs/*.gz'), *study.glob('*.*'))}
    assert sorted(path.name for path in files) == [
        'other.jsonl.gz', 's0.jsonl.gz', 's1.jsonl.gz', 's2.jsonl.gz', 'scores.csv', 'sha256.json']
    head, *lines = files[study / 'scores.csv'].decode().splitlines()
    assert head.split(',') == [*packs.COLUMNS]
    assert len(lines) == 13
    assert lines[3].startswith('clm,1,SC,toy,accuracy,1e-04,11,100,')
    assert lines[3].endswith(',clm-s1')
    for name in ('mlm-s0', 'clm-s0', 'untrained', 'clm-s1/SC/toy/lr1e-04_sd11'):
        shutil.rmtree(study / 'runs' / name)
    (study / 'sha256.json').unlink()    # as a pack that was killed leaves it
    packs.pack_study(study)
    assert all(path.read_bytes() == content for path, content in files.items())
    assert ran('studies.packs', study, *words, '--resamples=500').stdout == before


@pytest.mark.parametrize('order', [['mlm', 'clm'], ['clm', 'mlm']])
def test_models_stand_in_the_order_of_the_studys_rows(study, order):
    ran('studies.packs', study)
    write_json(study / 'rows.json', dict.fromkeys(order))
    lines = ran('studies.packs', study, 'table', '--format=csv').stdout.splitlines()[1:]
    models = dict.fromkeys(line.partition(',')[0] for line in lines)
    assert [model for model in models if model in order] == order
    assert [*models][0] == 'untrained'


def test_no_file_is_named_by_a_seed_that_leads_elsewhere(study):
    folder = next(study.glob('runs/clm-s1/*/*/*'))
    change(folder, pretraining={'row': 'clm', 'seed': '/../../../evil'})
    refused_line(f"{folder}: 's/../../../evil' must be the plain name", 'studies.packs', study)


@pytest.mark.parametrize('name', ['novels', 'small_tuning'])
def test_the_studies_in_git_are_packed_again_to_the_byte(name, tmp_path):
    folder = ROOT / 'studies' / name
    again = shutil.copytree(folder, tmp_path / name)
    packs.pack_study(again)
    for file in (*read_json(folder / 'sha256.json'), 'sha256.json'):
        assert (again / file).read_bytes() == (folder / file).read_bytes(), file


# ---------------------------------------------------------------------------
# Losses
def test_losses_of_a_study(study):
    """A line a validation: of a branch with its parent's. What was there stays, as an older file's flops."""
    out = study / 'out'
    write_log(out / 'clm', range(1, 13), 8.0)
    write_log(out / 'both', range(7, 13), 4.0, branch_from=f'{out}/clm/6', starts=[{'step': 6}])
    (out / 'clm/6').mkdir()
    path = study / 'losses.csv'
    path.write_text('folder,row,seed,step,tokens,flops,seconds,train_loss,val_mlm_loss\n'
                    'a-s0,a,0,4,32,1e9,1.5,5.000000,6.000000\n')
    packs.pack_study(study)
    with open(path) as file:
        old, *rows = csv.DictReader(file)
    assert (old['folder'], old['flops'], rows[0]['flops']) == ('a-s0', '1e9', '')
    assert [(row['folder'], row['step']) for row in rows] == [
        (name, step) for name in ('both', 'clm') for step in ('3', '6', '9', '12')]
    assert [row['val_mlm_loss'] for row in rows[1:4]] == ['7.940000', '3.910000', '3.880000']
    assert [rows[3][name] for name in ('row', 'seed', 'train_loss', 'tokens')] == ['r', '1', '5.000000', '96']
    before = path.read_bytes()
    shutil.rmtree(out / 'clm')     # a branch without its parent has its own lines, and is not packed again
    packs.pack_study(study)
    assert path.read_bytes() == before


def test_losses_beside_those_of_earlier_seeds(tmp_path):
    write_log(tmp_path / 'mlm', range(1, 13), 5.0)
    past = tmp_path / 'past.csv'
    text = 'row,seed,step,tokens,val_mlm_loss\nr,1,3,24,5.0\nr,0,3,24,5.2\nr,0,2,16,1.0\nother,0,6,48,1.0\n'
    past.write_text(text)
    words = 'studies.losses', tmp_path / 'mlm', past
    line, verdict = ran(*words).stdout.splitlines()
    assert verdict == 'within the noise of seeds: one seed cannot tell; a longer run might'
    assert line.split(': ')[1:] == [
        'held-out MLM loss 4.970; 2 seeds of r 5.100, sd 0.141', '-0.9 sd']
    past.write_text(text.replace('r,0,2,16', 'r,0,13,104'))
    assert ran(*words).stdout.endswith('no verdict: it has not come to the end\n')
    past.write_text(text.replace(',24,', ',12,'))   # of half the rows a step
    refused_line('mlm: has seen 24 tokens after 3 steps, r in .*past.csv 12: with another rows_per', *words)
    counted = text.replace('loss\n', 'loss,val_rows\n')
    past.write_text(counted.replace('.0\n', '.0,9\n').replace('.2\n', '.2,\n'))
    lines = tmp_path / 'mlm/log.jsonl'
    lines.write_text(lines.read_text().replace('"val_mlm_loss"', '"val_rows": 8, "val_mlm_loss"'))
    refused_line('mlm: its held-out losses are of val_rows = 8, those of r in .*past.csv of 9: give it',
                 *words)
    past.write_text(text.replace('r,', 'x,'))
    refused_line("has no row 'r' that was measured at steps", *words)
    write_json(tmp_path / 'rows.json', {'r': {'corpus fingerprint': 'e' * 64}})
    refused_line('mlm: its corpus has the fingerprint ffffffff, and that of r in .*past.csv eeeeeeee', *words)
