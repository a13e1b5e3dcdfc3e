"""Write a model card again, with the scores of the model's predictions.

    python examples/model_card.py out/mlm-1800-s6
    python examples/model_card.py fine-tuned/mlm-1800-s6/TC/docs_tc/lr1e-03_sd0

The card is README.md of the run's newest checkpoint, or of the folder that is named. Scores and
intervals are those of `python evaluate.py table`, whose settings this takes, such as --split=both.
A README.md that somebody has edited stays as it is."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))     # the root, where evaluate.py is

import evaluate
from nanoencoder.card import CARD, write_card
from nanoencoder.huggingface import digest_of_weights, newest_checkpoint
from nanoencoder.settings import parse, run_main, split_words


def scores_of(folder, cfg):
    """Return the rows of evaluate.frame_of of what was predicted by a fine-tuned model, or by any that was
    fine-tuned from a checkpoint."""
    found = [*evaluate.find_runs(cfg.predictions)]
    if (folder / 'run.json').exists():
        found = [run for run in found if run[0].parts[-4:] == folder.parts[-4:]]
    else:
        digest = digest_of_weights(folder)
        found = [run for run in found if run[1].get('checkpoint') == digest]
    if not found:
        return []
    problems = []
    cells = evaluate.make_cells(evaluate.read_runs(cfg, problems, found), cfg, problems)
    of_datasets = {key: cell for key, cell in cells.items() if cell.runs}   # without their averages
    evaluate.warn(problems)
    return evaluate.frame_of(of_datasets, cfg).to_dict('records')


def main():
    words, options = split_words(sys.argv[1:])
    cfg, _ = parse(evaluate.Settings, options)
    if len(words) != 1:
        raise ValueError('name one folder: a checkpoint or a run, such as out/mlm-1800-s6')
    folder = newest_checkpoint(words[0]).absolute()     # whose name may be .
    scores = scores_of(folder, cfg)
    if not write_card(folder, scores=scores):
        raise ValueError(f'{folder / CARD}: somebody has edited it, so it stays; remove it to have a new one')
    print(f'{folder / CARD}: with {len(scores)} scores of {cfg.predictions}')


if __name__ == '__main__':
    run_main(main)
