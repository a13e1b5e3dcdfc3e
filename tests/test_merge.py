"""examples/merge.py: means by hand, of other people's encoders with and without an output head."""
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from conftest import assert_near, open_whole, ran, refused_line
from examples import continue_encoder, merge
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
        model = getattr(transformers, auto_class).from_config(config)
        for parameter in model.parameters():    # gains and biases, too, which begin alike
            parameter.data.normal_()
        model.save_pretrained(path)
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
            assert_near(weight, (1 - share) * new[name] + share * old[plain], 1e-6)
            if share in (0, 1):
                assert torch.equal(weight, (new[name], old[plain])[share])
        else:
            assert name.startswith('cls.')
            assert torch.equal(weight, new[name])
    assert num_merged == len([name for name in old if not name.startswith('pooler.')])
    assert 'has no cls.' in result.stdout
    open_whole(transformers.AutoModelForMaskedLM, tmp_path / 'merged')
    assert (tmp_path / 'merged' / WEIGHTS).stat().st_mode == (after / 'config.json').stat().st_mode
    for name in ('README.md', 'tokenizer.json', 'modules.json', f'2_Dense/{WEIGHTS}'):
        assert (tmp_path / 'merged' / name).read_bytes() == (after / name).read_bytes()
    for name in ('run.json', 'optimizer.json'):     # of other weights
        assert not (tmp_path / 'merged' / name).exists()


@pytest.mark.parametrize('family', continue_encoder.FAMILIES)
@pytest.mark.parametrize('classes', [('AutoModelForMaskedLM', 'AutoModel'),
                                     ('AutoModel', 'AutoModelForMaskedLM')])
def test_of_each_family_what_both_have_is_merged(classes, family, tmp_path):
    """The judge of which weights these are is transformers' base_model."""
    one, other = (folder_of(tmp_path / name, family, name, seed) for seed, name in enumerate(classes))
    ran(SCRIPT, one, other, tmp_path / 'merged', '--share=0.25')
    first, second, ours = (
        getattr(transformers, name).from_pretrained(folder)
        for name, folder in ((classes[0], one), (classes[1], other), (classes[0], tmp_path / 'merged')))
    second = second.base_model.state_dict()
    first.base_model.load_state_dict({      # tied weights of the head move with it
        name: 0.75 * weight + 0.25 * second[name] if name in second and weight.is_floating_point() else weight
        for name, weight in first.base_model.state_dict().items()})
    expected = first.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    for name, weight in ours.state_dict().items():
        assert_near(weight, expected[name], 1e-6)


def test_two_of_modernberts_kind_are_merged_with_their_heads(tmp_path):
    one, other = (
        folder_of(tmp_path / str(seed), 'modernbert', 'AutoModelForMaskedLM', seed) for seed in (0, 1))
    result = ran(SCRIPT, one, other, tmp_path / 'merged')
    first, second, ours = (load_file(folder / WEIGHTS) for folder in (one, other, tmp_path / 'merged'))
    for name, weight in ours.items():
        assert_near(weight, (first[name] + second[name]) / 2, 1e-6)
    assert 'has no' not in result.stdout


@pytest.mark.parametrize('changes, words', [
    ({'num_hidden_layers': 1}, 'num_hidden_layers 1, and that of .* 2'),
    ({'num_hidden_layers': 3}, 'num_hidden_layers 3, and that of .* 2'),
    ({'num_attention_heads': 2}, 'num_attention_heads 2, and that of .* 4'),
    ({'hidden_act': 'relu'}, 'hidden_act'),
    ({'max_position_embeddings': 140}, r'has other sizes in the second: \[140, 32\], and not \[130, 32\]')])
def test_another_architecture_is_refused(changes, words, after, tmp_path):
    other = folder_of(tmp_path / 'other', 'bert', 'AutoModel', seed=0, **changes)
    refused_line(words, SCRIPT, after, other, tmp_path / 'merged')
    assert not (tmp_path / 'merged').exists()


def test_another_family_of_the_same_sizes_is_refused(after, tmp_path):
    other = folder_of(tmp_path / 'other', 'roberta', 'AutoModelForMaskedLM', seed=0)
    refused_line("model_type 'roberta', and that of .* 'bert'", SCRIPT, after, other, tmp_path / 'merged')


@pytest.mark.parametrize('change, words', [
    (lambda weights: weights.pop('encoder.layer.1.output.dense.bias'), 'layer.1.output.dense.bias is not in'),
    (lambda weights: weights.pop('embeddings.token_type_embeddings.weight'), 'token_type_embeddings.weight'),
    (lambda weights: weights.pop('embeddings.LayerNorm.bias'), 'embeddings.LayerNorm.bias is not in'),
    (lambda weights: weights.update({'encoder.layer.2.a': torch.ones(1)}), 'layer.2.a of the second is not')])
def test_a_weight_of_a_layer_that_one_lacks_is_named(change, words, before, after, tmp_path):
    weights = load_file(before / WEIGHTS)
    change(weights)
    save_file(weights, before / WEIGHTS)
    refused_line(words, SCRIPT, after, before, tmp_path / 'merged')


def test_damaged_weights_are_named(before, after, tmp_path):
    (before / WEIGHTS).write_bytes(b'version https://git-lfs.github.com/spec/v1')
    refused_line(f'{before / WEIGHTS}: missing, damaged', SCRIPT, after, before, tmp_path / 'merged')


def test_a_fine_tuned_model_is_merged_with_what_it_was_made_of(after, tmp_path):
    """Both have a prefix; the first has a pooler and positions that the second lacks."""
    tuned = folder_of(tmp_path / 'tuned', 'bert', 'AutoModelForSequenceClassification', seed=2)
    weights = load_file(tuned / WEIGHTS)
    save_file(weights | {'bert.embeddings.position_ids': torch.arange(130)}, tuned / WEIGHTS)
    (tuned / 'onnx').mkdir()
    (tuned / 'pytorch_model.bin').touch()
    result = ran(SCRIPT, tuned, after, tmp_path / 'merged')
    assert 'has no bert.pooler' in result.stdout
    merged, base = load_file(tmp_path / 'merged' / WEIGHTS), load_file(after / WEIGHTS)
    for name, weight in weights.items():
        if not name.startswith(('classifier', 'bert.pooler')):
            weight = (weight + base[name]) / 2
        assert_near(merged[name], weight, 1e-6)
    assert not (tmp_path / 'merged/onnx').exists()
    assert not (tmp_path / 'merged/pytorch_model.bin').exists()


def test_what_is_there_is_not_overwritten(before, after):
    refused_line('is there already', SCRIPT, after, before, after)
    shutil.rmtree(before)
    refused_line('before', SCRIPT, after, before, after.parent / 'merged')


@pytest.mark.parametrize('settings, kept', [
    ({'model_type': 'eurobert'}, []),       # of other people: it has learnt masks
    ({'model_type': 'eurobert', 'objective': 'mlm'}, []),
    ({'model_type': 'eurobert', 'objective': 'clm_some'}, [4]),
    ({'model_type': 'qwen3'}, [4])])
def test_the_masks_row_is_kept_where_the_second_never_saw_a_mask(settings, kept, tmp_path):
    for name, config in (('first', {'mask_token_id': 4}), ('second', settings)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / 'config.json', config)
    assert merge.unseen_rows(tmp_path / 'first', tmp_path / 'second') == kept
    weights = {'embed_tokens.weight': torch.zeros(6, 2), 'layers.0.bias': torch.zeros(2)}   # of a search
    others = {name: torch.ones_like(weight) for name, weight in weights.items()}
    merged, _ = merge.merge(weights, others, 0.5, kept)
    expected = torch.full((6, 2), 0.5)
    for row in kept:
        expected[row] = 0
    assert torch.equal(merged['embed_tokens.weight'], expected)
