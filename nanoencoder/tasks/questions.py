"""QA, extractive question answering: the answer is a part of the context, or there is none. As the paper's
authors do, each token of the context is classified: is it of the answer?"""
import zlib
from itertools import zip_longest

import numpy as np

from nanoencoder.tasks.kind import NO_LABEL, Example, Kind, framed, room
from nanoencoder.tasks.task import fill, get

NO_ANSWER = '"answers": {"text": [], "answer_start": []} where there is none'
OVERLAP = 128   # tokens that a window of a long context shares with the one before


class Questions(Kind):
    """Rows of id, question, context, answers [(text, start)]."""
    inputs = ('question', 'context')
    output_names = ('O', 'ANSWER')
    has_probe = False  # a frozen model has not read the question into the context
    reads_all_rows = True   # how many windows each row has decides which of them the steps read

    def __init__(self, task):
        super().__init__(task)
        if not task.template.endswith('{context}'):
            raise ValueError(f'template must be text with {{context}} at its end, not {task.template!r:.80}')

    def make_row(self, row, labels, where):
        context = get(row, 'context', where)
        try:
            answers = get(row, 'answers', where, dict)
            texts = get(answers, 'text', f'{where}: answers', list)
            starts = get(answers, 'answer_start', f'{where}: answers', list)
        except ValueError as error:
            raise ValueError(f'{error}; {NO_ANSWER}') from None
        for text, start in zip_longest(texts, starts):      # in characters of the context
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f'{where}: answer {text!r:.80} is no text; {NO_ANSWER}')
            if type(start) is not int or start < 0 or not context.startswith(text, start):
                raise ValueError(f'{where}: answer {text!r:.80} is not at character {start!s:.20}')
        is_impossible = row.get('is_impossible')    # of SQuAD 2.0's own files; the hub's have no such column
        if is_impossible is True and texts or is_impossible is False and not texts:
            raise ValueError(f'{where}: is_impossible is {is_impossible}, and its answers are {texts!r:.80}: '
                             'an impossible question has none, and others have one; mend either')
        template = self.task.template.removesuffix('{context}')
        return {
            'question': fill(template, row, where),
            'context': context,
            'answers': list(zip(texts, starts))}

    def examples(self, row, labels, tokenizer, max_length, lost):
        """A window or more of the context, after the question, which is cut at half of max_length. Targets
        are 1 at the tokens of the first answer, also where a window has only a part of it."""
        question = tokenizer.encode(row['question'])
        if len(question) >= max_length // 2:
            lost['questions'] += 1
            question = question[:max_length // 2 - 1]
        outside = np.full((len(question), 2), -1)
        tokens, characters = tokenizer.encode_with_offsets(row['context'])
        windows = windows_of(len(tokens), room(tokenizer, max_length) - len(question))
        if len(windows) > 1:
            lost['texts'] += 1
            lost['windows'] += len(windows) - 1

        examples = []
        for window in windows:
            read = framed(np.concatenate([outside, characters[window]]), tokenizer, max_length, -1)
            targets = np.where(read[:, 0] < 0, NO_LABEL, is_answer(row, read))
            window_tokens = framed([*question, *tokens[window]], tokenizer, max_length)
            examples.append(Example(window_tokens, targets, characters=read))
        whole = np.sum(is_answer(row, characters))      # how many tokens the answer has
        most = max(np.sum(example.targets == 1) for example in examples)
        if row['answers'] and (whole == 0 or most < whole):
            lost['answers'] += 1    # it has no token of its own, or no window has all of it
        return examples

    def answer(self, row, read, labels):
        """The text of the best run of any window, empty if there is none; of equal runs the later one."""
        runs = [best_run(example, logits) for example, logits in read]
        _, first, last = max(runs)
        text = row['context'][first:last]
        return text.strip()

    def prediction(self, row, pred):
        return {
            'id': row['id'],
            'cluster': zlib.crc32(row['context'].encode()),     # all questions on one text
            'golds': [text for text, _ in row['answers']],
            'pred': pred}


def is_answer(row, characters):
    """(n,) whether tokens, of the characters (n, 2) in the context, are of the row's first answer."""
    if not row['answers']:
        return np.zeros(len(characters), bool)
    text, start = row['answers'][0]
    first, last = characters.T
    return (first < start + len(text)) & (last > start)


def windows_of(length, size):
    """Slices of at most `size` that cover `length` tokens. They overlap by OVERLAP, or half of a size."""
    step = size - min(OVERLAP, size // 2)
    beyond = max(0, length - size)      # tokens after the first window
    starts = range(0, beyond + step, step)
    return [slice(start, start + size) for start in starts]


def best_run(example, logits):
    """(sum of log-odds, first, last character + 1) of the best run of tokens tagged as the answer; of equal
    ones the later. Zeros if no token is."""
    first, last = example.characters.T
    odds = logits[:, 1] - logits[:, 0]
    is_tagged = (odds > 0) & (first >= 0)

    # is_tagged changes at the start of a run, then after its end, and so on
    edges = np.flatnonzero(np.diff(is_tagged, prepend=False, append=False))
    runs = [(0.0, 0, 0)]
    for start, end in edges.reshape(-1, 2):
        runs.append((
            odds[start:end].sum(),
            first[start],
            last[end - 1]))
    return max(runs)
