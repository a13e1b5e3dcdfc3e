"""QA, extractive question answering: the answer is a part of the context, or there is none."""
from collections import Counter

import numpy as np

from nanoencoder.tasks.kind import NO_LABEL, Example, Kind, framed, room
from nanoencoder.tasks.task import fill, get


class Questions(Kind):
    """Rows of id, question, context, answers [(text, start)]."""
    has_probe = False  # a frozen model has not read the question into the context

    def __init__(self, task):
        super().__init__(task)
        self.is_span = task.qa_head == 'span'
        self.loss = 'span' if self.is_span else 'labels'

    def load(self, training=True):
        rows, _ = super().load(training)
        # as in SQuAD v1.1; then "span" predicts no empty answer, and trains on no window without one
        self.never_empty = all(row['answers'] for row in rows['train'])
        return rows, ('start', 'end') if self.is_span else ('O', 'ANSWER')

    def make_row(self, row, labels, where):
        context, value = get(row, 'context', where), row.get(column := self.task.answers)
        try:
            if isinstance(value['text'], str):  # its letters would be taken for answers
                raise TypeError
            answers = list(zip(value['text'], value['answer_start'], strict=True))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f'{where}: column {column!r} is no {{"text": [], "answer_start": []}}') from None
        for text, start in answers:     # in characters of the context
            good = isinstance(text, str) and text.strip() and type(start) is int and start >= 0
            if not good or context[start:start + len(text)] != text:
                raise ValueError(f'{where}: answer {text!r:.80} is not at character {start!s:.20}')
        return {'question': fill(self.task.template.removesuffix('{context}'), row, where),
                'context': context, 'answers': answers}

    def encode(self, rows, labels, tokenizer, max_length, reads=range):
        # all rows: how many windows each has decides which of them the steps read
        encoded = {split: self.examples(rows[split], labels, tokenizer, max_length) for split in rows}
        if self.is_span and self.never_empty:
            examples, lost = encoded['train']
            encoded['train'] = [example for example in examples if (example.targets == 1).any()], lost
        return encoded

    def examples(self, rows, labels, tokenizer, max_length):
        """A window or more of each context, after the question. Target 1 on the tokens of the first answer,
        also where a window has only a part of it; for qa_head = "span" it then has no answer."""
        examples, lost = [], Counter()
        for k, row in enumerate(rows):
            question = tokenizer.encode(row['question'])
            tokens, characters = tokenizer.encode_with_offsets(row['context'])
            lost['questions'] += len(question) >= max(1, max_length // 2)
            question = question[:max(0, max_length // 2 - 1)]
            text, start = row['answers'][0] if row['answers'] else ('', 0)
            inside = (characters[:, 0] < start + len(text)) & (characters[:, 1] > start)
            size = room(tokenizer, max_length) - len(question)
            step = max(1, size - min(self.task.overlap, size // 2))
            windows = [slice(at, at + size) for at in range(0, max(0, len(tokens) - size) + step, step)]
            complete = [bool(inside.any() and inside[window].sum() == inside.sum()) for window in windows]
            for window, is_complete in zip(windows, complete):
                targets = inside[window] & (is_complete or not self.is_span)
                examples.append(Example(framed([*question, *tokens[window]], tokenizer, max_length),
                                        framed(targets, tokenizer, max_length, NO_LABEL, len(question)), k,
                                        framed(characters[window], tokenizer, max_length, -1, len(question))))
            lost.update(texts=len(windows) > 1, windows=len(windows) - 1,
                        answers=bool(row['answers']) and not any(complete))
        return examples, +lost

    def answer(self, row, read, labels):
        """The text of the best span of any window, empty if there is none; of equal spans the later one."""
        spans = [(best_span if self.is_span else best_run)(example, logits) for example, logits in read]
        _, first, last = max((span for span in spans if span[0] > 0 or self.never_empty), default=(0.0, 0, 0))
        return row['context'][first:last].strip()

    def prediction(self, row, pred):
        return {'id': row['id'], 'golds': [text for text, _ in row['answers']], 'pred': pred}


def best_run(example, logits):
    """(sum of log-odds, first, last character + 1) of the best run of tagged tokens."""
    odds = np.where(example.words[:, 0] >= 0, logits[:, 1] - logits[:, 0], -1.0)
    edges = np.flatnonzero(np.diff(odds > 0, prepend=False, append=False))
    runs = [(float(odds[a:b].sum()), int(example.words[a, 0]), int(example.words[b - 1, 1]))
            for a, b in zip(edges[::2], edges[1::2])]
    return max(runs, default=(0.0, 0, 0))


def best_span(example, logits, longest=30):
    """(score over that of no answer, first, last character + 1) of the best span of at most `longest`."""
    at = np.flatnonzero(example.words[:, 0] >= 0)
    if not len(at):
        return -np.inf, 0, 0
    more = np.arange(len(at))[None] - np.arange(len(at))[:, None]   # tokens after the first
    scores = np.where((more >= 0) & (more < longest), logits[at, 0][:, None] + logits[at, 1][None], -np.inf)
    a, b = np.unravel_index(scores.argmax(), scores.shape)
    return float(scores[a, b] - logits[-1].sum()), int(example.words[at[a], 0]), int(example.words[at[b], 1])
