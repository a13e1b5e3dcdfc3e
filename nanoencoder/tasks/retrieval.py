"""IR, retrieval: a query finds documents; trained on (query, positive).

With score = 'mean' a text has one vector, the mean of its tokens' states, and a document's score is a cosine.
With 'maxsim' each token has a vector: late interaction, as in ColBERT (arXiv 2004.12832)."""
import contextlib
import functools
import itertools
import math
import random
import re
import sys
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from nanoencoder.files import blame
from nanoencoder.tasks.files import id_of, read_table
from nanoencoder.tasks.kind import Example, Kind, all_rows, framed, room
from nanoencoder.tasks.task import SCORED, columns_of, fill, get


class Pair(NamedTuple):
    """A pair to train on, as the model reads it."""
    tokens: np.ndarray      # of the query
    positive: np.ndarray    # tokens of its document
    document: str
    positives: set          # every document that train has for the query: none is a negative


class Retrieval(Kind):
    """Rows of train: query, positive; else: id, query, grades {document: grade}, and is_document where the
    query is a document of the corpus, too. 'corpus' is {id: text}."""
    inputs = ('query',)
    head = 'vector'
    templates = ('query', 'document', 'pair')
    in_one_piece = True

    def load(self, training=True):
        task = self.task
        queries, grades, corpus = judged_sets(task)
        rows = {'train': training_pairs(task, queries, corpus) if training else []}
        for split in SCORED:
            rows[split] = judged_queries(f'{task.dataset} {split}', queries, grades[split], corpus)
        mark_documents(task, [*rows['validation'], *rows['test']], corpus)
        return rows | {'corpus': corpus}, ()

    def encode(self, rows, labels, tokenizer, max_length, choose_rows=all_rows):
        """Pairs to train on, and all texts of the other splits. Identical texts are encoded once."""
        tokens_of = functools.cache(tokenizer.encode)
        lost = defaultdict(Counter)

        def read(text, part):
            tokens = tokens_of(text)
            if len(tokens) > room(tokenizer, max_length):
                lost[part]['texts'] += 1
            return framed(tokens, tokenizer, max_length)

        train = rows['train']
        positives = defaultdict(set)
        for row in train:
            positives[row['query']].add(row['positive'])
        pairs = [None for _ in train]
        for k in choose_rows(len(train)):
            query = train[k]['query']
            document = train[k]['positive']
            pairs[k] = Pair(read(query, 'train'), read(document, 'train'), document, positives[query])

        texts = [Example(read(text, 'texts')) for text in scored_texts(rows)]
        return {
            'train': (pairs, lost['train']),
            'texts': (texts, lost['texts'])}

    def texts(self, batch):
        return [pair.tokens for pair in batch] + [pair.positive for pair in batch]

    def similarities(self, outputs, batch):
        """(queries, documents): the scores of a batch, from the head's outputs for its texts."""
        if self.task.score == 'maxsim':
            lengths = [len(tokens) for tokens in self.texts(batch)]
            vectors = outputs.split(lengths)
            return max_sim(vectors[:len(batch)], vectors[len(batch):])
        queries, documents = outputs.chunk(2)       # as many of each
        return queries @ documents.T

    def loss(self, outputs, batch):
        """InfoNCE: each query must pick its own document among the batch's. Documents that also answer it,
        and copies of its own, are no negatives."""
        logits = self.task.scale * self.similarities(outputs, batch)
        excluded = [
            [other.document in pair.positives for other in batch]
            for pair in batch]
        excluded = torch.tensor(excluded, device=logits.device)
        excluded.fill_diagonal_(False)
        logits = logits.masked_fill(excluded, -math.inf)
        own = torch.arange(len(batch), device=logits.device)
        return F.cross_entropy(logits, own, reduction='sum')

    def predict(self, data, outputs):
        rows = data.rows
        ids = sorted(rows['corpus'], reverse=True)
        vectors = dict(zip(scored_texts(rows), outputs['texts']))
        documents = [vectors[rows['corpus'][document]] for document in ids]
        predictions = {}
        for split in SCORED:
            queries = [vectors[row['query']] for row in rows[split]]
            scores = self.scores(queries, documents)
            predictions[split] = [ranking(row, ids, values) for row, values in zip(rows[split], scores)]
        return predictions

    def scores(self, queries, documents):
        """For each query the scores of all documents, from the head's outputs for them."""
        if self.task.score == 'maxsim':
            queries = [torch.from_numpy(query) for query in queries]
            documents = [torch.from_numpy(document) for document in documents]
            return max_sim(queries, documents).numpy()
        documents = np.stack(documents)
        return (documents @ query for query in queries)

    def prediction(self, row, pred):
        return pred


def max_sim(queries, documents):
    """(queries, documents): each token of a query takes its greatest cosine with a token of the document, and
    the score is their mean.

    ColBERT takes their sum, which ranks documents alike. The mean is at most 1, however long the query is, so
    that one `scale` fits all of them.

    queries, documents  lists of (tokens, d) tensors, whose rows have length 1"""
    tokens = torch.cat(queries)
    lengths = torch.tensor([len(query) for query in queries], device=tokens.device)
    scores = []
    for document in documents:      # one at a time: cosines of all tokens would not fit into the memory
        greatest = (tokens @ document.T).amax(1)
        scores.append(torch.segment_reduce(greatest, 'mean', lengths=lengths))
    return torch.stack(scores, dim=1)


def scored_texts(rows):
    """All documents, and the queries that are scored, each once."""
    texts = {*rows['corpus'].values()}
    for split in SCORED:
        texts.update(row['query'] for row in rows[split])
    return sorted(texts)


def training_pairs(task, queries, corpus):
    """[{query, positive}] of a file of pairs, else of judgements of train, else none: a probe needs none."""
    try:
        table, _ = read_table(task, (task.pairs or task.source,), task.train)
    except FileNotFoundError as error:
        # with judged_only, `corpus` lacks the documents that only train judges
        if not task.pairs and not task.judged_only:
            with contextlib.suppress(FileNotFoundError):
                return judged_pairs(task, queries, corpus)
        print(f'{error}: there is nothing to train on', file=sys.stderr)
        return []
    query, positive = task.pair
    read = [*columns_of(query), *columns_of(positive)]
    columns = dict.fromkeys(itertools.chain.from_iterable(table))
    others = [repr(column) for column in columns if column not in (*read, 'id')]
    if others:      # negatives, perhaps: here they are the other documents of a batch
        print(f'{task.dataset} {task.train}: `pair` reads {", ".join(read)}, and not the columns '
              f'{", ".join(others):.200}', file=sys.stderr)
    pairs = []
    for number, row in enumerate(table):
        where = f'{task.pairs or task.dataset} {task.train} row {number}'
        pairs.append({'query': fill(query, row, where), 'positive': fill(positive, row, where)})
    return pairs


def judged_pairs(task, queries, corpus):
    """[{query, positive}]: each query of train and each document that is judged relevant to it."""
    pairs = []
    for query, graded in judgements(task, task.train, {}, {}).items():
        for document, grade in graded.items():
            if grade >= 1 and query in queries and document in corpus:
                pairs.append({'query': queries[query], 'positive': corpus[document]})
    return pairs


def judged_sets(task):
    """({query: text}, {split: {query: {document: grade}}}, {document: text})"""
    queries = {}
    corpus = {}
    grades = {}
    for split in SCORED:
        name = getattr(task, split)
        if name:
            grades[split] = judgements(task, name, queries, corpus)
    if not queries:     # they have a file of their own
        queries = texts_by_id(task, 'queries', task.query)
    if not task.validation:
        grades = halves(grades['test'])
    if not corpus:
        only = None
        if task.judged_only:
            only = documents_in(grades['validation']) | documents_in(grades['test'])
        corpus = texts_by_id(task, 'corpus', task.document, only)
    return queries, grades, corpus


def halves(grades):
    """{split: half of the judged queries}; the authors drew theirs without a seed."""
    order = sorted(grades)
    random.Random(42).shuffle(order)
    first = {*order[:round(0.5 * len(order))]}
    return {
        'validation': {query: grades[query] for query in grades if query in first},
        'test': {query: grades[query] for query in grades if query not in first}}


def documents_in(grades):
    return set().union(*grades.values())


def texts_by_id(task, name, template, only=None):
    """{id: text} of queries or documents, which may lack a title."""
    texts = {}
    table, _ = read_table(task, (task.source,), name, name, only)
    for number, row in enumerate(table):
        where = f'{task.dataset} {name} row {number}'
        key = id_of(row) or get(row, '_id', where)
        add(texts, key, fill(template, {'title': '', **row}, where), where)
    return texts


def add(texts, key, value, where):
    """texts[key] = value; ValueError if it has another value already."""
    if texts.setdefault(key, value) != value:
        raise ValueError(f'{where}: {key!r:.80} occurs twice, with {str(texts[key])!r:.40} and {value!r:.40}')


def judgements(task, split, queries, corpus):
    """{query: {document: grade}} of a split. Texts that its rows hold are added to `queries` and `corpus`."""
    subset = 'qrels' if task.data else ''
    table, _ = read_table(task, (task.qrels or task.source, task.source), split, subset)
    query_of_pair, document_of_pair = task.pair
    columns_of_pair = {'id', *columns_of(query_of_pair), *columns_of(document_of_pair)}
    grades = defaultdict(dict)
    for number, row in enumerate(table):
        where = f'{task.dataset} {split} judgement {number}'
        if 'positive_passages' in row:
            graded = read_passages(task, row, where, queries)
        elif row.keys() >= columns_of_pair:
            graded = read_pair(task, row, where, queries, corpus)
        else:
            graded = read_qrel(row, where)
        for query, document, grade in graded:
            add(grades[query], document, grade, where)
    return grades


def read_qrel(row, where):
    """[(query, document, grade)] of BEIR's query-id, corpus-id, score. The texts have files of their own."""
    columns = ('query-id', 'corpus-id', 'score')
    query, document, score = [str(get(row, column, where, object)) for column in columns]
    if not re.fullmatch(r'-?\d{1,9}(\.0*)?', score):
        raise ValueError(f'{where}: score {score:.80} is not a whole number')
    return [(query, document, int(float(score)))]


def read_passages(task, row, where, queries):
    """[(query, document, grade)] of MLDR's query_id, query, positive_passages and negative_passages."""
    query = str(get(row, 'query_id', where, object))
    text = get(row, 'query', where)
    add(queries, query, fill(task.query, {'text': text}, where), where)
    graded = []
    for grade, column in enumerate(('negative_passages', 'positive_passages')):     # grades 0 and 1
        with blame(f'{where}: {column} must be a list of {{"docid": ...}}', TypeError):
            for passage in row.get(column) or []:
                document = str(get(passage, 'docid', f'{where}: {column}', object))
                graded.append((query, document, grade))
    return graded


def read_pair(task, row, where, queries, corpus):
    """[(query, document, 1)] of an id and the columns of `pair`: the query's one relevant document, which has
    its id."""
    name = str(row['id'])
    query, document = task.pair
    add(queries, name, fill(query, row, where), where)
    add(corpus, name, fill(document, row, where), where)
    return [(name, name, 1)]


def judged_queries(where, queries, grades, corpus):
    """The rows of a split. As in trec_eval, a judged document that is not in the corpus counts as one that is
    never found; a query that is not there, or has no relevant document, is left out. Each is counted."""
    if not grades:
        raise ValueError(f'{where}: has no judgements')
    judged = documents_in(grades)
    absent = judged - corpus.keys()
    rows = [{'id': query, 'query': queries[query], 'grades': graded}
            for query, graded in grades.items()
            if query in queries and max(graded.values()) >= 1]
    if not rows or absent == judged:
        raise ValueError(f'{where}: no query has a relevant document: are the ids of the judgements, '
                         f'as {min(grades)!r:.80} and {min(judged)!r:.80}, those of queries and documents?')
    if absent:
        print(f'{where}: {len(absent):,} of {len(judged):,} judged documents are in no file, as '
              f'{min(absent)!r:.80}: they count as never found', file=sys.stderr)
    if len(rows) < len(grades):
        print(f'{where}: {len(grades) - len(rows):,} of {len(grades):,} judged queries are left out: they '
              'are in no file, or have no relevant document', file=sys.stderr)
    return rows


def mark_documents(task, rows, corpus):
    """Mark the queries that are documents, too, as in BEIR's ArguAna and Quora: `ranking` leaves out a
    query's own document, which has its id and would always come first.

    BEIR goes by ids alone. But ids may be numbers that mean one thing among queries and another among
    documents. So most of the documents with a query's id must have its text. A document that is judged
    relevant to the query of its id, as in a file of pairs, is an answer and stays."""
    start = task.query.index('{')
    after = len(task.query) - 1 - task.query.rindex('}')    # characters of the template after the text
    namesakes = [row for row in rows if row['id'] in corpus and row['grades'].get(row['id'], 0) < 1]
    same = 0
    for row in namesakes:
        text = row['query'][start:len(row['query']) - after]
        same += ' '.join(text.split()) in ' '.join(corpus[row['id']].split())
    if same <= len(namesakes) / 2:
        return
    for row in namesakes:
        row['is_document'] = True
    print(f'{task.dataset}: {len(namesakes):,} of {len(rows):,} queries are documents, too, with the same id '
          'and text: a query\'s own document is left out of its ranking, as in BEIR', file=sys.stderr)


def ranking(row, ids, scores):
    """A query's ten best documents, without its own; of equal ones those that come first in `ids`. `tied`
    says how many share the tenth's score, and the grades of the relevant ones among them."""
    grades = row['grades']
    scores = np.asarray(scores, np.float64).round(6)
    if row.get('is_document'):
        own = ids.index(row['id'])
        ids = ids[:own] + ids[own + 1:]
        scores = np.delete(scores, own)
    best = np.argsort(-scores, kind='stable')[:10]
    ranked = {
        'id': row['id'],
        'gold': grades,
        'cluster': max(grades, key=grades.get, default=''),     # all queries with the same best document
        'docs': [ids[k] for k in best],
        'scores': scores[best].tolist()}
    tenth = scores[best[-1]]
    if np.sum(scores >= tenth) > len(best):
        tied = np.flatnonzero(scores == tenth)
        of_tied = [grades.get(ids[k], 0) for k in tied]
        relevant = [grade for grade in of_tied if grade >= 1]
        ranked['tied'] = {'size': len(tied), 'grades': sorted(relevant, reverse=True)}
    return ranked
