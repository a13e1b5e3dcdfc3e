"""An ablation: the study that its words ask for, how long it takes, its verdict, and what more seeds cost."""
import gzip
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from pytest import approx

import finetune
import recompute
from conftest import ROOT, edit, refused
from nanoencoder.files import json_lines, sha256, write_json
from nanoencoder.settings import read
from studies import ablate, report, run, timing
from studies.study import Study, load

WORDS = ['configs/tiny.py', '--change=mask_ratio=0.3', '--change=clm lr=2e-3', '--seeds=0,1,2,3',
         '--phases=("mlm", 400)', '--tasks=docs_tc', '--name=toy']


def settings_of(words=WORDS):
    _, settings, _ = ablate.read_words(words)
    return settings


def test_the_study_that_words_ask_for():
    settings = settings_of()
    assert settings['runs'] == {'base': {}, 'mask_ratio=0.3': {'mask_ratio': 0.3},
                                'clm_lr=2e-3': {'phases': (('clm', 400),), 'lr': 2e-3}}
    assert settings['every_run'] == {'config': 'configs/tiny.py', 'phases': (('mlm', 400),), 'val_every': 80}
    study = Study(**settings)
    ablate.check_arms(study)
    assert study.rows['clm_lr=2e-3'].phases == ['clm'] * 400
    assert len(study.comparisons) == 2
    name, *_ = ablate.read_words(WORDS[:3])
    assert name == 'tiny_mask_ratio=0.3_clm_lr=2e-3'


def test_large_models_are_fine_tuned_at_the_rates_of_finetune_py():
    rates = {}
    for config in ('tiny', 'try', 'small', '210m', 'decoder_to_encoder'):
        settings = settings_of([f'configs/{config}.py', '--change=lr=2e-3'])
        rates[config] = settings['every_task']['lrs']
    assert rates['tiny'] == rates['try'] == (1e-3, 2e-3, 4e-3)
    assert rates['small'] == rates['210m'] == rates['decoder_to_encoder'] == finetune.Settings.lrs
    assert settings_of([*WORDS, '--lrs=1e-4'])['every_task']['lrs'] == (1e-4,)


def test_an_objective_replaces_the_last_one():
    phases = ('clm', 140), ('mlm', 210)
    assert ablate.read_change('mntp', phases) == ('mntp', {'phases': (('clm', 140), ('mntp', 210))})
    _, settings = ablate.read_change('mntp phases=("mlm", 99)', phases)
    assert settings == {'phases': (('mntp', 99),)}


@pytest.mark.parametrize('change, words', [
    ('mntpp', "'mntpp' is no objective; the nearest is 'mntp'"),
    ('mask_ratoi=0.3', "unknown setting 'mask_ratoi'; the nearest is 'mask_ratio'"),
    ('mask_ratio=0.3', 'a --change is there twice'),
    ('mask_ratio=many', "--mask_ratio: 'many' is no float"),
    ('seed=3', "runs 'seed=3': seed is what a study gives each run"),
    ('mask_ratio=3', "runs 'mask_ratio=3': --mask_ratio: mask_ratio must be from 1e-09 to 1, not 3"),
    ('mask_ratio=0.4', 'mask_ratio=0.4: changes nothing, base has the same settings'),
    ('mask_ratio=0.30', 'mask_ratio=0.30: changes nothing, mask_ratio=0.3 has the same settings'),
    ('lr=1e-3 lr=2e-3', '--lr is set twice'),
    ('weights_from=base', 'begins with a model of base, which takes a study of your own')])
def test_a_wrong_change_is_one_line(change, words):
    def check():
        study = Study(**settings_of([*WORDS, f'--change={change}']))
        ablate.check_arms(study)
    refused(words, check)


@pytest.mark.parametrize('words, error', [
    ([WORDS[0]], 'name one config, and changes of it'), (WORDS[1:], 'name one config, and changes of it'),
    (['configs/try.py', *WORDS], 'name one config, and changes of it'),
    ([*WORDS[:-2], '--tasks=configs/tiny.py'], 'configs/tiny.py: is no task, which would name its `dataset`'),
    ([*WORDS[:-2], '--tasks=docs_tcc'], 'configs/tasks/docs_tcc.py: cannot read this config'),
    ([*WORDS, '--val_rows=0'], 'val_rows 0: an ablation compares held-out losses')])
def test_a_wrong_command_line_is_one_line(words, error):
    refused(error, ablate.read_words, words)


def test_the_same_words_go_on_more_seeds_are_added_and_others_are_refused(tmp_path):
    path = tmp_path / 'config.py'
    settings = settings_of()
    ablate.write_study(path, settings, ['these', 'words'])
    assert load([str(tmp_path)])[0].rows.keys() == settings['runs'].keys()
    ablate.write_study(path, settings, ['these', 'words'])
    more = settings | {'seeds': (0, 1, 2, 3, 4, 5)}
    ablate.write_study(path, more, ['more', 'words'])
    assert read(path)['seeds'][0] == (0, 1, 2, 3, 4, 5)
    refused('has other seeds than these words', ablate.write_study, path, settings, [])
    other = more | {'every_run': {'config': 'configs/try.py'}}
    refused('has other every_run than these words', ablate.write_study, path, other, [])


@pytest.mark.parametrize('old, new, names', [
    ('seeds = (0, 1, 2, 3)', 'seeds = 0', 'seeds'), ('finetuning_seeds = 1', '', 'finetuning_seeds'),
    ('title =', 'rules = 2\ntitle =', 'rules')])
def test_what_somebody_edited_is_not_overwritten(tmp_path, old, new, names):
    path = tmp_path / 'config.py'
    settings = settings_of()
    ablate.write_study(path, settings, ['words'])
    edit(path, old, new)
    refused(f'has other {names} than these words', ablate.write_study, path, settings, [])


def test_what_is_missing_is_written_but_not_downloaded(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(run, 'run_script', lambda *words: started.append(words))
    made_by = 'python examples/a.py && python examples/b.py --x=1'
    tasks = [SimpleNamespace(cfg=SimpleNamespace(data=str(path), made_by=made_by))
             for path in (tmp_path, tmp_path / 'missing')]
    ablate.make_missing(SimpleNamespace(finetunings=tasks, corpus={}, corpus_folder=''))
    assert started == [('examples/a.py',), ('examples/b.py', '--x=1')]

    monkeypatch.chdir(tmp_path)
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    study = Study(**settings_of(['configs/small.py', '--change=lr=2e-3']))
    refused('first run: python data.py configs/corpora/fineweb_edu_2b.py', ablate.make_missing, study)


# ---------------------------------------------------------------------------
# How long it takes


def test_a_trial_has_a_share_of_each_objective():
    cfg = SimpleNamespace(phases=(('clm', 140), ('mlm', 210)))
    short = timing.short_settings(cfg)
    assert short['phases'] == (('clm', 8), ('mlm', 12))
    assert (short['repeat'], short['val_every']) == (2, 20)


def test_hours_by_hand(tmp_path):
    """400 steps in 5 validations, and a grid of 3 rates; two at once."""
    study = Study(**settings_of())
    study.folder = tmp_path
    timed = {'base docs_tc': {'trial': 45.0, 'run': 20.0}}
    for arm, step in {'base': 0.1, 'mask_ratio=0.3': 0.1, 'clm_lr=2e-3': 0.2}.items():
        timed[arm] = {'trial': 14.0 + 40 * step, 'steps': 40, 'step': step, 'validation': 2.0}
        timed[f'{arm} docs_tc'] = timed['base docs_tc']
    blocks = run.missing_blocks(study, [*study.rows], study.seeds)
    assert {job.name: timing.seconds_of(job, study, timed) for job in blocks[0]} == approx({
        'baseline docs_tc': 5, 'base-s0': 60, 'mask_ratio=0.3-s0': 60, 'clm_lr=2e-3-s0': 100,
        'base-s0 docs_tc': 65, 'mask_ratio=0.3-s0 docs_tc': 65, 'clm_lr=2e-3-s0 docs_tc': 65,
        'untrained-s0 docs_tc': 65})
    # the two of 60, then the one of 100 and its fine-tuning, beside the two other fine-tunings
    assert timing.seconds_at_once(blocks[1], study, timed, 2) == approx(60 + 100 + 65)
    assert timing.seconds_at_once(blocks[1], study, timed, 99) == approx(100 + 65)
    # of the first seed also the simple method at the beginning, and new weights after all pretrainings
    assert timing.seconds_at_once(blocks[0], study, timed, 99) == approx(100 + 65)


def test_a_pace_by_hand(monkeypatch):
    """2,000 tokens a step. Twenty steps warm up at 1,000 a second, which is 40 s, and twenty take half of a
    second each. Between them are 3 s."""
    lines = [{'seconds': 2.0 * k, 'tokens_per_second': 1_000} for k in range(1, 21)]
    lines += [{'seconds': 43 + 0.5 * k, 'tokens_per_second': 4_000} for k in range(1, 21)]
    monkeypatch.setattr(timing, 'read_log', lambda folder: ({}, lines))
    cfg = SimpleNamespace(rows_per_step=2, context=1_000)
    assert timing.pace('', cfg) == approx({'steps': 40, 'step': 0.5, 'validation': 3.0})


def test_a_fine_tuning_lasts_from_the_end_of_the_one_before(tmp_path):
    for number, written in enumerate((1_000, 1_025)):
        path = tmp_path / f'TC/docs_tc/lr1e-03_sd{number}/run.json'
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (written, written))
    assert timing.seconds_of_second(tmp_path, 'docs_tc') == 25


def test_arms_of_other_sizes_are_fine_tuned_to_time_them(tmp_path):
    """Arms of the same sizes share what was timed."""
    study = Study(**settings_of([*WORDS, '--change=num_hidden_layers=4']))
    names = [job.name for job in timing.trials(study, tmp_path)]
    assert names == ['base', 'base docs_tc', 'mask_ratio=0.3', 'clm_lr=2e-3', 'num_hidden_layers=4',
                     'num_hidden_layers=4 docs_tc']


# ---------------------------------------------------------------------------
# The verdict

N = 150     # instances of a split
GAINS = {'base': 0.0, 'mask_ratio=0.3': 0.16, 'clm_lr=2e-3': 0.0, 'untrained': -0.3}


@pytest.fixture
def packed(tmp_path):
    """The folder of the study with made-up scores, as packs.py packs them."""
    settings = settings_of() | {'finetuning_seeds': 1, 'every_task': {'models': ('*',), 'lrs': (1e-3,)}}
    ablate.write_study(tmp_path / 'config.py', settings, ['words'])
    draw = np.random.default_rng(2)
    ease = draw.random(N)       # of each instance, the same for all models
    lines = []
    losses = ['folder,row,seed,step,tokens,val_mlm_loss,val_clm_loss']
    for arm, gain in GAINS.items():
        seeds = [0] if arm == 'untrained' else settings['seeds']
        for seed in seeds:
            chance = 0.2 + 0.5 * ease + gain + draw.normal(0, 0.01)
            scores = {split: split_scores(draw.random(N) < chance) for split in ('validation', 'test')}
            about = {'method': 'fine-tuned', 'weights': 'fp32', 'data': 'docs_tc'}
            folder = arm
            if arm != 'untrained':
                about['pretraining'] = {'row': arm, 'seed': seed}
                folder = f'{arm}-s{seed}'
                for step in (80, 400):
                    losses.append(f'{folder},{arm},{seed},{step},{step * 1024},{7 - step / 400 - gain},7.0')
            lines.append({'run': f'{folder}/TC/docs_tc/lr1e-03_sd{10 * seed}', 'about': about,
                          'scores': scores | {'name': 'entity F1'}})
    (tmp_path / 'runs').mkdir()
    with gzip.open(tmp_path / 'runs/s0.jsonl.gz', 'wt') as file:
        file.write(json_lines(lines))
    (tmp_path / 'losses.csv').write_text('\n'.join(losses) + '\n')
    write_json(tmp_path / 'sha256.json', {
        name: sha256(tmp_path / name) for name in ('runs/s0.jsonl.gz', 'losses.csv')})
    return tmp_path


def split_scores(right):
    standard = {'score': right.mean(), 'ids': 7, 'statistic': 'mean', 'columns': [right.astype(int).tolist()]}
    return json.loads(json.dumps({'paper': {'score': right.mean()}, 'standard': standard}))


def test_a_verdict_in_words_with_a_picture_and_recomputed(packed, capsys):
    study, _ = load([str(packed)])
    ablate.print_verdicts(report.Evidence(study), 60.0)
    text = capsys.readouterr().out
    assert 'mask_ratio=0.3 against base: better. +' in text
    assert 'clm_lr=2e-3 against base: cannot tell. ' in text
    assert 'held-out mlm loss: 6.000 of base, 5.840 of mask_ratio=0.3, difference -0.160' in text
    assert 'held-out losses of base and clm_lr=2e-3 are of different objectives' in text
    assert (packed / 'ablation.png').stat().st_size > 5_000
    report.write_report(report.Evidence(study))
    assert recompute.main(packed) == 0


def test_held_out_losses_of_other_tokens_are_not_compared(packed):
    study, _ = load([str(packed)])
    evidence = report.Evidence(study)
    evidence.losses['val_mlm_targets'] = 13_075
    assert 'difference -0.160' in ablate.losses_in_words(evidence, 'mask_ratio=0.3')
    evidence.losses.loc[evidence.losses['row'] == 'base', 'val_mlm_targets'] = 6_000
    assert 'are of different tokens' in ablate.losses_in_words(evidence, 'mask_ratio=0.3')


def test_each_arm_has_a_colour_of_its_own(packed):
    study, _ = load([str(packed)])
    drawn = ablate.draw(report.Evidence(study))
    colours = [handle.get_color() for handle in drawn.legends[0].legend_handles]
    assert len(colours) == len({*colours}) == 3


def test_three_seeds_say_what_a_fourth_costs(packed, capsys):
    study, _ = load([str(packed), '--seeds=(0, 1, 2)'])
    ablate.print_verdicts(report.Evidence(study), 60.0)
    text = capsys.readouterr().out
    assert text.count('cannot tell') == 2
    assert '1 more: 1 min, --seeds=0,1,2,3\n' in text


def test_seeds_that_decide_are_more_with_more_changes():
    """Of several changes each must show more."""
    noise = 1e-6, [([0.0, 0.01, 0.02, 0.03], 1e-6)]     # four seeds, whose standard deviation is 1.3 points
    needed = []
    for changes in (1, 5):
        study = SimpleNamespace(seeds=(0, 1, 2, 3), comparisons=[None] * changes)
        evidence = SimpleNamespace(study=study, least_seeds=4)
        words = ablate.seeds_in_words(evidence, SimpleNamespace(noise=noise, mean=0.0145), 60.0)
        count, = re.findall('and (.*) would decide', words)
        needed.append(int(count))
        assert f'{needed[-1] - 4} more: {needed[-1] - 4} min, --seeds=0,1,2,3,4,' in words
    # scipy's nct: a paired t test has a power of 0.78 with 8 seeds, 0.84 with 9; at p < 0.01 of 0.76 with 12
    first, with_five = needed
    assert first == 9
    assert with_five in (12, 13)
    for mean in (1e-5, 0.0):
        seen = SimpleNamespace(noise=noise, mean=mean)
        assert ablate.seeds_in_words(evidence, seen, 60.0).endswith('not even 100 would decide so small a '
                                                                    'difference on these test examples.')
    study.seeds = 0, 1
    assert '2 more: 2 min, --seeds=0,1,2,3' in ablate.seeds_in_words(evidence, seen, 60.0)
