"""Make a decoder of transformers out of a checkpoint that ended with CLM, for `generate` or lm-eval.

    python examples/decoder_out.py out/clm/3600 decoder

First a checkpoint, or a run for its newest one, then a new folder. Weights stay as they are. config.json
names a class that reads from left to right, and tokenizer.json no longer ends a text with eos, since a prompt
goes on."""
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where nanoencoder/ is

from nanoencoder.files import read_json, write_json
from nanoencoder.huggingface import newest_checkpoint, read_prediction
from nanoencoder.settings import plain_words, run_main


def main():
    words = plain_words(sys.argv[1:])
    if len(words) != 2:
        print(__doc__.strip())
        sys.exit(2)
    checkpoint = newest_checkpoint(words[0])
    out = Path(words[1])
    objective, causal, _ = read_prediction(checkpoint)
    if not causal:
        raise ValueError(f'{checkpoint} ended with {objective}, which reads both sides: it cannot generate')
    if out.exists():
        raise ValueError(f'{out} is there already; give the name of a new folder')
    config = read_json(checkpoint / 'config.json')
    tokenizer = read_json(checkpoint / 'tokenizer.json')
    copytree(checkpoint, out, ignore=ignore_patterns('state.json', 'optimizer.*'))
    if config['model_type'] == 'qwen3':     # with norms of q and k a checkpoint is a Qwen3 already
        decoder = {'is_causal': True}
    else:
        decoder = {'model_type': 'llama', 'architectures': ['LlamaForCausalLM']}
    write_json(out / 'config.json', config | decoder)
    write_json(out / 'tokenizer.json', tokenizer | {'post_processor': None})
    print(f'{out}: a decoder, {decoder}')


if __name__ == '__main__':
    run_main(main)
