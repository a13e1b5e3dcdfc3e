"""Which documents a fine-tuned model of retrieval finds for a query."""
import numpy as np

from nanoencoder.fine_tuned import outputs_of
from nanoencoder.tables import stream
from nanoencoder.tasks.files import id_of
from nanoencoder.tasks.kind import Example, framed
from nanoencoder.tasks.retrieval import ranking
from nanoencoder.tasks.task import fill


def read_documents(path, source, template):
    """Return {id: text} of a file of documents. They may lack a title. The id of a row that has
    none is its number."""
    texts = {}
    for number, row in enumerate(stream(path, source), 1):
        where = f'{path} row {number}'
        name = str(id_of(row) or row.get('id', number))
        if name in texts:
            raise ValueError(f'{where}: {name!r:.80} is the id of two documents')
        texts[name] = fill(template, {'title': '', **row}, where)
    if not texts:
        raise ValueError(f'{path}: holds no row')
    return texts


class Documents:
    """Ids of documents and their vectors, in the order of training: of equally near documents the last id
    comes first."""

    def __init__(self, cfg, model, texts, bar):
        self.ids = sorted(texts, reverse=True)
        vectors = []
        for start in range(0, len(self.ids), cfg.rows_at_once):
            block = [texts[name] for name in self.ids[start:start + cfg.rows_at_once]]
            vectors += vectors_of(cfg, model, block, bar)
        self.vectors = np.stack(vectors)

    def nearest(self, cfg, model, queries, bar):
        """Return (ids, cosines) of the ten nearest documents of each query."""
        answers = []
        for query in vectors_of(cfg, model, queries, bar):
            ranked = ranking({'id': '', 'grades': {}}, self.ids, self.vectors @ query)
            answers.append((ranked['docs'], ranked['scores']))
        return answers


def vectors_of(cfg, model, texts, bar):
    examples = []
    for text in texts:
        tokens = model.tokenizer.encode(text)
        examples.append(Example(framed(tokens, model.tokenizer, model.max_length)))
    return outputs_of(cfg, model, examples, bar, len(texts))
