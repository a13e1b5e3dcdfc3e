"""Show results in the format of the paper's authors by the paper's protocol, beside its tables.

    python studies/paper/results.py RESULTS table --published
    python studies/paper/results.py RESULTS figure share

RESULTS/<model>/<TASK>/<dataset>/lr1e-04_sd0/results.json holds {"validation": {"score": 0.9, "scores_i":
[..]}, "test": ...}; retrieval has its training set before the learning rate. It is only read."""
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root, where evaluate.py is

from nanoencoder.files import read_json
from nanoencoder.predictions import SCORED, find_folders
from nanoencoder.settings import run_main, split_words
from studies.packs import evaluate_command


def find_results(root):
    """Yield (folder, {}, a function that returns its scores) of each run, as evaluate.find_runs does. There
    is no run.json."""
    for folder in find_folders(root):
        yield folder, {}, functools.partial(read_results, folder / 'results.json')


def read_results(path):
    content = read_json(path)
    scores = {}
    for split in SCORED:
        if not {'score', 'scores_i'} <= {*content.get(split, ())}:
            raise ValueError(f'{path}: lacks "score" or "scores_i" of {split}')
        scores[split] = {'paper': content[split], 'standard': {'columns': [content[split]['scores_i']]}}
    return scores


def main():
    words, options = split_words(sys.argv[1:])
    evaluate_command(words, options, find_results, protocol='paper')     # no instances to resample


if __name__ == '__main__':
    run_main(main)
