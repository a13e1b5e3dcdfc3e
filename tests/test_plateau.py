"""MLM's plateau: what a run says of it while it trains, and what evaluate.py says afterwards."""
import math
from pathlib import Path

import numpy as np
import pytest

import pretrain
from conftest import log_lines, write_log
from data import OBJECTIVES, Corpus
from examples.whole_words import WHOLE_WORDS
from nanoencoder import figures
from nanoencoder.pretraining import plateau
from nanoencoder.pretraining.losses import print_losses
from nanoencoder.pretraining.plateau import Plateau, followed
from studies import waits


def lines_of(*losses, phase='mlm', first=1):
    return [{'step': step, 'phase': phase, 'loss': loss} for step, loss in enumerate(losses, first)]


def said(plateau, lines):
    """{step: what was said of it}"""
    news = {line['step']: plateau.follow(line) for line in lines}
    return {step: words for step, words in news.items() if words}


def test_the_end_by_hand():
    """After 100 losses of 6.4 nats, as frequencies give, 11 of 5 are enough: 39 * 6.4 + 55 < 305."""
    config = {'corpus_meta': {'unigram_loss': 6.4}}
    lines = lines_of(*[5.0] * 20, phase='clm') + lines_of(*[6.4] * 100, *[5.0] * 79, first=21)
    assert followed(config, lines).left == 131
    assert followed(config, lines[:130]).left is None
    assert followed({'corpus_meta': {'unigram_loss': None}}, lines).left is None


def test_a_run_that_stays_says_it_once_and_once_that_it_has_left():
    """Near is within 0.1 nats, from step 200 on. What a run said before it was stopped is not said again."""
    near = [6.45] * 300
    stays = said(Plateau(6.4), lines_of(*near))
    assert [*stays] == [200] and plateau.PAGE in stays[200] and '6.40 nats' in stays[200]
    leaves = said(Plateau(6.4), lines_of(*near, *[5.0] * 300))
    assert [*leaves] == [200, 313]      # 37 * 6.45 + 13 * 5 < 305
    assert '313' in leaves[313]
    config = {'corpus_meta': {'unigram_loss': 6.4}}
    assert not said(followed(config, lines_of(*near)), lines_of(*near, first=301))


def test_a_run_that_leaves_in_time_says_nothing():
    for losses in ([6.4] * 150 + [5.0] * 150, [8.0] * 300, [6.25] * 300):
        assert not said(Plateau(6.4), lines_of(*losses))
    assert not said(Plateau(6.4), lines_of(*[6.4] * 300, phase='clm'))
    assert not said(Plateau(None), lines_of(*[6.4] * 300))


def test_an_objective_that_a_script_adds_has_a_plateau_too(monkeypatch):
    near = lines_of(*[6.45] * 300, phase='whole_words')
    monkeypatch.delitem(OBJECTIVES, 'whole_words', raising=False)    # another test may have run the script
    assert not said(Plateau(6.4), near)     # a checkout that does not know it
    monkeypatch.setitem(OBJECTIVES, 'whole_words', WHOLE_WORDS)
    assert [*said(Plateau(6.4), near)] == [200]


def test_a_held_out_loss_counts_where_training_texts_are_harder():
    lines = lines_of(*[6.6] * 300)
    lines[249]['val_mlm_loss'] = 6.42
    assert [*said(Plateau(6.4), lines)] == [250]


def test_a_run_prints_two_guesses_and_names_the_page(settings, monkeypatch, capsys):
    """The loss of the frequencies by numpy alone: add-one counts of the first shard, without special tokens.
    With a learning rate of 0 nothing is learnt."""
    monkeypatch.setattr(plateau, 'WINDOW', 2)
    monkeypatch.setattr(plateau, 'LONG', 4)
    monkeypatch.setattr(plateau, 'NEAR', 3.0)
    cfg = settings(phases=(('clm', 2), ('mlm', 6)), lr=0.0)
    pretrain.train(cfg)
    printed = capsys.readouterr().out
    corpus = Corpus(cfg.corpus)
    train, held_out = (arrays[0].astype(int) for arrays, _ in corpus.streams.values())
    ordinary = np.setdiff1d(np.arange(4_096), corpus.meta['special_ids'])
    counts = np.bincount(train, minlength=4_096)[ordinary] + 1
    nats = -np.log(counts / counts.sum())
    weights = np.bincount(held_out, minlength=4_096)[ordinary]
    loss = np.average(nats, weights=weights)
    assert f'among 4,096 tokens: {math.log(4_096):.2f} nats' in printed
    assert f'frequencies: {loss:.2f}\n' in printed
    assert printed.count(plateau.PAGE) == 1
    after, _ = printed.split(plateau.PAGE)
    assert '6/8' in after and '7/8' not in after
    assert 'on its plateau' not in str(log_lines(Path(cfg.out, cfg.name)))


@pytest.mark.parametrize('loss, words', [(5.0, ['left', '50']), (6.4, ['not', '60'])])
def test_losses_says_when_a_run_left(loss, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(figures, 'curves', lambda *words: None)
    monkeypatch.setattr(figures, 'save_figure', lambda drawn, path: path)
    write_log(tmp_path / 'run', range(1, 61), 6.0, training=loss)
    write_log(tmp_path / 'short', range(1, 40), 6.0, training=loss)
    write_log(tmp_path / 'more', range(1, 61), 6.0, training=loss, weights_from='run')
    print_losses([tmp_path / name for name in ('run', 'short', 'more')], tmp_path)
    sentences = [line for line in capsys.readouterr().out.splitlines() if 'plateau' in line]
    assert len(sentences) == 1 and sentences[0].startswith('run: ')
    for word in words:
        assert word in sentences[0]


def test_waits_count_steps_of_mlm(tmp_path, monkeypatch):
    """Of each seed the last validation knows whether the plateau has ended."""
    (tmp_path / 'study').mkdir()
    (tmp_path / 'study/losses.csv').write_text(
        'row,seed,step,plateau\n'
        'both,0,300,\nboth,0,600,520\nboth,1,600,\nboth,2,300,\nboth,2,600,531\nmlm,0,600,9\n')
    monkeypatch.setattr(waits, 'STUDIES', tmp_path)
    assert waits.steps_on_plateau('study', 'both', 450) == ([70, 81], [150])
