"""Draw the pictures that explain, as .svg files beside this one.

    python docs/pictures/draw.py

What can be computed is: targets, cuts and masks by data.py, the learning rate by pretrain.py."""
import sys
from html import escape
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[2]))  # the root, where data.py is

import numpy as np

from data import NO_TARGET, OBJECTIVES, make_batch
from nanoencoder.figures import COLOURS
from nanoencoder.files import whole
from nanoencoder.settings import plain_words, run_main
from pretrain import Settings

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREEN = COLOURS['clm',], COLOURS['mlm',], COLOURS['clm', 'mlm']
LIGHT = {BLUE: '#d8e4f1', ORANGE: '#f8dfd6', GREEN: '#dcefe2'}
INK, GREY, PALE = '#222222', '#777777', '#eeeeee'
SENTENCE = ['we', 'return', 'the', 'sum', 'of', 'two', 'arrays', '.']
TEXT = ('returns the mean of the values along an axis . END a series is an array with labels for its rows , '
        'which need not be unique . END how').split()
MASK = 'MASK'
# of the made-up corpus: word number i of a text is token FIRST + i
END_ID, MASK_ID, FIRST = 0, 1, 2
RULES = SimpleNamespace(mask_ratio=0.4, mask_replace=(1, 0, 0), cut_rows=True, context=len(TEXT))


# ---------------------------------------------------------------------------
# Marks


def text(x, y, words, size=13, colour=INK, anchor='start', weight='normal', turn=0):
    turned = f' transform="rotate({turn} {x} {y})"' if turn else ''
    return (f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}"{turned}>{escape(words)}</text>')


def lines(x, y, *words, size=12, colour=INK, anchor='start'):
    """Lines of text below each other."""
    return [text(x, y + k * (size + 4), line, size, colour, anchor) for k, line in enumerate(words)]


def box(x, y, width, height, fill=PALE, edge='none', round=0):
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{edge}" '
            f'rx="{round}"/>')


def path(points, colour=INK, width=1.5, dash='', arrow=False):
    """A line through points [(x, y)], maybe with a head at its end."""
    shown = ' '.join(f'{x:g},{y:g}' for x, y in points)
    head = ' marker-end="url(#head)"' if arrow else ''
    dashes = f' stroke-dasharray="{dash}"' if dash else ''
    return (f'<polyline points="{shown}" fill="none" stroke="{colour}" stroke-width="{width}"'
            f'{dashes}{head}/>')


def arrow(x, y, to_x, to_y, colour=GREY):
    return path([(x, y), (to_x, to_y)], colour, arrow=True)


def write_svg(folder, name, width, height, parts):
    """Write a picture, and print its path. Parts may be lists of parts."""
    flat = []
    for part in parts:
        flat += part if isinstance(part, list) else [part]
    page = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 8 4 0 8z" fill="{GREY}"/></marker></defs>',
        box(0, 0, width, height, '#ffffff'), *flat, '</svg>\n']
    target = Path(folder, f'{name}.svg')
    with whole(target) as temporary:
        temporary.write_text('\n'.join(page), encoding='utf-8')
    print(target)


# ---------------------------------------------------------------------------
# Objectives: attention and targets


class Text:
    """Stands for a corpus of one stretch."""
    meta = {'special_ids': [END_ID, MASK_ID], 'mask_token_id': MASK_ID}

    def stretch(self, split, k, context):
        return np.array([END_ID if word == 'END' else FIRST + i for i, word in enumerate(TEXT)])


def word_of(token, words):
    """Return what a token stands for: '' for no target."""
    if token == NO_TARGET:
        return ''
    return {END_ID: 'END', MASK_ID: MASK}.get(token, words[token - FIRST])


def draw_objective(x, name, title, rule, colour, seed=0):
    """Draw who sees whom in SENTENCE, and what each position predicts."""
    objective = OBJECTIVES[name]
    tokens = np.arange(FIRST, FIRST + len(SENTENCE))
    random = np.random.default_rng(seed)
    inputs, targets = objective.make(tokens, [len(tokens)], random, Text, RULES)
    size = 24
    left, top = x + 62, 128
    yield text(x, 22, title, 15, colour, weight='bold')
    yield text(x, 42, rule, 12)
    for i, (token, target) in enumerate(zip(inputs, targets)):
        word = word_of(token, SENTENCE)
        weight = 'bold' if word == MASK else 'normal'
        yield text(left + i * size + 15, top - 8, word, 12, anchor='start', weight=weight, turn=-50)
        yield text(left - 8, top + i * size + 17, word, 12, anchor='end', weight=weight)
        for k in range(len(tokens)):
            sees = k <= i or not objective.causal
            yield box(left + k * size, top + i * size, size - 2, size - 2, colour if sees else PALE)
        if target != NO_TARGET:
            end = left + len(tokens) * size
            y = top + i * size
            yield arrow(end + 2, y + 12, end + 26, y + 12)
            yield text(end + 32, y + 17, word_of(target, SENTENCE), 12, colour, weight='bold')
    count = int(np.sum(targets != NO_TARGET))
    yield text(left, top + len(tokens) * size + 18, f'{count} of {len(tokens)} positions have a target', 12)


def objectives(folder):
    parts = [
        *draw_objective(10, 'clm', 'CLM: predict the next token', 'A token sees itself and those before it.',
                        BLUE),
        *draw_objective(390, 'mlm', 'MLM: predict masked tokens', 'Each token sees all tokens.', ORANGE,
                        seed=44),
        *lines(10, 370, 'A line of squares is a token that reads. Coloured squares are the tokens '
               'that it sees.',
               'The arrow leads to what it must predict.', colour=GREY)]
    write_svg(folder, 'objectives', 740, 400, parts)


# ---------------------------------------------------------------------------
# A row of pretraining


def row(folder):
    size = 18
    left = 150
    batch, _ = make_batch(Text(), 'train', [(0, 0)], 1, 'mlm', RULES)
    causal, _ = make_batch(Text(), 'train', [(0, 0)], 1, 'clm', RULES)
    cut = batch.lengths[0]
    parts = [text(10, 22, 'A row of a batch: cut in two at a random place, then masked', 15, weight='bold')]
    strips = (
        ('tokens', causal.tokens, GREY),
        ('MLM: inputs', batch.tokens, ORANGE),
        ('MLM: targets', batch.targets, ORANGE),
        ('CLM: targets', causal.targets, BLUE))
    for i, word in enumerate(TEXT):
        parts.append(text(left + i * size + 12, 96, word, 11, turn=-60))
    for k, (name, tokens, colour) in enumerate(strips):
        y = 104 + k * 28
        parts.append(text(left - 12, y + 15, name, 12, anchor='end'))
        for i, token in enumerate(tokens.tolist()):
            fill = LIGHT.get(colour, PALE)
            if token == NO_TARGET:
                fill = '#ffffff'
            elif token == MASK_ID:
                fill = ORANGE
            elif 'targets' in name:
                fill = colour
            elif token == END_ID:
                fill = GREY
            parts.append(box(left + i * size, y, size - 2, 20, fill, '#cccccc'))
    x = left + cut * size - 1
    parts.append(path([(x, 100), (x, 216)], INK, 2))
    parts += lines(left, 234, 'Masked inputs are orange. Ends of documents are grey, and never masked. '
                   'The line is the cut.', colour=GREY)
    parts += draw_blocks(left, 290, batch.lengths, True, 'CLM: back, within the segment', BLUE)
    parts += draw_blocks(left + 290, 290, batch.lengths, False, 'MLM: the whole segment', ORANGE)
    words = 'Who sees whom: a line is a token that reads, colour the tokens that it sees.'
    parts.append(text(left, 490, words, 12, GREY))
    write_svg(folder, 'row', 760, 505, parts)


def draw_blocks(x, y, lengths, causal, title, colour):
    """Draw the attention of a row: a square a pair of tokens."""
    size = 6
    total = sum(lengths)
    parts = [text(x, y - 12, title, 12, colour, weight='bold'),
             box(x, y, total * size, total * size, PALE)]
    start = 0
    for length in lengths:
        for i in range(length):
            seen = i + 1 if causal else length
            parts.append(box(x + start * size, y + (start + i) * size, seen * size, size, colour))
        start += length
    return parts


# ---------------------------------------------------------------------------
# The learning rate


def schedule(folder):
    """The trunk and the branches of MLM in studies/small."""
    left, bottom, width, height = 70, 220, 640, 150
    totals = (1_800, 3_600, 7_200, 14_400)

    def place(cfg, step):
        return left + width * step / totals[-1], bottom - height * cfg.lr_at(step) / cfg.lr
    title = 'Learning rate: warm-up, stable, decay; shorter runs branch off'
    parts = [text(10, 22, title, 15, weight='bold')]
    for total in totals:
        cfg = Settings(name='mlm', phases=(('mlm', total),), lr=3e-3, warmup_steps=100, decay_steps=0.2)
        is_trunk = total == totals[-1]
        corner = total - cfg.decay_steps
        steps = [0, cfg.warmup_steps, corner, total] if is_trunk else [corner, total]
        points = [place(cfg, step) for step in steps]
        if is_trunk:
            parts.append(path(points, ORANGE, 3))
        else:
            parts.append(path(points, GREEN, 2.5, dash='5 3'))
            x, y = points[0]
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{GREEN}"/>')
            parts.append(text(x, y - 10, f'{corner:,}', 11, GREEN, anchor='middle'))
        x, y = points[-1]
        parts += [path([(x, bottom), (x, bottom + 5)]),
                  text(x, bottom + 20, f'{total:,}', 12, anchor='middle')]
    parts += [
        path([(left, bottom - height - 20), (left, bottom), (left + width, bottom)]),
        text(left + width / 2, bottom + 42, 'steps', 13, anchor='middle'),
        text(left - 8, bottom - height + 5, '3e-3', 12, anchor='end'),
        text(left - 8, bottom + 4, '0', 12, anchor='end'),
        text(left, bottom - height - 28, 'warm-up: 100 steps', 12, ORANGE),
        text(440, bottom - height - 8, 'stable', 12, ORANGE, anchor='middle'),
        text(left + width, bottom - height - 8, 'decay: the last fifth', 12, ORANGE, anchor='end'),
        *lines(left + 315, bottom - 98, 'A branch starts from a checkpoint',
               'of the trunk (branch_from): only', 'its decay is computed.', colour=GREEN)]
    write_svg(folder, 'schedule', 740, 275, parts)


# ---------------------------------------------------------------------------
# Fine-tuning


HEADS = (
    ('SC: a text', ('it', 'is', 'a', 'fine', 'film'), 'mean of all states',
     ('dense layer, GELU,', 'linear layer'), ('positive',), 'one label a text'),
    ('TC: each word', ('call', 'np', '.', 'mean', 'twice'), '', ('linear layer', 'on each state'),
     ('O', 'B', 'I', 'I', 'O'), 'one tag a word'),
    ('QA: an answer', ('who', '?', 'Ada', 'Byron', 'did'), '', ('linear layer', 'on each state'),
     ('-', '-', 'yes', 'yes', '-'), 'the best run of "yes"'),
    ('IR: a query', ('sum', 'of', 'array', 'rows', '.'), 'mean, length 1',
     ('no weights: cosine with', 'the documents\' vectors'), ('0.2', '0.9', '0.1'), 'documents by cosine'),
)


def heads(folder):
    parts = [text(10, 22, 'Fine-tuning: one encoder, four heads', 15, weight='bold')]
    for k, (title, words, pooling, head, answers, result) in enumerate(HEADS):
        x = 10 + k * 190
        middle = x + 85
        centres = [x + 17 + 34 * i for i in range(5)]
        parts.append(text(x, 52, title, 13, BLUE, weight='bold'))
        for centre, word in zip(centres, words):
            parts += [text(centre, 78, word, 11, anchor='middle'), arrow(centre, 83, centre, 98),
                      arrow(centre, 134, centre, 148), box(centre - 12, 150, 24, 16, LIGHT[BLUE], BLUE)]
        parts += [box(x, 100, 170, 32, BLUE, round=4),
                  text(middle, 121, 'encoder, not causal', 12, '#ffffff', 'middle')]
        if pooling:
            parts += [path([(centre, 168), (middle, 192)], GREY, 1) for centre in centres]
            parts.append(text(middle, 205, pooling, 11, anchor='middle'))
            parts.append(arrow(middle, 210, middle, 224))
        else:
            parts += [arrow(centre, 168, centre, 224) for centre in centres]
        parts.append(box(x, 226, 170, 42, LIGHT[ORANGE], ORANGE, 4))
        parts += lines(middle, 243, *head, anchor='middle')
        places = centres if len(answers) == 5 else [middle + 45 * (i - (len(answers) - 1) / 2)
                                                    for i in range(len(answers))]
        for place, answer in zip(places, answers):
            parts += [arrow(place, 270, place, 286), text(place, 302, answer, 12, anchor='middle')]
        parts.append(text(middle, 326, result, 12, GREY, 'middle'))
    write_svg(folder, 'heads', 770, 340, parts)


# ---------------------------------------------------------------------------
# Files


STAGES = (
    ('data.py', 'configs/corpora/docs.py', 'corpora/docs/', BLUE,
     ('tokens_00000.npy, ...', 'val_00000.npy: held out', 'tokenizer.json', 'meta.json')),
    ('pretrain.py', 'configs/tiny.py', 'out/NAME/', ORANGE,
     ('config.json: settings', 'log.jsonl: a line a step', '600/, 1200/, ...: checkpoints,',
      'folders of Hugging Face')),
    ('finetune.py', 'configs/tasks/docs_tc.py', 'predictions/NAME/', GREEN,
     ('TC/docs_tc/lr1e-03_sd0/:', 'test.jsonl.gz: what is right, what', 'was predicted; validation.jsonl.gz',
      'run.json: what made them')),
    ('evaluate.py', 'table, compare A B, figure', 'on the screen, figures/', GREY,
     ('scores with 95 % intervals', 'paired tests of two models', 'figures')),
)


def files(folder):
    parts = [text(10, 22, 'From texts to a comparison: each command reads what the one before it wrote', 15,
                  weight='bold')]
    for k, (script, argument, written, colour, names) in enumerate(STAGES):
        x = 10 + k * 245
        parts += [box(x, 44, 215, 50, colour, round=4),
                  text(x + 107, 65, script, 14, '#ffffff', 'middle', 'bold'),
                  text(x + 107, 84, argument, 12, '#ffffff', 'middle'),
                  arrow(x + 107, 96, x + 107, 120),
                  box(x, 122, 215, 108, '#ffffff', colour, 4),
                  text(x + 10, 142, written, 13, weight='bold')]
        parts += lines(x + 10, 164, *names)
        if k < len(STAGES) - 1:
            way = [(x + 217, 176), (x + 230, 176), (x + 230, 70), (x + 243, 70)]
            parts.append(path(way, GREY, arrow=True))
    parts += lines(
        10, 256, 'finetune.py also reads a task: texts/docs_tc/ (examples/embedded_docs.py writes it), '
        'your .csv, or a dataset of the hub.',
        'out/NAME is read, too, by fill_mask.py, minimal_pairs.py and evaluate.py losses.', colour=GREY)
    write_svg(folder, 'files', 970, 285, parts)


# ---------------------------------------------------------------------------
# The package


FLOORS = (
    ('you type these', LIGHT[GREEN], ('pretrain.py', 'finetune.py', 'evaluate.py', 'fill_mask.py',
                                      'minimal_pairs.py')),
    ('nanoencoder/, scores', LIGHT[ORANGE], ('tasks/', 'metrics', 'predictions', 'figures')),
    ('nanoencoder/, models', LIGHT[ORANGE], ('pretraining/', 'huggingface', 'peers', 'optimizers')),
    ('nanoencoder/, texts', LIGHT[ORANGE], ('prepare', 'tokenizer', 'sentence_encoders', 'tables',
                                            'encodings')),
    ('nanoencoder/, ground', LIGHT[ORANGE], ('settings', 'files', 'processes')),
    ('need nothing of ours', LIGHT[BLUE], ('model.py: transformer and loss', 'data.py: what a step reads')),
)


def package(folder):
    parts = [text(10, 22, 'Where things stand: what stands higher may import what stands lower', 15,
                  weight='bold')]
    for k, (title, colour, names) in enumerate(FLOORS):
        y = 42 + k * 56
        width = 600 / len(names)
        parts.append(text(10, y + 26, title, 12, GREY))
        for i, name in enumerate(names):
            x = 150 + i * width
            parts += [box(round(x), y, round(width) - 8, 42, colour, round=4),
                      text(round(x + width / 2) - 4, y + 26, name, 11, anchor='middle')]
    parts += [box(760, 42, 195, 322, '#ffffff', GREY, 4),
              text(770, 64, 'beside the program', 12, GREY),
              *lines(770, 90, 'studies/: experiments', 'speedrun/: the game', 'examples/: texts, floors',
                     'bench/: speeds', 'tests/'),
              *lines(770, 196, 'They may import everything.', 'Nothing imports them.', colour=GREY)]
    write_svg(folder, 'package', 965, 380, parts)


PICTURES = (objectives, row, schedule, heads, files, package)


def main():
    plain_words(sys.argv[1:])
    for draw in PICTURES:
        draw(FOLDER)


if __name__ == '__main__':
    run_main(main)
