"""Model cards: what they say of a checkpoint, and that nobody's own README.md is written again."""
import re
import shutil
from pathlib import Path

from huggingface_hub import ModelCard
from huggingface_hub.utils import validate_repo_id

import finetune
import pretrain
from conftest import edit, log_lines, one_line_error, ran, run_script
from nanoencoder import card, files, fine_tuned, huggingface, predictions
from nanoencoder.settings import flat, parse


def test_a_checkpoint_has_a_card_that_the_hub_library_reads(trained, tmp_path):
    cfg = trained(name='ours', save_at=(8,))
    run = tmp_path / 'out/ours'
    read = ModelCard.load(run / '12/README.md')
    last = log_lines(run)[-1]
    data = read.data
    assert (data.library_name, data.pipeline_tag, data.model_name) == ('transformers', 'fill-mask', 'ours')
    assert data.tags == ['nanoencoder', 'clm', 'mlm']
    assert data.base_model is data.datasets is data.license is None
    # which the library has checked and made objects of
    losses = {result.metric_type: result.metric_value for result in data.eval_results}
    assert losses == {f'{name.upper()} loss in nats, lower is better': last[f'val_{name}_loss']
                      for name in ('clm', 'mlm')}
    assert '| tokens read | 3,072 |' in read.text
    assert f'fingerprint `{data.corpus_fingerprint}`' in read.text
    assert str(tmp_path) not in read.content     # whoever uploads it shows nobody his folders
    assert 'step 8 of 12' in (run / '8/README.md').read_text()

    # its settings are the lines of a config
    lines = read.text.split('```python\n')[-1].split('```')[0]
    config = tmp_path / 'again.py'
    config.write_text(lines)
    again, _ = parse(pretrain.Settings, [str(config), '--name=ours'])
    same = {name: value for name, value in flat(again, ('results',)).items() if name != 'dtype'}
    assert same.items() <= flat(cfg).items()


def test_the_lines_of_a_card_open_it(trained, monkeypatch):
    cfg = trained()
    folder = Path(cfg.out, cfg.name, '12')
    lines = (folder / 'README.md').read_text().split('```python\n')[1].split('```')[0]
    monkeypatch.chdir(folder)
    opened = {}
    exec(lines, opened)
    assert opened['model'].config.architectures == ['EuroBertForMaskedLM']
    assert opened['tokenizer'].mask_token_id == opened['model'].config.mask_token_id


def test_an_edited_card_stays_and_stops_no_run(trained):
    cfg = trained(phases=(('mlm', 4),))
    folder = Path(cfg.out, cfg.name, '4')
    path = folder / 'README.md'
    assert card.write_card(folder)      # ours, unedited
    written = path.read_text()
    path.write_text(written.replace('# run', '# My encoder'))
    assert not card.write_card(folder)
    pretrain.train(cfg)
    assert '# My encoder' in path.read_text()
    path.unlink()
    pretrain.train(cfg)
    assert card.write_card(folder)
    assert path.read_text() == written


def test_a_card_takes_the_licence_of_its_base(trained, monkeypatch, tmp_path):
    base = trained(phases=(('mlm', 4),))
    folder = Path(base.out, base.name, '4')
    (folder / 'README.md').write_text('---\nlicense: mit\nlanguage: de\n---\nMine.\n')
    cfg = trained(name='next', phases=(('mlm', 4),), weights_from=str(folder))
    data = ModelCard.load(Path(cfg.out, 'next/4/README.md')).data
    assert (data.license, data.language, data.base_model) == ('mit', 'de', None)
    (folder / 'README.md').write_text('---\n[: no yaml\n---\n')
    assert card.taken_from(str(folder)) == card.taken_from(str(tmp_path / 'gone')) == {}
    # of the hub's models it names the id
    monkeypatch.setattr(card, 'saved_state', lambda path: state)
    state = files.saved_state(Path(cfg.out, 'next/4'))
    state['settings']['weights_from'] = 'acme/base@main'
    card.write_card(Path(cfg.out, 'next/4'))
    named = ModelCard.load(Path(cfg.out, 'next/4/README.md')).data.base_model
    assert named == 'acme/base'
    validate_repo_id(named)


def test_a_card_is_written_again_with_the_scores_of_predictions(trained, tmp_path):
    cfg = trained(phases=(('mlm', 4),))
    folder = Path(cfg.out, cfg.name, '4')
    for seed in (0, 1):
        for digest in (huggingface.digest_of_weights(folder), 'another'):
            rows = [{'id': k, 'gold': 'yes', 'pred': 'yes' if k % 4 else 'no'} for k in range(20)]
            about = {'method': 'fine-tuned', 'checkpoint': digest, 'weights': 'fp32', 'data': 'd'}
            run = tmp_path / f'predictions/{digest:.4}/SC/toy/lr1e-04_sd{seed}'
            predictions.write_run(run, about, dict.fromkeys(predictions.SCORED, rows))
    words = 'examples.model_card', cfg.out + '/run', f'--predictions={tmp_path}/predictions'
    assert 'with 1 scores' in ran(*words).stdout
    read = ModelCard.load(folder / 'README.md')
    *_, score = read.data.eval_results
    assert (score.task_type, score.dataset_name, score.metric_value) == ('text-classification', 'toy', 75)
    shown = r'\| toy \| fine-tuned \| accuracy \| 75.0 \[\d\d.\d, \d\d.\d\] \| 20 \| 2 \|'
    assert re.search(shown, read.text)
    edit(folder / 'README.md', '# run', '# My encoder')
    one_line_error(run_script(*words), 'edited')


def test_a_fine_tuned_model_has_a_card(prepared, checkpoint, monkeypatch, tmp_path):
    base_folder = shutil.copytree(checkpoint, tmp_path / 'base')
    (base_folder / 'README.md').write_text('---\nlicense: mit\n---\nMine.\n')
    cfg, base, data = prepared('SC', base_folder)
    encoder = finetune.new_encoder(cfg, base, finetune.new_head('text', 32, len(data.labels)))
    folder = tmp_path / 'fine-tuned/base/SC/toy/lr1e-04_sd0'
    fine_tuned.write_fine_tuned(cfg, base, data, encoder, folder)
    path = folder / 'README.md'
    written = path.read_text()
    read = ModelCard(written)
    assert (read.data.pipeline_tag, read.data.license) == ('text-classification', 'mit')
    assert ', '.join(data.labels) in read.text
    assert "metric = 'accuracy'" in read.text
    assert 'scale = ' not in read.text      # a setting of retrieval
    assert str(tmp_path) not in written
    monkeypatch.chdir(folder)
    opened = {}
    exec(read.text.split('```python\n')[1].split('```')[0], opened)
    assert type(opened['model']).__name__ == 'EuroBertForSequenceClassification'
    shutil.rmtree(base_folder)
    assert card.write_card(folder)      # what no other file says comes from the card
    assert path.read_text() == written
    fine_tuned.open_fine_tuned(folder)
    edit(path, '# base', '# Mine')
    fine_tuned.open_fine_tuned(folder)
    assert not card.write_card(folder)
