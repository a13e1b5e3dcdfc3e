"""QA, extractive question answering: the answer is a part of the context, or there is none.

qa_head = "tag" tags the answer's tokens, as the paper's authors do; "span" predicts its start and end.
"""
import math
import re
from collections import Counter, defaultdict

import numpy as np
import torch
import torch.nn.functional as F

from nanoencoder.tasks.kind import NO_LABEL, Example, Export, Kind, TokenClassifier, framed, room
from nanoencoder.tasks.task import SCORED, fill, get, terms

LONGEST = 30   # tokens of a span


class Questions(Kind):
    """Rows of id, question, context, answers [(text, start)], candidates."""
    per_token = True

    def __init__(self, task):
        super().__init__(task)
        if not self.task.template.endswith('{context}'):
            raise ValueError('template of a QA task must end with {context}')
        if self.task.qa_head == 'span' and self.task.template == '{context}':
            raise ValueError('template of a QA task needs a question before {context}')

    def make_row(self, row, labels, where):
        context = get(row, 'context', where)
        answers = answers_in(row, self.task.answers, context, where)
        candidates = get(row, self.task.candidates, where, list) if self.task.candidates else []
        candidates = [text['text'] if isinstance(text, dict) else text for text in candidates]
        if not all(isinstance(text, str) and text for text in candidates):
            raise ValueError(f'{where}: column {self.task.candidates!r} is not a list of texts')
        question = fill(self.task.template.removesuffix('{context}'), row, where)
        return {'question': question, 'context': context, 'answers': answers,
                'candidates': sorted(set(candidates))}

    def encode(self, rows, labels, tokenizer, max_length):
        encoded = super().encode(rows, labels, tokenizer, max_length)
        if self.task.qa_head == 'span' and always_answered(rows):  # SQuAD v1.1: no window without its answer
            examples, lost = encoded['train']
            encoded['train'] = [example for example in examples if (example.targets == 1).any()], lost
        return encoded

    def examples(self, rows, labels, tokenizer, max_length):
        """A window or more of each context, after the question. Target 1 on the tokens of the (first) answer.

        A window with only a part of the answer has that part tagged, but for qa_head = "span" no answer.
        """
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
            starts = range(0, max(0, len(tokens) - size) + step, step)
            windows = [slice(start, start + size) for start in starts]
            complete = [bool(inside.any() and inside[window].sum() == inside.sum()) for window in windows]
            before = [(len(question), 0), (0, 0)]
            for window, is_complete in zip(windows, complete):
                targets = inside[window] & (is_complete or self.task.qa_head == 'tag')
                targets = np.pad(targets.astype(np.int64), before[:1], constant_values=NO_LABEL)
                places = np.pad(characters[window], before, constant_values=-1)
                examples.append(Example(framed([*question, *tokens[window]], tokenizer, max_length),
                                        framed(targets, tokenizer, max_length, NO_LABEL), k,
                                        framed(places, tokenizer, max_length, -1)))
            lost['texts'] += len(windows) > 1
            lost['windows'] += len(windows) - 1
            lost['answers'] += bool(row['answers']) and not any(complete)
        return examples, +lost

    def head(self, hidden_size, labels):
        return TokenClassifier(hidden_size, 2)  # no and yes, or start and end

    def num_targets(self, example):
        return 1 if self.task.qa_head == 'span' else super().num_targets(example)

    def loss(self, output, batch):
        return span_loss(output, batch) if self.task.qa_head == 'span' else super().loss(output, batch)

    def predict(self, data, outputs):
        never_empty, predictions = always_answered(data.rows), {}
        for split in SCORED:
            windows = defaultdict(list)
            for example, logits in zip(data.examples[split], outputs[split]):
                windows[example.row].append((example, logits))
            predictions[split] = [
                self.prediction(row, answer_of(row, windows[k], self.task.qa_head, never_empty))
                for k, row in enumerate(data.rows[split])]
        return predictions

    def prediction(self, row, pred):
        return {'id': row['id'], 'golds': [text for text, _ in row['answers']], 'pred': pred}

    def baselines(self, rows):
        return {'no-answer': lambda row: '', 'frequent-answer': frequent_answer(rows['train']),
                'likeliest-sentence': likeliest_sentence}

    def export(self, labels, sizes):
        labels, answer = ('O', 'ANSWER'), 'the tokens of the answer are ANSWER'
        if self.task.qa_head == 'span':
            labels = 'start', 'end'
            answer = "the best start and end among the context's tokens, or both at eos for no answer"
        return Export('ForTokenClassification', 'token-classification',
                      "AutoModelForTokenClassification.from_pretrained('<this folder>')",
                      f'{self.task.template!r}; {answer}', labels)


def answers_in(row, column, context, where):
    """[(text, start)] in characters of the context; none: the question has no answer there."""
    match row.get(column):
        case {'text': [*texts], 'answer_start': [*starts]}:  # SQuAD
            if len(texts) != len(starts):
                raise ValueError(f'{where}: has {len(texts)} answers and {len(starts)} starts')
            answers = list(zip(texts, starts))
        case [*values] if all(isinstance(value, dict) and {'text', 'start'} <= {*value} for value in values):
            answers = [(value['text'], value['start']) for value in values]
            for value in values:  # `end` is the last character's index, as ReCoRD's, or the one after it
                if value.get('end', last := value['start'] + len(value['text'])) not in (last - 1, last):
                    raise ValueError(f'{where}: the end of {value!s:.80} is not that of its text')
        case _:
            raise ValueError(f'{where}: column {column!r} has neither text and answer_start '
                             'nor a list of text, start, end')
    for text, start in answers:
        good = isinstance(text, str) and text.strip() and type(start) is int and start >= 0
        if not good or context[start:start + len(text)] != text:
            raise ValueError(f'{where}: answer {text!r:.80} is not at character {start!s:.20} of its context')
    return answers


def always_answered(rows):
    """Whether every question of train has an answer, as in SQuAD v1.1; then "span" predicts none empty."""
    return all(row['answers'] for row in rows['train'])


# ---------------------------------------------------------------------------------------------- the baselines

def frequent_answer(train):
    """Of train's answers that occur in the context, the most frequent; none if there is none."""
    counts = Counter(text for row in train for text, _ in row['answers'])
    known = sorted(counts, key=lambda text: (-counts[text], text))[:5_000]
    return lambda row: next((text for text in known if text in row['context']), '')


def likeliest_sentence(row):
    """The context's sentence that has most of the question's words; of equals the first."""
    asked = set(terms(row['question']))
    return max(re.split(r'(?<=[.!?])\s+', row['context']), key=lambda text: len(asked & {*terms(text)}))


# ----------------------------------------------------------------------------------------- losses and answers

def span_loss(output, batch):
    """Cross-entropies of start and end over the context's tokens and the last, eos: no answer."""
    starts, loss = np.cumsum([0] + [len(example.tokens) for example in batch]), 0
    for example, first, last in zip(batch, starts, starts[1:]):
        answer = np.flatnonzero(example.targets == 1)
        forbidden = torch.from_numpy(example.words[:, 0] < 0).to(output.device)
        forbidden[-1] = False
        logits = output[first:last].masked_fill(forbidden[:, None], -math.inf)
        ends = [answer[0], answer[-1]] if len(answer) else [len(logits) - 1] * 2
        loss = loss + F.cross_entropy(logits.T, torch.tensor(ends, device=output.device), reduction='sum') / 2
    return loss


def answer_of(row, windows, qa_head, never_empty):
    """The text of the best span of any window, empty if there is none; of equal spans the later one."""
    if row['candidates']:
        spans = [best_candidate(row, example, logits, qa_head) for example, logits in windows]
    else:
        best = best_run if qa_head == 'tag' else best_span
        spans = [best(example, logits) for example, logits in windows]
        spans = [span for span in spans if span[0] > 0 or never_empty]
    _, first, last = max(spans, default=(0.0, 0, 0))
    return row['context'][first:last].strip()


def best_run(example, logits):
    """(sum of log-odds, first, last character + 1) of the best run of tagged tokens."""
    odds = np.where(example.words[:, 0] >= 0, logits[:, 1] - logits[:, 0], -1.0)
    edges = np.flatnonzero(np.diff(odds > 0, prepend=False, append=False))
    runs = [(float(odds[a:b].sum()), int(example.words[a, 0]), int(example.words[b - 1, 1]))
            for a, b in zip(edges[::2], edges[1::2])]
    return max(runs, default=(0.0, 0, 0))


def best_span(example, logits, longest=LONGEST):
    """(score over that of no answer, first, last character + 1) of the best span of at most `longest`."""
    at = np.flatnonzero(example.words[:, 0] >= 0)
    if not len(at):
        return -math.inf, 0, 0
    scores = logits[at, 0][:, None] + logits[at, 1][None]
    near = np.triu(np.ones_like(scores, bool)) & ~np.triu(np.ones_like(scores, bool), longest)
    scores = np.where(near, scores, -np.inf)
    a, b = np.unravel_index(scores.argmax(), scores.shape)
    over = float(scores[a, b] - logits[-1].sum())
    return over, int(example.words[at[a], 0]), int(example.words[at[b], 1])


def best_candidate(row, example, logits, qa_head):
    """(score, first, last + 1) of a candidate's best occurrence whole in a window.

    The score is the mean log-odds of its tokens, or start + end over that of no answer.
    """
    spans, places = [(-math.inf, 0, 0)], example.words
    for text in row['candidates']:
        for match in re.finditer(rf'(?<!\w){re.escape(text)}(?!\w)', row['context']):
            inside = (places[:, 0] < match.end()) & (places[:, 1] > match.start())
            at = np.flatnonzero(inside & (places[:, 0] >= 0))
            if len(at) and places[at[0], 0] <= match.start() and places[at[-1], 1] >= match.end():
                over = logits[at[0], 0] + logits[at[-1], 1] - logits[-1].sum()
                score = (logits[at, 1] - logits[at, 0]).mean() if qa_head == 'tag' else over
                spans.append((float(score), match.start(), match.end()))
    return max(spans)
