"""A small model, and tasks that a word decides."""
import itertools
from pathlib import Path

import bench
import finetune
from conftest import jsonl, replace, small_run
from model import Model
from nanoencoder import huggingface, settings as configs, tasks
from tokenizer_files import TOKENIZER

KINDS = 'SC', 'TC', 'QA', 'IR'
FILLER = 'array axis return value input shape index type number list of the a is in'.split()


def random_model(folder, tie_word_embeddings=True, **sizes):
    """A checkpoint of a small model with random weights."""
    cfg = small_run(tie_word_embeddings=tie_word_embeddings, **sizes)
    model = Model(cfg.model)
    bench.initialise(model, seed=1)
    folder.mkdir()
    huggingface.write_folder(folder, model.sizes, 128, TOKENIZER.ids, dict(model.named_parameters()))
    TOKENIZER.save(folder)
    return folder


def sentence(draw, *words):
    """Filler with these words somewhere in it."""
    text = draw.choices(FILLER, k=draw.randint(3, 20))
    for word in words:
        text.insert(draw.randint(0, len(text)), word)
    return text


def rows_of_a_word(draw, k):
    """{kind: a row}: the colour is the label, the city is the entity and the answer, if there is one.
    A text of several labels has either colour, both or none."""
    colour = draw.choice(('red', 'blue'))
    city = draw.choice(('Rome', 'Paris', 'Oslo'))
    words = sentence(draw, city)
    context = ' '.join(words)
    answers = {'text': [city], 'answer_start': [context.index(city)]}
    if k % 4 == 0:
        context = ' '.join(sentence(draw))
        answers = {'text': [], 'answer_start': []}
    colours = [[], ['red'], ['blue'], ['blue', 'red']][k % 4]
    return {
        'SC': {'id': k, 'text': ' '.join(sentence(draw, colour)), 'label': colour},
        'TC': {'id': k, 'tokens': words, 'tags': ['B-LOC' if word == city else 'O' for word in words]},
        'QA': {'id': str(k), 'question': 'Which city?', 'context': context, 'answers': answers},
        'ML': {'id': k, 'text': ' '.join([*colours, *words]), 'label': colours}}


def write_retrieval(draw, folder):
    """A text finds the document that is about it."""
    trained = [' '.join(draw.choices(FILLER, k=3)) for _ in range(600)]
    held = [
        ' '.join(words)
        for words in itertools.product(FILLER[:6], FILLER[6:10], ('Rome', 'Oslo'))]
    for split, texts in {'train': trained, 'validation': held[:24], 'test': held[24:]}.items():
        jsonl(folder / f'{split}.jsonl', [
            {'id': text, 'query': text, 'positive': f'about {text} and more'}
            for text in texts])


def data_of(toy, kind):
    return Path(toy[kind][2].removeprefix('--data='))


def merge(words, *more):
    """A command line in which what comes later wins."""
    last = {word.split('=')[0]: word for word in (*words, *more)}
    return list(last.values())


def task(name, **changes):
    cfg, _ = configs.parse(finetune.Settings, [f'configs/tasks/{name}.py', '--model=x'])
    return replace(cfg, **changes)


TAGGING = tasks.kind_of(tasks.Task(kind='TC', dataset='d', source='x'))
QUESTIONS = tasks.kind_of(task('squad'))


def examples_of(kind, rows, labels, tokenizer, max_length):
    """([Example], what is lost) of rows."""
    rows = {'train': rows, 'validation': [], 'test': [], 'corpus': {}}
    return kind.encode(rows, labels, tokenizer, max_length)['train']
