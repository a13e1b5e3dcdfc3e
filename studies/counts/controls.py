"""What of counted embeddings helps MLM: which token has which row, or their norms? Would a table of CLM do?

    python studies/counts/controls.py           # two seeds, half an hour of one core; again: goes on

MLM at the demo's size for 1,800 steps under AdamW, all weights random but the table of embeddings, to which
the output layer is tied:

    random          as ever
    counted         embedding_init = 'counts'
    dealt           the counted rows, each given to another token
    norms           random rows with the norms of the counted ones
    of CLM          the table that CLM of the same seed has after 1,800 steps

Writes studies/counts/controls.csv: the held-out MLM loss of each."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root, where pretrain.py is

import numpy as np
import torch
from safetensors.torch import load_file

import pretrain
from model import initial_weight
from nanoencoder.pretraining.counts import counted_embeddings
from nanoencoder.pretraining.log import read_log
from nanoencoder.settings import parse, run_main

FOLDER = Path(__file__).parent
TABLE = 'model.embed_tokens.weight'
SEEDS = 100, 101


def settings(seed, name, **more):
    words = {'name': f'{name}-s{seed}', 'out': FOLDER / 'out/controls', 'seed': seed, 'lr': 3e-3,
             'warmup_steps': 100, 'save_every': 0, 'phases': (('mlm', 1_800),)} | more
    options = [f'--{key}={value}' for key, value in words.items()]
    cfg, _ = parse(pretrain.Settings, ['configs/tiny.py', *options])
    return cfg


def random_table(corpus, cfg):
    shape = cfg.model.vocab_size, cfg.model.hidden_size
    return initial_weight(TABLE, shape, cfg.seed, cfg.initializer_range)


def counted(corpus, cfg):
    table = random_table(corpus, cfg)
    rows, has_one = counted_embeddings(corpus, cfg)
    table[has_one] = rows[has_one]
    return table


def dealt(corpus, cfg):
    table = counted(corpus, cfg)
    has_one = (table != random_table(corpus, cfg)).any(dim=1)
    order = np.random.default_rng(cfg.seed).permutation(int(has_one.sum()))
    table[has_one] = table[has_one][torch.from_numpy(order)]
    return table


def norms(corpus, cfg):
    table = random_table(corpus, cfg)
    wanted = counted(corpus, cfg).norm(dim=1, keepdim=True)
    return table * wanted / table.norm(dim=1, keepdim=True)


def of_clm(corpus, cfg):
    parent = settings(cfg.seed, 'clm', phases=(('clm', 1_800),))
    return load_file(Path(parent.out, parent.name, '1800/model.safetensors'))[TABLE]


TABLES = {'random': random_table, 'counted': counted, 'dealt': dealt, 'norms': norms, 'of CLM': of_clm}


def train_with(make_table, cfg):
    """Train a run whose first embeddings are those that make_table(corpus, cfg) returns, (V, d)."""
    @torch.no_grad()
    def start(cfg, corpus, world):
        model, wrapped, optimizer, state, how = pretrain.start_run(cfg, corpus, world)
        if state['step'] == 0:
            model.model.embed_tokens.weight.copy_(make_table(corpus, cfg))
        return model, wrapped, optimizer, state, how

    pretrain.train(cfg, start)


def main():
    import pandas
    lines = []
    for seed in SEEDS:
        pretrain.train(settings(seed, 'clm', phases=(('clm', 1_800),)))
        for name, make_table in TABLES.items():
            cfg = settings(seed, name.replace(' ', '-'))
            train_with(make_table, cfg)
            _, log = read_log(Path(cfg.out, cfg.name))
            for line in log:
                if 'val_mlm_loss' in line:
                    lines.append({'embeddings': name, 'seed': seed, 'step': line['step'],
                                  'held-out MLM loss': round(line['val_mlm_loss'], 6)})
    pandas.DataFrame(lines).to_csv(FOLDER / 'controls.csv', index=False)


if __name__ == '__main__':
    run_main(main)
