"""Scores of fine-tuned models -> intervals -> tables and figures. Needs no torch.

    python evaluate.py table                    # all of predictions/: mean, 95 % interval, n, seeds
    python evaluate.py table --protocol=paper --published       # by the paper's rules, its tables beside
    python evaluate.py compare mlm-1800 clm25-mlm-1800          # paired tests of the second against the first
    python evaluate.py figure share             # or ratio, rate, steps, tokens, flops, cpt
    python evaluate.py losses out/clm25-mlm-1800-s6 out/mlm-1800-s6   # of pretraining; and figures/losses.png
    python evaluate.py pack studies/small       # its runs and out in tables that are small enough for git
    python evaluate.py report configs/studies/demo.py           # a study's contrasts, judged"""
import dataclasses
import itertools
import math
import sys
from pathlib import Path

from nanoencoder.judging import figures, losses, paper
from nanoencoder.judging.metrics import KINDS
from nanoencoder.judging.predictions import pack, read_runs
from nanoencoder.judging.statistics import SCORED, Cell, estimate, grouped, lr_text, make_cells
from nanoencoder.settings import check, check_value, parse, run_main, setting

NOTES = {
    'standard': """\
Mean over seeds at the learning rate that is best on the other split; 95 % over instances and seeds.
Seeds 6 x 3: six pretrainings, each the mean of three fine-tunings. Seeds 3: three fine-tunings of one model.
Intervals are of one model: `compare` tests differences.""",
    'paper': """\
Protocol "paper": the learning rate of each seed by its own validation score; 1.96 s / sqrt(seeds). TC is the
mean over sentences of a macro F1 over word labels, "O" included: not comparable with entity F1."""}


CONSTANT = '0 whatever is drawn: it predicts the same for every instance, or nothing that is right'


@dataclasses.dataclass(frozen=True)
class Settings:
    predictions: str = 'predictions'    # folder that finetune.py writes
    results: str = ''                   # folder of scores in the authors' format; only read
    protocol: str = setting('standard', choices=(*NOTES,))   # standard, or paper: the authors'
    models: tuple = ()                  # only these, in this order
    datasets: tuple = ()                # only these
    published: bool = False             # the paper's numbers beside ours
    format: str = setting('text', choices=('text', 'markdown', 'csv'))  # of a table: text, markdown, csv
    split: str = setting('test', choices=(*SCORED, 'both'))     # scored at the rate that the other one chose
    resamples: int = setting(10_000, 100, 10 ** 6)  # of the bootstrap
    seed: int = setting(0, low=0)       # of the bootstrap
    rules: int = setting(2, 1, 2)       # 1: draws Student's t at random, as studies that were frozen so
    beside: str = ''                    # of losses: a losses.csv that has seeds of this run's row
    out: str = 'figures'                # folder of figures

    def __post_init__(self):
        check(self)
        if self.protocol == 'paper' and self.split != 'test':
            raise ValueError(f"split {self.split}: the paper's protocol scores test alone")
        if self.protocol != 'paper' and self.results:
            raise ValueError("results of the authors have no instances to resample; take --protocol=paper")


def table(cfg, problems):
    """Print a table for each kind of task: a row a model, a column a dataset."""
    from nanoencoder.judging.report import markdown
    cells, folders = {}, [name for name in (cfg.predictions, cfg.results) if name]
    if not cfg.published or any(Path(name).exists() for name in folders):
        cells = make_cells(read_runs(cfg, problems), cfg, problems)
    if cfg.published and not any(paper.published(*key, cells) for key in cells):
        if cells:
            print(f"{' and '.join(folders)}: no model there is one of the paper's, whose tables stand alone; "
                  'leave out --published to see yours', file=sys.stderr)
        cells, cfg = published_cells(cfg), dataclasses.replace(cfg, published=False, protocol='paper')
    if not cells:
        raise ValueError('; '.join(problems))
    frame = frame_of(cells, cfg)
    for (_, dataset), rows in frame[frame['data'] != ''].groupby(['task', 'dataset']):
        if rows['column'].nunique() > 1:
            problems.append(f'{dataset}: its models were tested on different data, or by different metrics')
    if cfg.format == 'csv':
        return print(frame.drop(columns=['notes', 'column', 'shown']).to_csv(index=False), end='')
    for kind, rows in sorted(frame.groupby('task'), key=lambda group: [*KINDS].index(group[0])):
        about = rows[rows['dataset'] != 'Average'].groupby('model')[['notes', 'seeds', 'lr']]
        about = about.agg(lambda texts: '/'.join(sorted({*texts} - {''})))
        scores = rows.pivot(index='model', columns='column', values='shown')[rows['column'].unique()]
        shown = about.join(scores).loc[rows['model'].unique()].replace('', '-').fillna('-')
        shown = shown.drop(columns='notes' if {*shown['notes']} == {'-'} else [])
        print(shown.rename_axis(None).rename_axis(columns=kind).to_string() if cfg.format == 'text' else
              markdown([kind, *shown], shown.reset_index().values), end='\n\n')
    for (model, _, dataset), cell in cells.items():
        if is_constant(cell):
            print(f'{model} on {dataset}: {CONSTANT}')
    print(NOTES[cfg.protocol])
    print('a/b: datasets differ. data: the first digits of the sha256 of what was scored.'
          + '\nAfter the slash: the paper\'s appendix C.' * cfg.published)


def is_constant(cell):
    """Whether a score is 0 in all draws of instances and seeds, as with one answer to everything."""
    return cell.mean == cell.low == cell.high == 0


def published_cells(cfg):
    return {key: Cell(mean / 100, (mean - x) / 100, (mean + x) / 100, None, dict.fromkeys(range(5)))
            for key, (mean, x) in paper.numbers().items() if key[0] in (cfg.models or [key[0]])}


def frame_of(cells, cfg):
    """A row a cell: what a .csv says of it, then the `notes`, `column` and `shown` of a table."""
    import pandas
    rows = []
    for key, cell in cells.items():
        first = cell.runs[0] if cell.runs else None     # of an average, and of the paper's, there is none
        row = dict(zip(('model', 'task', 'dataset'), key), metric=first.metric if first else '')
        mean, low, high = (100 * x for x in (cell.mean, cell.low, cell.high))
        row |= {'mean': f'{mean:.4f}', 'low': f'{low:.4f}', 'high': f'{high:.4f}'}
        row |= {'n': first.n if first else '', 'seeds': cell.seeds}
        for name, text in (('lr', lr_text), ('method', str), ('weights', str), ('data', '{:.8}'.format)):
            row[name] = '/'.join(map(text, sorted({getattr(run, name) for run in cell.runs} - {'', 0})))
        half = f'{100 * (cell.high - cell.mean):.2f}' if len(cell.scores) > 1 else 'one seed'
        shown = f'{mean:.2f} ({half})' if cfg.protocol == 'paper' else f'{mean:.1f} [{low:.1f}, {high:.1f}]'
        row |= {'protocol': cfg.protocol, 'column': key[2], 'shown': shown,
                'notes': ', '.join(sorted({row['method'], row['weights']} - {'', 'fine-tuned', 'fp32'}))}
        if first:
            row['column'] += f' ({first.metric}, n={first.n:,}{row["data"] and ", data " + row["data"]})'
        if cfg.published:
            row['published'], row['published_ci95'] = published = paper.published(*key, cells) or ('', '')
            row['shown'] += ' / {:.2f} ({:.2f})'.format(*published) if published[0] else ''
        rows.append(row)
    return pandas.DataFrame(rows)


def compare(cfg, first, second, problems):
    """Paired tests: second - first on the same test instances, per dataset."""
    if cfg.protocol != 'standard' or cfg.published or cfg.models:
        raise ValueError('compare takes two models and standard scores: no --protocol, --published, --models')
    cfg = dataclasses.replace(cfg, models=(first, second))
    cells = make_cells(read_runs(cfg, problems), cfg, problems)
    if not (shared := [(task, dataset) for model, task, dataset in cells
                       if model == first and (second, task, dataset) in cells and dataset != 'Average']):
        raise ValueError('; '.join([f'{first} and {second} have no dataset in common', *problems]))
    print(f'{second} - {first}, in points: [over instances and seeds] (over seeds alone); p is two-sided')
    results = []
    for task, dataset in shared:
        a, b = cells[first, task, dataset], cells[second, task, dataset]
        try:
            results.append(result := estimate([[(1, b), (-1, a)]], cfg))
        except ValueError as error:
            problems.append(str(error))
            continue
        sign = '<=' if result.p == 2 / (cfg.resamples + 1) else '='     # the draws show no less
        mean, low, high, *of_seeds = (100 * x for x in result[:5])
        alone = '  ' if math.isnan(of_seeds[0]) else '({:+.1f}, {:+.1f})   '.format(*of_seeds)
        print(f'  {task} {dataset:<14} {100 * a.mean:6.1f} -> {100 * b.mean:6.1f}   {mean:+.1f} [{low:+.1f}, '
              f'{high:+.1f}] {alone}{"no p value" if result.p is None else f"p {sign} {result.p:.4f}"}   '
              f'n = {result.n:,}, {a.seeds} and {b.seeds} seeds')
        for model, cell in ((first, a), (second, b)):
            if is_constant(cell):
                print(f'    note: {model}: {CONSTANT}')
        if result.units and {*result.units} != a.scores.keys() | b.scores.keys():
            print(f'    note: the difference is of seeds {str([*result.units])[1:-1]}, which both have')
        before, after = (cell.runs[0].settings or {} for cell in (a, b))
        for name in sorted(before.keys() & after.keys() - {'lr', 'seed'}):
            if before[name] != after[name]:
                print(f'    note: {name} {before[name]} -> {after[name]}')
    if any(result.p is None for result in results):
        print('No p value with one seed of a model: another seed may turn the sign.')
    if any(result.unit == 'fine-tuning' for result in results):
        print('This speaks of these pretrained models: another pretraining may turn the sign.')


def points_of(cells, pretraining, lr, problems):
    """The points of nanoencoder/judging/figures.py: of a kind with several datasets, their average."""
    points = []
    several = {kind for kind in KINDS if len({key[2] for key in cells if key[1] == kind}) > 1}
    for model, kind in dict.fromkeys(key[:2] for key in cells):
        if kind in several and (model, kind, 'Average') not in cells:
            problems.append(f'{model} is left out, which lacks a dataset of {kind}: see --datasets')
    for (model, kind, dataset), cell in cells.items():
        if (dataset == 'Average') == (kind in several):
            about = pretraining[model] | {'finetuning_rate': lr}
            low, high = cell.low, cell.high
            if len(cell.scores) == 2:   # their range, for Student's t of two says next to nothing
                low, high = min(cell.scores.values()), max(cell.scores.values())
            points.append((model, about, kind, 100 * cell.mean, 100 * low, 100 * high))
    return points


def figure(cfg, name, problems):
    check_value('figure', str, name, choices=(*figures.AGAINST,))
    runs, pretraining = ([] if cfg.published else read_runs(cfg, problems)), paper.models()
    pretraining |= {run.model: run.pretraining for run in runs if run.pretraining}
    runs = [run for run in runs if run.model in pretraining]
    if name == 'rate':      # a score at each rate; other figures have the rate that the other split chose
        parts = grouped(runs, 'lr')
    else:
        parts = {None: runs}
    points = []
    for lr, part in parts.items():
        cells = published_cells(cfg) if cfg.published else make_cells(part, cfg, problems)
        points += points_of(cells, pretraining, lr, problems)
    print(figures.save(figures.against(name, points), Path(cfg.out, f'{name}.png')))


def main():
    words = list(itertools.takewhile(lambda word: not word.startswith('-'), sys.argv[1:]))
    cfg, _ = parse(Settings, [] if len(words) == 2 and words[0] == 'report' else sys.argv[1 + len(words):])
    problems = []   # in words: what is missing, while the rest goes on
    match words:
        case ['report', _]:     # its settings are the study's
            from nanoencoder.judging import report, studies  # of all commands, this one alone needs them
            study, _ = studies.load(sys.argv[2:])
            cfg = Settings(predictions=str(Path(study.folder, 'runs')), split='both', rules=study.rules)
            print(*report.write(study, read_runs(cfg, problems), cfg, problems), sep='\n')
        case ['table']:
            table(cfg, problems)
        case ['compare', first, second]:
            compare(cfg, first, second, problems)
        case ['figure', name]:
            figure(cfg, name, problems)
        case ['losses', *folders] if folders and not (cfg.beside and folders[1:]):
            losses.beside(cfg.beside, *folders) if cfg.beside else losses.show(folders, cfg.out)
        case ['pack', folder, *logs] if cfg == Settings():
            pack(folder, logs, cfg)
        case _:
            raise ValueError('the command is table, compare A B, figure NAME, losses FOLDERS, pack FOLDER '
                             'without settings, or report CONFIG; see --help')
    for problem in dict.fromkeys(problems):
        print(f'warning: {problem}', file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    run_main(main)
