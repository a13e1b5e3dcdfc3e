"""examples/merge.py: means by hand, of other people's encoders with and without an output head."""
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from conftest import assert_near, open_whole, ran, refused_line
from nanoencoder.files import write_json
from peer_folders import small_config, word_pieces

SCRIPT = 'examples.merge'
WEIGHTS = 'model.safetensors'


def folder_of(path, family, auto_class, seed, **changes):
    config = small_config(family)
    for name, value in changes.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        getattr(transformers, auto_class).from_config(config).save_pretrained(path)
    word_pieces().save_pretrained(path)
    return path


@pytest.fixture
def before(tmp_path):
    """Of BERT's kind, without an output head."""
    return folder_of(tmp_path / 'before', 'bert', 'AutoModel', seed=0)


@pytest.fixture
def after(tmp_path):
    """The same with one, and with what may lie beside: a module, and what is of these weights alone."""
    folder = folder_of(tmp_path / 'after', 'bert', 'AutoModelForMaskedLM', seed=1)
    write_json(folder / 'modules.json', [{'idx': 0, 'name': '0', 'path': '', 'type': 'Transformer'}])
    (folder / '2_Dense').mkdir()
    save_file({'linear.weight': torch.eye(2)}, folder / '2_Dense' / WEIGHTS)
    (folder / 'README.md').write_text('by its author')
    (folder / 'run.json').write_text('{}')
    (folder / 'optimizer.json').write_text('{}')
    return folder


@pytest.mark.parametrize('share', [0, 0.25, 1])
def test_an_encoder_with_a_head_is_merged_with_one_without(share, before, after, tmp_path):
    result = ran(SCRIPT, after, before, tmp_path / 'merged', f'--share={share}')
    old, new, ours = (load_file(folder / WEIGHTS) for folder in (before, after, tmp_path / 'merged'))
    assert ours.keys() == new.keys()
    num_merged = 0
    for name, weight in ours.items():
        plain = name.removeprefix('bert.')
        if plain in old:
            num_merged += 1
            assert_near(weight, (1 - share) * new[name] + share * old[plain], 1e-7)
            if share in (0, 1):
                assert torch.equal(weight, (new[name], old[plain])[share])
        else:
            assert name.startswith('cls.')
            assert torch.equal(weight, new[name])
    assert num_merged == len([name for name in old if not name.startswith('pooler.')])
    assert 'has no cls.' in result.stdout
    open_whole(transformers.AutoModelForMaskedLM, tmp_path / 'merged')
    for name in ('README.md', 'tokenizer.json', 'modules.json', f'2_Dense/{WEIGHTS}'):
        assert (tmp_path / 'merged' / name).read_bytes() == (after / name).read_bytes()
    for name in ('run.json', 'optimizer.json'):     # of other weights
        assert not (tmp_path / 'merged' / name).exists()


def test_two_of_modernberts_kind_are_merged_with_their_heads(tmp_path):
    one, other = (
        folder_of(tmp_path / str(seed), 'modernbert', 'AutoModelForMaskedLM', seed) for seed in (0, 1))
    result = ran(SCRIPT, one, other, tmp_path / 'merged')
    first, second, ours = (load_file(folder / WEIGHTS) for folder in (one, other, tmp_path / 'merged'))
    for name, weight in ours.items():
        assert_near(weight, (first[name] + second[name]) / 2, 1e-7)
    assert 'has no' not in result.stdout


@pytest.mark.parametrize('changes, words', [
    ({'num_hidden_layers': 1}, r'bert.encoder.layer.1\S+ is not in the second'),
    ({'num_hidden_layers': 3}, r'encoder.layer.2\S+ of the second is not in the first'),
    ({'max_position_embeddings': 140}, r'has other sizes in the second: \[140, 32\], and not \[130, 32\]')])
def test_another_architecture_is_refused(changes, words, after, tmp_path):
    other = folder_of(tmp_path / 'other', 'bert', 'AutoModel', seed=0, **changes)
    refused_line(words, SCRIPT, after, other, tmp_path / 'merged')
    assert not (tmp_path / 'merged').exists()


def test_what_is_there_is_not_overwritten(before, after):
    refused_line('is there already', SCRIPT, after, before, after)
    shutil.rmtree(before)
    refused_line('before', SCRIPT, after, before, after.parent / 'merged')
