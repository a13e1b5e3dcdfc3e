"""Other programs: what docs/texts.md says of how they open a checkpoint."""
import re
import shlex
from pathlib import Path

import pytest
import torch
import transformers

import hub_folders
from conftest import ROOT, assert_near, one_line_error, ran, run_script

TABLE = dict(re.findall(r'(?m)^\| ([\w-]+)[^|]* \| `((?:from|\.venv)[^`]+)` \|$',
                        (ROOT / 'docs/texts.md').read_text()))


def opened(program, folder):
    """What the Python of a row of the table makes of a folder."""
    names = {}
    exec(TABLE[program].replace('out/texts/12000', str(folder)), names)
    return names['model']


def words_of(program):
    """The command of a row of the table, without Python and the script."""
    return shlex.split(TABLE[program])[2:]


def test_the_lines_of_the_table_open_a_checkpoint(trained, tmp_path):
    cfg = trained(phases=(('mlm', 4),))
    folder = Path(cfg.out, cfg.name, '4')
    encoder = opened('transformers', folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ['the array of floats', 'a']
    vectors = opened('sentence-transformers', folder).encode(texts, convert_to_tensor=True)
    for text, vector in zip(texts, vectors):
        states = encoder(**tokenizer(text, return_tensors='pt')).last_hidden_state
        assert_near(vector, states[0].mean(0))
    likeliest, *_ = opened('the', folder)('the <|mask|> of floats')
    assert 0 < likeliest['score'] < 1


def test_the_line_of_a_decoder_makes_one(trained, tmp_path):
    cfg = trained(phases=(('clm', 4),))
    checkpoint, new = words_of('a')
    assert (checkpoint, new) == ('out/clm/3600', 'decoder')
    ran('examples.decoder_out', f'{cfg.out}/{cfg.name}/4', tmp_path / new)
    decoder = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / new)
    assert type(decoder) is transformers.LlamaForCausalLM


def test_export_names_packages_that_are_missing(trained, monkeypatch, tmp_path):
    from examples import export_onnx
    cfg = trained(phases=(('mlm', 4),))
    monkeypatch.setattr(export_onnx, 'find_spec', lambda name: name != 'onnxscript')
    result = run_script('examples.export_onnx', f'{cfg.out}/{cfg.name}', tmp_path / 'it.onnx')
    one_line_error(result, 'onnxscript is not installed: pip install onnx onnxscript onnxruntime')


def make_classifier(folder):
    config = transformers.BertConfig(vocab_size=320, hidden_size=48, intermediate_size=80,
                                     num_hidden_layers=2, num_attention_heads=6, num_labels=3)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['eurobert', 'qwen3', 'classifier'])
def test_an_export_gives_what_transformers_gives(kind, tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    if kind == 'classifier':
        make_classifier(tmp_path / kind)
        theirs = transformers.BertForSequenceClassification
    else:
        hub_folders.make(kind, tmp_path / kind)
        theirs = transformers.AutoModel
    *_, name = words_of('ONNX')
    printed = ran('examples.export_onnx', tmp_path / kind, tmp_path / name).stdout
    assert printed.count('from torch') == 3
    session = onnxruntime.InferenceSession(tmp_path / name)
    tokens = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])
    arrays = {'input_ids': tokens.numpy(), 'attention_mask': torch.ones_like(tokens).numpy()}
    values, = session.run(None, arrays)
    with torch.no_grad():
        expected = theirs.from_pretrained(tmp_path / kind).eval()(tokens)[0]
    assert_near(torch.from_numpy(values), expected)
