"""Export an encoder to ONNX, for any number of texts of any length, and compare it with torch.

    python examples/export_onnx.py out/mlm-1800-s6 encoder.onnx

First a folder that transformers opens (a checkpoint, a run, or a fine-tuned model), then a new file. It takes
input_ids and attention_mask, and gives last_hidden_state, or logits where the folder has a fine-tuned head.
This needs pip install ".[peers]" onnx onnxscript onnxruntime."""
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where nanoencoder/ is

import torch
from torch import nn

from nanoencoder.files import read_json
from nanoencoder.huggingface import newest_checkpoint
from nanoencoder.peers import import_transformers
from nanoencoder.settings import plain_words, run_main

PACKAGES = 'onnx', 'onnxscript', 'onnxruntime'   # beside torch's exporter
INPUTS = 'input_ids', 'attention_mask'
LENGTHS = 5, 17, 64     # in which the export is compared with torch
CLOSE = 1e-5


class Exported(nn.Module):
    """A model of transformers with two inputs and one output."""
    def __init__(self, model):
        super().__init__()
        self.model = model
        model.config.use_cache = False      # of a decoder, whose layers an encoder may have

    def forward(self, input_ids, attention_mask):
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return outputs[0]


def open_model(folder):
    """Return (the encoder in a folder, or with its fine-tuned head, the name of what it gives)."""
    transformers = import_transformers()
    architecture, *_ = read_json(folder / 'config.json')['architectures']
    if 'Classification' in architecture or 'QuestionAnswering' in architecture:
        return getattr(transformers, architecture).from_pretrained(folder), 'logits'
    return transformers.AutoModel.from_pretrained(folder), 'last_hidden_state'


def batch_of(length, num_texts, vocab_size):
    """Return random texts of so many tokens, of which the first has padding in its second half."""
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(vocab_size, (num_texts, length), generator=generator)
    attended = torch.ones_like(tokens)
    attended[0, (length + 1) // 2:] = 0
    return tokens, attended


def export(model, path, output):
    """Write the file. Both sizes of the inputs may vary."""
    varying = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    batch = batch_of(8, 2, model.model.config.vocab_size)
    torch.onnx.export(model, batch, path, dynamo=True, external_data=False, input_names=INPUTS,
                      output_names=[output], dynamic_shapes=dict.fromkeys(INPUTS, varying), verbose=False)


def compare(model, path, output):
    """Print how far ONNX and torch are apart. ValueError if it is more than rounding."""
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    for num_texts, length in enumerate(LENGTHS, 1):
        tokens, attended = batch_of(length, num_texts, model.model.config.vocab_size)
        with torch.no_grad():
            ours = model(tokens, attended)
        arrays = dict(zip(INPUTS, (tokens.numpy(), attended.numpy())))
        theirs = torch.from_numpy(session.run([output], arrays)[0])
        apart = (ours - theirs).abs()
        if ours.ndim == 3:
            apart = apart[attended > 0]     # whatever stands at padding is nobody's
        print(f'{path}: {num_texts} x {length} tokens: at most {apart.max():.0e} from torch')
        if not apart.max() <= CLOSE:
            raise ValueError(f'{path}: differs from torch by more than {CLOSE}; do not use it')


def main():
    words = plain_words(sys.argv[1:])
    if len(words) != 2:
        print(__doc__.strip())
        sys.exit(2)
    folder = newest_checkpoint(words[0])
    path = words[1]
    if Path(path).exists():
        raise ValueError(f'{path} is there already; give the name of a new file')
    for package in PACKAGES:
        if not find_spec(package):
            raise ValueError(f'{package} is not installed: pip install {" ".join(PACKAGES)}')
    model, output = open_model(folder)
    exported = Exported(model).eval()   # a new module is in training mode
    export(exported, path, output)
    compare(exported, path, output)


if __name__ == '__main__':
    run_main(main)
