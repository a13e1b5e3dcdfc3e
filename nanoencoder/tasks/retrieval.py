"""IR, retrieval: a query finds documents by cosines of mean-pooled vectors; trained on (query, positive)."""
import random
import re
import sys
from collections import Counter, defaultdict, namedtuple
from contextlib import suppress

import numpy as np

from nanoencoder.tasks.files import id_of, read_table
from nanoencoder.tasks.kind import Example, Kind, framed, room
from nanoencoder.tasks.task import SCORED, columns_of, fill, get

SIDES = ('query', 'positive')   # of a training pair
# a query's tokens, its document's, that document, and every document that train has for the query
Pair = namedtuple('Pair', 'tokens positive document positives')


class Retrieval(Kind):
    """Rows of train: query, positive; else: id, query, grades {document: grade}. 'corpus' is {id: text}."""
    head, loss = 'vector', 'pairs'

    def load(self, training=True):
        task = self.task
        queries, grades, corpus = judged_sets(task)
        pairs = training_pairs(task, queries, corpus) if training else []
        rows = {split: judged_queries(f'{task.dataset} {split}', queries, grades[split], corpus)
                for split in SCORED}
        return {'train': pairs, **rows, 'corpus': corpus}, ()

    def encode(self, rows, labels, tokenizer, max_length, reads=range):
        """Pairs to train on, and all texts of the other splits. Identical texts are encoded once."""
        train = rows['train']
        chosen = reads(len(train))
        parts = {'train': [train[k][side] for k in chosen for side in SIDES], 'texts': scored_texts(rows)}
        tokens = {text: tokenizer.encode(text) for text in set().union(*parts.values())}
        texts = {text: framed(ids, tokenizer, max_length) for text, ids in tokens.items()}
        positives = defaultdict(set)
        for row in train:
            positives[row['query']].add(row['positive'])
        pairs = [None] * len(train)
        for k in chosen:
            query, positive = train[k]['query'], train[k]['positive']
            pairs[k] = Pair(texts[query], texts[positive], positive, positives[query])
        examples = {'train': pairs, 'texts': [Example(texts[text]) for text in parts['texts']]}
        size = room(tokenizer, max_length)
        return {part: (examples[part], +Counter(texts=sum(len(tokens[text]) > size for text in parts[part])))
                for part in parts}

    def predict(self, data, outputs):
        rows, ids = data.rows, sorted(data.rows['corpus'], reverse=True)
        vectors = dict(zip(scored_texts(rows), outputs['texts']))
        documents = np.stack([vectors[rows['corpus'][document]] for document in ids])
        return {split: [ranking(row, ids, documents @ vectors[row['query']]) for row in rows[split]]
                for split in SCORED}

    def prediction(self, row, pred):
        return pred


def scored_texts(rows):
    return sorted({*rows['corpus'].values(), *(row['query'] for split in SCORED for row in rows[split])})


def training_pairs(task, queries, corpus):
    """[{query, positive}] of a file of pairs, or of BEIR's judgements; [] without: a probe needs none."""
    try:
        table = read_table(task, (task.pairs or task.source,), task.train)[0]
        where = f'{task.pairs or task.dataset} {task.train} row'
        return [{side: fill(template, row, f'{where} {number}') for side, template in zip(SIDES, task.pair)}
                for number, row in enumerate(table)]
    except FileNotFoundError as error:
        missing = str(error)
    with suppress(FileNotFoundError):
        if not task.pairs:
            grades = judgements(task, task.train, {}, {})
            if task.judged_only:    # in the splits that are scored
                corpus = texts_by_id(task, 'corpus', task.document, set().union(*grades.values()))
            return [{'query': row['query'], 'positive': corpus[document]}
                    for row in judged_queries(f'{task.dataset} {task.train}', queries, grades, corpus)
                    for document, grade in row['grades'].items() if grade >= 1 and document in corpus]
    print(f'{missing}: there is nothing to train on', file=sys.stderr)
    return []


def judged_sets(task):
    """({query: text}, {split: {query: {document: grade}}}, {document: text}) of BEIR's and MLDR's files."""
    queries, corpus = {}, {}
    grades = {split: judgements(task, name, queries, corpus)
              for split in SCORED if (name := getattr(task, split))}
    if not queries:  # BEIR has a file of them; in MLDR's rows they stand beside their passages
        queries = texts_by_id(task, 'queries', task.query)
    if not task.validation:  # half of the test queries each; the authors drew theirs without a seed
        order, every = sorted(grades['test']), grades['test']
        random.Random(42).shuffle(order)
        half = set(order[:round(0.5 * len(order))])
        grades = {split: {query: graded for query, graded in every.items() if (query in half) == is_first}
                  for split, is_first in zip(SCORED, (True, False))}
    judged = set().union(*(graded for split in grades.values() for graded in split.values()))
    if not corpus:
        corpus = texts_by_id(task, 'corpus', task.document, judged if task.judged_only else None)
    return queries, grades, corpus


def texts_by_id(task, name, template, only=None):
    """{id: text} of queries or documents, which may lack a title."""
    texts = {}
    for number, row in enumerate(read_table(task, (task.source,), name, name, only)[0]):
        where = f'{task.dataset} {name} row {number}'
        add(texts, id_of(row) or get(row, '_id', where), fill(template, {'title': '', **row}, where), where)
    return texts


def add(texts, key, value, where):
    """texts[key] = value; ValueError if it has another value already."""
    if texts.setdefault(key, value) != value:
        raise ValueError(f'{where}: {key!r:.80} occurs twice, with {str(texts[key])!r:.40} and {value!r:.40}')


def judgements(task, split, queries, corpus):
    """{query: {document: grade}} of a split, whose rows are BEIR's qrels; or MLDR's, which hold their queries;
    or pairs (an id and the columns of `pair`), in which a query's document has the id of the query."""
    of_pair = [columns_of(template) for template in task.pair]
    grades, sources = defaultdict(dict), [name for name in (task.qrels, task.source) if name] or ['']
    for number, row in enumerate(read_table(task, sources, split, 'qrels' if task.data else '')[0]):
        where = f'{task.dataset} {split} judgement {number}'
        if 'positive_passages' in row:
            query = str(get(row, 'query_id', where, object))
            add(queries, query, fill(task.query, {'text': get(row, 'query', where)}, where), where)
            for grade, column in enumerate(('negative_passages', 'positive_passages')):
                passages = row.get(column) or []
                if not isinstance(passages, list) or not all(isinstance(entry, dict) for entry in passages):
                    raise ValueError(f'{where}: {column!r} must be a list of {{"docid": ...}}')
                for passage in passages:
                    add(grades[query], str(get(passage, 'docid', where, object)), grade, where)
        elif row.keys() >= {'id', *of_pair[0], *of_pair[1]}:
            name = str(row['id'])
            for texts, template in ((queries, task.pair[0]), (corpus, task.pair[1])):
                add(texts, name, fill(template, row, where), where)
            grades[name][name] = 1
        else:
            query, document, score = (str(get(row, name, where, object))
                                      for name in ('query-id', 'corpus-id', 'score'))
            if not (whole := re.fullmatch(r'(-?\d{1,9})(\.0*)?', score)):
                raise ValueError(f'{where}: score {score:.80} is not a whole number')
            add(grades[query], document, int(whole[1]), where)
    return grades


def judged_queries(where, queries, grades, corpus):
    """The rows of a split. As in trec_eval, a judged document that is not in the corpus counts as one that is
    never found; a query that is not there, or has no relevant document, is left out. Each is counted."""
    judged = set().union(*grades.values())
    say_absent(f'{where}: judged documents', judged, corpus, 'they count as never found')
    say_absent(f'{where}: judged queries', grades.keys(), queries, 'they are left out')
    grades = {query: graded for query, graded in grades.items() if query in queries}
    rows = [{'id': query, 'query': queries[query], 'grades': graded} for query, graded in grades.items()
            if max(graded.values(), default=0) >= 1]
    if not rows:
        raise ValueError(f'{where}: no query has a relevant document')
    if left := len(grades) - len(rows):
        print(f'{where}: {left} of {len(grades)} queries have no relevant document', file=sys.stderr)
    return rows


def say_absent(what, judged, there, then):
    """Print how many judged ids have no text; ValueError if all of them have none."""
    absent = judged - there.keys()
    if not absent:
        return
    line = f'{what}: {len(absent):,} of {len(judged):,} are in no file, as {min(absent)!r:.80}'
    if len(absent) == len(judged):
        raise ValueError(f'{line}: ids of the judgements and of the texts must be the same')
    print(f'{line}: {then}', file=sys.stderr)


def ranking(row, ids, scores):
    """A query's ten best documents, of equals the greater id first, and how many share the tenth's score."""
    scores = np.asarray(scores, np.float64).round(6)
    tenth = np.partition(scores, -min(10, len(ids)))[-10:].min()
    at = np.flatnonzero(scores >= tenth)
    best = at[np.argsort(-scores[at], kind='stable')][:10]
    ranked = {'id': row['id'], 'gold': row['grades'], 'docs': [ids[i] for i in best],
              'scores': scores[best].tolist()}
    if len(at) > len(best):
        tied = at[scores[at] == tenth]
        grades = [grade for i in tied if (grade := row['grades'].get(ids[i], 0)) >= 1]
        ranked['tied'] = {'size': len(tied), 'grades': sorted(grades, reverse=True)}
    return ranked
