"""Model cards: the README.md of a checkpoint or a fine-tuned model, with metadata for the Hugging Face hub.

A card is made of the files beside it: config.json, and state.json and the run's log.jsonl, or run.json. It
names no folder of this machine. It ends with the sha256 of what stands above, by which an edit is noticed: a
README.md that somebody has edited, or that came with an encoder, is never written again."""
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from nanoencoder.figures import phases_in_words
from nanoencoder.files import read_json, saved_state, saved_steps, sha256_of_text
from nanoencoder.huggingface import read_prediction, run_of_checkpoint
from nanoencoder.predictions import read_about
from nanoencoder.settings import as_tuple
from nanoencoder.tokenizer import is_hub_id

CARD = 'README.md'
SEAL = '\n<!-- written by nanoEncoder, which leaves it alone once it is edited: sha256 {} -->\n'
OPENED_BY = {   # how the name of an architecture ends: the class that opens it, what the hub calls its task
    'ForMaskedLM': ('AutoModelForMaskedLM', 'fill-mask'),
    'ForCausalLM': ('AutoModelForCausalLM', 'feature-extraction'),
    'ForTokenClassification': ('AutoModelForTokenClassification', 'token-classification'),
    'ForSequenceClassification': ('AutoModelForSequenceClassification', 'text-classification'),
    'ForQuestionAnswering': ('AutoModelForQuestionAnswering', 'question-answering')}
TASKS = {'SC': 'text-classification', 'TC': 'token-classification', 'QA': 'question-answering',
         'IR': 'text-retrieval'}    # what the hub calls our kinds
ALONE = {'metric': ('SC', 'ML'), 'score': ('IR',), 'scale': ('IR',)}  # settings of some kinds of task alone
FROM_BASE = 'language', 'license', 'license_name', 'license_link'   # what a card takes from its base's


class Loss(NamedTuple):
    """What a validation says of one objective."""
    objective: str
    loss: float         # nats a target
    targets: int        # older logs do not say this
    accuracy: float     # nor this
    step: int
    rows: int           # held-out rows that were read


def write_card(folder, known={}, scores=()):
    """Write the card of a checkpoint or of a fine-tuned model, unless a README.md is there that is not ours.
    Returns whether it did.

    known   what no file beside it says of a fine-tuned model: its `base_model`, a folder or hub id, and the
            `nanoencoder_commit`. Where it is missing, the card that is there already says it
    scores  rows of evaluate.frame_of, of predictions that this model made"""
    folder = Path(folder).absolute()
    path = folder / CARD
    if path.exists():
        if not is_unedited(path):
            return False
        known = card_data(path) | known
    if (folder / 'run.json').exists():
        text = card_of_fine_tuned(folder, known, scores)
    else:
        text = card_of_checkpoint(folder, scores)
    path.write_text(text + SEAL.format(sha256_of_text(text)), encoding='utf-8')
    return True


def is_unedited(path):
    """Whether a card ends with the sha256 of what stands above its last line."""
    text, seal, digest = path.read_text(encoding='utf-8').rpartition(SEAL.split('{')[0])
    return bool(seal) and SEAL.format(sha256_of_text(text)) == seal + digest


def card_of_checkpoint(folder, scores):
    """Return the card of a pretraining's checkpoint, whose state.json has been written."""
    state = saved_state(folder)
    settings = state['settings']
    measured = last_validation(folder.parent / 'log.jsonl', state['step'])
    base = settings['weights_from']
    total = sum(steps for _, steps in settings['phases']) * settings.get('repeat', 1)
    corpus = state['corpus_meta']
    title = settings['name']
    if state['step'] < total:
        title += f', step {state["step"]:,} of {total:,}'
    commits = dict.fromkeys(start['git'] for start in state['starts'] if start['git'])
    last = state['starts'][-1]
    seconds = timedelta(seconds=round(state['seconds']))
    facts = {
        'parameters': f'{state["pretraining"]["family"]}, without the output head',
        'begun from': origin_in_words(settings, state),
        'phases': phases_in_words(settings),
        'steps done': f'{state["step"]:,} of {total:,}',
        'tokens read': f'{state["pretraining"]["tokens"]:,}',
        'corpus': f'{corpus["tokens"]:,} tokens, fingerprint `{corpus["fingerprint"]}`',
        'tokenizer': f'fingerprint `{corpus["tokenizer"]}`',
        'trained in': f'{seconds} on {last["processes"]} x {last["device"]}, {last["dtype"]}',
        'commit of nanoEncoder': ', '.join(commits) or 'not known',
    }
    results = [
        {'task': 'fill-mask', 'dataset': f'held-out text of corpus {corpus["fingerprint"]:.12}',
         'metric': f'{one.objective} loss in nats, lower is better', 'mean': one.loss}
        for one in measured]
    chosen = {name: value for name, value in state['fixed'].items() if name in settings}
    metadata = {
        'base_model': base.partition('@')[0] if is_hub_id(base) else None,
        'datasets': hub_dataset_of(settings['corpus'], corpus['fingerprint']),
        'tags': ['nanoencoder', *dict(settings['phases'])],
        'corpus_fingerprint': corpus['fingerprint'],
    }
    return '\n'.join([
        front_matter(folder, title, metadata | taken_from(base), [*results, *scores]),
        f'# {title}\n\nA text encoder that nanoEncoder has pretrained.\n',
        table(('', ''), facts.items()),
        losses_in_words(measured),
        scores_in_words(scores),
        how_to_open(folder),
        settings_in_words(chosen)])


def card_of_fine_tuned(folder, known, scores):
    """Return the card of a fine-tuned model, whose run.json has been written."""
    about = read_about(folder)
    settings = about['settings']
    task = settings['kind']
    rows = about['rows']
    dataset = rows['dataset']
    past = about['pretraining']
    base = known.get('base_model', '')
    model = known.get('fine_tuned_from')
    if not model:
        model = base if is_hub_id(base) else run_of_checkpoint(base).name
    facts = {
        'fine-tuned from': model,
        'task': f'{task}, {dataset}',
        'labels': ', '.join(map(str, about['labels'])) or 'none',
        'tokens of a text that are read': f'{settings["max_length"]:,}',
        'training data': f'sha256 `{about["training_data"]}`',
        'commit of nanoEncoder': known.get('nanoencoder_commit') or 'not known',
    }
    for name in ('query', 'document') if task == 'IR' else ('template',):
        facts[name] = f'`{rows[name]}`'
    if past:
        facts['pretraining'] = f'{phases_in_words(past)}, {past["tokens"]:,} tokens'
    metadata = {
        'base_model': base.partition('@')[0] if is_hub_id(base) else None,
        'fine_tuned_from': model,
        'datasets': [rows['source'].partition('@')[0]] if rows['source'] else None,
        'tags': ['nanoencoder'],
        'training_data_sha256': about['training_data'],
        'nanoencoder_commit': known.get('nanoencoder_commit'),
    }
    metadata |= {name: known[name] for name in FROM_BASE if name in known} | taken_from(base)
    title = f'{model}, fine-tuned on {dataset}'
    return '\n'.join([
        front_matter(folder, title, metadata, scores),
        f'# {title}\n\nAn encoder that nanoEncoder has fine-tuned.\n',
        table(('', ''), facts.items()),
        scores_in_words(scores),
        how_to_open(folder),
        predict_in_words(about),
        settings_in_words({
            name: value for name, value in settings.items()
            if task in ALONE.get(name, (task,))})])


def last_validation(path, step):
    """Return the Losses of the last validation that a run's log has up to a step."""
    measured = []
    for row in path.read_bytes().splitlines():
        if b'"val_rows"' not in row:
            continue
        line = json.loads(row)
        if line['step'] <= step:
            measured = []
            for name in line:
                if not re.fullmatch('val_.*_loss', name):
                    continue
                objective = name.removeprefix('val_').removesuffix('_loss')
                measured.append(Loss(
                    objective.upper(), line[name], line.get(f'val_{objective}_targets'),
                    line.get(f'val_{objective}_accuracy'), line['step'], line['val_rows']))
    return measured


def origin_in_words(settings, state):
    """Say what a run began with. Folders go by the names of their runs."""
    if settings['branch_from']:
        run = run_of_checkpoint(settings['branch_from']).name
        return f'step {state["starts"][0]["step"]:,} of {run}'
    base = settings['weights_from']
    if base:
        return f'the weights of {base if is_hub_id(base) else run_of_checkpoint(base).name}'
    return 'new weights'


def hub_dataset_of(corpus, fingerprint):
    """Return the id of the hub's dataset that a corpus was made of; None if it was made of files, or is no
    longer there as it was."""
    path = Path(corpus, 'meta.json')
    if not path.exists():
        return None
    meta = read_json(path)
    source = meta['settings']
    if meta['fingerprint'] != fingerprint or source['source'] != 'hub':
        return None
    return [source['path'].partition('@')[0]]


def taken_from(base):
    """Return the language and the licence that the card of a base names, if its card is on this machine."""
    from huggingface_hub import try_to_load_from_cache
    if not base:
        return {}
    if is_hub_id(base):
        repository, _, revision = base.partition('@')
        path = try_to_load_from_cache(repository, CARD, revision=revision or None)
    else:
        path = Path(base, str(max(saved_steps(base), default='')), CARD)
    if not isinstance(path, (str, Path)) or not Path(path).is_file():    # the cache may say where it is not
        return {}
    data = card_data(path)
    return {name: data[name] for name in FROM_BASE if name in data}


def card_data(path):
    """Return the metadata of a card; {} if it cannot be read, which must not stop a run."""
    import yaml
    from huggingface_hub import ModelCard
    try:
        return ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except (ValueError, yaml.YAMLError):
        return {}


def front_matter(folder, title, metadata, results):
    """Return the metadata of a card between lines of ---, as the hub reads it. huggingface_hub checks it.

    results  {'task', 'dataset', 'metric', 'mean'} each"""
    from huggingface_hub import EvalResult, ModelCardData
    library, task, _ = opened_by(folder)
    scored = [
        EvalResult(task_type=TASKS.get(row['task'], row['task']), dataset_type=row['dataset'],
                   dataset_name=row['dataset'], metric_type=row['metric'], metric_value=float(row['mean']))
        for row in results]
    data = ModelCardData(library_name=library, pipeline_tag=task, model_name=title,
                         eval_results=scored or None, **metadata)
    return f'---\n{data.to_yaml()}\n---\n'


def opened_by(folder):
    """Return (the library that opens a folder, what the hub calls its task, the class of that library)."""
    if (folder / 'modules.json').exists():
        # without labels it is for vectors
        has_labels = 'id2label' in read_json(folder / 'config.json')
        task = 'text-classification' if has_labels else 'sentence-similarity'
        return 'sentence-transformers', task, 'SentenceTransformer'
    architecture, *_ = read_json(folder / 'config.json').get('architectures') or ['']
    for ending, (name, task) in OPENED_BY.items():
        if architecture.endswith(ending):
            # pipeline('fill-mask') reads a prediction at the mask itself
            if task == 'fill-mask' and read_prediction(folder).offset:
                task = 'feature-extraction'
            return 'transformers', task, name
    return 'transformers', 'feature-extraction', 'AutoModel'


def how_to_open(folder):
    """Return the lines of Python that open a folder from within it."""
    library, _, name = opened_by(folder)
    if library == 'sentence-transformers':
        lines = [f'from sentence_transformers import {name}',
                 f"model = {name}('.')"]
    else:
        lines = [f'from transformers import {name}, AutoTokenizer',
                 "tokenizer = AutoTokenizer.from_pretrained('.')",
                 f"model = {name}.from_pretrained('.')"]
    advice = "In place of '.' write its folder or its name on the hub."
    return f'## Open it\n\n{advice}\n\n{python(lines)}'


def predict_in_words(about):
    """Say how nanoEncoder opens a fine-tuned model, and whether it alone does."""
    files = 'new.csv --out=labels.csv'
    if about['settings']['kind'] == 'IR':
        files = 'queries.jsonl --documents=corpus.jsonl --out=found.jsonl'
    text = f'In nanoEncoder, `python predict.py FOLDER {files}` reads the rows of a file.'
    if about.get('opens_in') == 'predict.py alone':
        text += ' Only that reads the head: the lines above open the encoder without it.'
    return text + '\n'


def losses_in_words(measured):
    """Return the section of held-out losses, or '' if nothing was measured."""
    if not measured:
        return ''
    rows = []
    for one in measured:
        accuracy = '-' if one.accuracy is None else f'{one.accuracy:.1%}'
        targets = '-' if one.targets is None else f'{one.targets:,}'
        rows.append((one.objective, f'{one.loss:.4f}', targets, accuracy))
    heads = 'objective', 'loss, nats', 'predicted tokens', 'right'
    return (f'## Held-out losses\n\nOf {measured[0].rows:,} rows of text that no step has read, after step '
            f'{measured[0].step:,}. Lower is better. Of an objective that is none of its phases a loss says '
            f'nothing.\n\n{table(heads, rows)}')


def scores_in_words(scores):
    """Return the section of scores of predictions, or '' if there are none."""
    if not scores:
        return ''
    rows = []
    for row in scores:
        _, _, variant = row['model'].partition('+')
        how = ', '.join(filter(None, [row['method'], variant]))
        rows.append((row['dataset'], how, row['metric'], row['shown'], row['n'], row['seeds']))
    heads = 'dataset', 'how', 'metric', 'score [95 %]', 'test instances', 'seeds'
    return f'## Scores\n\nIn percent, higher is better.\n\n{table(heads, rows)}'


def settings_in_words(settings):
    """Return the section of settings, as the lines of a config."""
    lines = [f'{name} = {as_tuple(value)!r}' for name, value in settings.items()]
    return f'## Settings that decide its numbers\n\n{python(lines)}'


def python(lines):
    """Return lines of Python as a block of markdown."""
    code = '\n'.join(lines)
    return f'```python\n{code}\n```\n'


def table(heads, rows):
    """Return a table of markdown."""
    rows = [heads, ['---'] * len(heads), *rows]
    return ''.join(f'| {" | ".join(map(str, row))} |\n' for row in rows)
