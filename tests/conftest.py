import dataclasses
import fnmatch
import functools
import gc
import importlib
import io
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy
import pytest
import torch

ROOT = Path(__file__).parent.parent
LLAMA3 = ROOT.parent / 'shared/tokenizer/llama3.model'  # where somebody has put it
# threads of small models only wait for each other
os.environ |= {'HF_HUB_OFFLINE': '1', 'OMP_NUM_THREADS': '1'}
os.chdir(ROOT)

import pretrain
from examples import embedded_docs
from nanoencoder import files, prepare
from nanoencoder.files import json_lines, write_json
from nanoencoder.settings import flat, make_settings, parse, run_main
from studies.hold_out import read_rows


def run_process(*arguments, timeout=120, **options):
    """Python in a process of its own, as a user starts it."""
    return subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=timeout, **options)


def run_script(script, *arguments):
    """What `python <script> ...` does, in this process, which has torch imported: seconds less each time."""
    out = io.StringIO()
    err = io.StringIO()
    code = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, 'argv', [script, *map(str, arguments)])
        patch.setattr(sys, 'stdout', out)
        patch.setattr(sys, 'stderr', err)
        try:
            run_main(importlib.import_module(script.removesuffix('.py')).main)
        except SystemExit as exit:
            code = exit.code or 0
        except Exception:
            code = 1
            traceback.print_exc()
    return subprocess.CompletedProcess([script, *arguments], code, out.getvalue(), err.getvalue())


def ran(script, *arguments):
    """The same, of what is to end well."""
    result = run_script(script, *arguments)
    assert result.returncode == 0, result.stderr
    return result


def torchrun(processes, *arguments):
    launcher = ['-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
    return run_process(*launcher, *arguments, timeout=200, env=os.environ | {'PYTHONPATH': str(ROOT)})


def pytest_collection_finish():
    gc.freeze()  # what was imported stays: the collector need not look at it again


def pytest_sessionfinish():
    for process in multiprocessing.active_children():  # of a test that failed
        process.kill()


FORKS = multiprocessing.get_context('forkserver')
FORKS.set_forkserver_preload(['pytest', 'pretrain', 'finetune'])  # so that a start costs no seconds
folder_of_prints = functools.cache(tempfile.TemporaryDirectory)    # while this process lives


class Script(FORKS.Process):
    """Almost `python <script> <words>` here: a process forked from one that has torch imported."""
    def __init__(self, script, *words, **environment):
        super().__init__()
        self.words = [script, *map(str, words)]
        self.environment = os.environ | environment
        folder = Path(tempfile.mkdtemp(dir=folder_of_prints().name))
        self.prints = [folder / 'out', folder / 'err']
        self.start()

    def run(self):
        for number, path in enumerate(self.prints, 1):  # stdout, stderr
            file = path.open('a')
            os.dup2(file.fileno(), number)
        os.environ.clear()
        os.environ |= self.environment
        sys.argv = self.words
        run_main(importlib.import_module(self.words[0].removesuffix('.py')).main)

    def ended(self, timeout=120):
        """As subprocess.run returns it."""
        self.join(timeout)
        self.kill()
        assert self.exitcode is not None, f'{self.words} has not ended in {timeout} s'
        out, err = (path.read_text() for path in self.prints)
        return subprocess.CompletedProcess(self.words, self.exitcode, out, err)

    def ended_well(self, timeout=120):
        result = self.ended(timeout)
        assert result.returncode == 0, result.stderr
        return result


# [(row of a step, stretch of the corpus)]
ROWS = [(i, i % 40) for i in range(300)]
# of what is exported: EuroBERT, and with norms of q and k Qwen3
as_eurobert_and_as_qwen3 = pytest.mark.parametrize('qk_norm', [False, True])


on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')


def assert_near(ours, theirs, atol=1e-5):
    """Two tensors, or all of two collections of them, are equal but for rounding."""
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)


def open_whole(architecture, folder):
    """A model that transformers opens: no weight is missing, and none is left over."""
    model, about = architecture.from_pretrained(folder, output_loading_info=True)
    assert not any(about.values())
    return model


def decayed_and_not(parameters):
    """Groups of torch's AdamW: matrices, and gains and biases, which have no weight decay."""
    parameters = list(parameters)
    matrices = [p for p in parameters if p.ndim == 2]
    vectors = [p for p in parameters if p.ndim == 1]
    return [{'params': matrices, 'weight_decay': 0.1}, {'params': vectors, 'weight_decay': 0.0}]


def torch_adamw(parameters, lr):
    """torch's, with our settings."""
    return torch.optim.AdamW(decayed_and_not(parameters), lr, betas=(0.9, 0.95), eps=1e-5)


def flip(path, byte=-1):
    """Change a bit of a file. Returns what it held."""
    content = path.read_bytes()
    changed = bytearray(content)
    changed[byte] ^= 1
    path.write_bytes(changed)
    return content


def edit(path, old, new):
    """Replace a text in a file, which holds it."""
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new))


def change(folder, **about):
    """Rewrite what the run.json of each fine-tuning below a folder says."""
    for path in folder.rglob('run.json'):
        content = files.read_json(path) | about
        content.pop('digest')
        files.write_sealed(path, content)


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


def copy_program(folder):
    """Where a test may change it."""
    for script in ROOT.glob('*.py'):
        shutil.copy(script, folder)
    for name in ('nanoencoder', 'configs'):
        shutil.copytree(ROOT / name, folder / name)


def write_log(run, steps, loss, training=5.0, **config):
    """What a pretraining leaves in its folder: config.json, and a log with a validation each third step and a
    last line that is being written."""
    about = {'name': run.name, 'phases': [['mlm', 12]], 'row': 'r', 'seed': 1, 'branch_from': '',
             'starts': [{'step': 0}], 'corpus_meta': {'fingerprint': 'f' * 64, 'unigram_loss': 6.5}}
    write_json(run / 'config.json', about | config)
    lines = []
    for step in steps:
        line = {'step': step, 'phase': 'mlm', 'loss': training, 'lr': 0.1, 'tokens': 8 * step, 'seconds': 1.0,
                'tokens_per_second': 100.0}
        if step % 3 == 0:
            line['val_mlm_loss'] = loss - step / 100
        lines.append(line)
    (run / 'log.jsonl').write_text(json_lines(lines) + '{"step": ')


@functools.cache
def texts():
    """A few hundred documents of English: the docstrings of some of numpy's files."""
    root = Path(numpy.__file__).parent
    files = ['_core/_add_newdocs.py', 'lib/_function_base_impl.py', 'linalg/_linalg.py',
             '_core/fromnumeric.py']
    return [text for file in files for text in embedded_docs.docstrings(root / file)]


@pytest.fixture(scope='session')
def corpus(tmp_path_factory):
    """A small prepared corpus of 4,096 ids, several shards, train and validation."""
    folder = tmp_path_factory.mktemp('corpus')
    rows = [{'text': text} for text in texts()]
    for k in range(0, len(rows), 100):
        jsonl(folder / f'texts/{k:04d}.jsonl', rows[k:k + 100])
    cfg = prepare.Settings(source='folder', path=str(folder / 'texts'), out=str(folder / 'out'),
                           val_permille=200, shard_bytes=100_000)
    prepare.write_corpus(cfg)
    return folder / 'out'


SMALL = dict(
    phases=(('clm', 6), ('mlm', 6)),
    vocab_size=4_096, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2,
    context=64, rows_per_step=4, micro_rows=2,
    lr=3e-3, warmup_steps=3, decay_steps=3,
    log_every=1, val_every=6, val_rows=5, save_every=4, keep=9,
    device='cpu')


@pytest.fixture
def corpus_to_damage(corpus, tmp_path):
    return shutil.copytree(corpus, tmp_path / 'copied')


def small_run(**changes):
    return make_settings(pretrain.Settings, {'name': 'run'} | SMALL | changes)


@pytest.fixture
def settings(corpus, tmp_path):
    """A function that makes a small run's Settings, writing under a temporary folder."""
    return functools.partial(small_run, corpus=str(corpus), out=str(tmp_path / 'out'))


@pytest.fixture
def trained(settings):
    """A function that makes a small run's Settings and trains it. Returns them."""
    def train(**changes):
        cfg = settings(**changes)
        pretrain.train(cfg)
        return cfg
    return train


def replace(cfg, **changes):
    """Settings with some changed, by their names on the command line."""
    return make_settings(type(cfg), flat(cfg) | changes)


def arguments(cfg, without=''):
    """The command line that gives these settings but one."""
    return [f'--{name}={value}' for name, value in flat(cfg).items() if name != without]


def log_lines(run, *, timed=False):
    """log.jsonl as a list, without what depends on the clock."""
    lines = read_rows(Path(run, 'log.jsonl'))
    if not timed:
        for line in lines:
            del line['seconds'], line['tokens_per_second']
    return lines


def refused(words, function, *arguments, **options):
    """A ValueError with these words, of which run_main makes a line."""
    with pytest.raises(ValueError, match=words):
        function(*arguments, **options)


def refused_line(words, script, *arguments):
    """A script that ends with one line, which has these words."""
    one_line_error(run_script(script, *arguments), words)


def one_line_error(result, words):
    """A mistake of the user's: exit code 2, one line, no traceback, and the words that help."""
    assert result.returncode == 2, result.stderr
    assert 'Traceback' not in result.stderr
    line, = (line for line in result.stderr.splitlines() if line.startswith('error: '))
    assert result.stderr.strip().endswith(line), result.stderr
    assert re.search(words, line), (words, line)


@pytest.fixture(scope='session')
def checkpoint(tmp_path_factory):
    """The folder of a small model with random weights."""
    from toys import random_model
    return random_model(tmp_path_factory.mktemp('model') / 'random', tie_word_embeddings=False)


@pytest.fixture(scope='session')
def toy(tmp_path_factory):
    """{kind: command line} of the four tasks."""
    from toys import KINDS, rows_of_a_word, write_retrieval
    draw = random.Random(0)
    folder = tmp_path_factory.mktemp('toy')
    for split, count in {'train': 160, 'validation': 40, 'test': 40}.items():
        rows = [rows_of_a_word(draw, k) for k in range(count)]
        for kind in rows[0]:
            jsonl(folder / kind / f'{split}.jsonl', [row[kind] for row in rows])
    write_retrieval(draw, folder / 'IR')
    lines = {kind: [f'--kind={kind}', '--dataset=toy', f'--data={folder / kind}', '--steps=30', '--lr=3e-3',
                    '--device=cpu'] for kind in (*KINDS, 'ML')}
    lines['QA'].append('--template={question} {context}')
    return lines


@pytest.fixture
def command(toy, checkpoint, tmp_path):
    """A function: the command line that fine-tunes the small model on the toy task of a kind, or does what
    `more` says, without the settings that are not of that."""
    from toys import merge

    def words(kind, *more):
        without = ()
        if '--grid' in more:
            without = '--lr='
        if '--probe' in more:
            without = '--lr=', '--steps='
        task = [word for word in toy[kind] if not word.startswith(without)]
        return merge(['finetune.py', *task], f'--model={checkpoint}', f'--predictions={tmp_path}/p', *more)
    return words


@pytest.fixture
def prepared(command, checkpoint):
    """A function: (cfg, base, data) of a fine-tuning that can begin, by settings with some changed."""
    import finetune

    def prepare(kind, model=checkpoint, **changes):
        _, *words = command(kind, f'--model={model}')
        cfg, _ = parse(finetune.Settings, words)
        cfg, base, (data,) = finetune.open_model_and_task(dataclasses.replace(cfg, **changes))
        return cfg, base, data
    return prepare


@pytest.fixture(scope='session')
def folders(tmp_path_factory):
    """{family: a folder of random weights}, all made by transformers."""
    from peer_folders import FAMILIES, TRAINED, another, byte_level, small_config, word_pieces
    made = tmp_path_factory.mktemp('peers')
    for family in FAMILIES:
        trained = word_pieces() if family == 'bert' else byte_level()
        if family in TRAINED:
            trained = TRAINED[family]().train_new_from_iterator(texts()[:60], 800)
        config = small_config(family)
        config.pad_token_id = trained.pad_token_id
        with torch.random.fork_rng():
            torch.manual_seed(0)
            another(config)(made / family)
        trained.save_pretrained(made / family)
    return {family: made / family for family in FAMILIES}


@pytest.fixture
def hub(folders, tmp_path, monkeypatch):
    """(a folder of repositories, the revision and the patterns of each download from it). acme/mini is BERT,
    whose revision is always the commit aaaa."""
    shutil.copytree(folders['bert'], tmp_path / 'hub/acme/mini')
    asked = []

    def snapshot_download(name, revision, allow_patterns):
        asked.append((revision, [*allow_patterns]))
        source = tmp_path / 'hub' / name
        for path in source.rglob('*'):
            inside = path.relative_to(source)
            if path.is_file() and any(fnmatch.fnmatch(inside, pattern) for pattern in allow_patterns):
                target = tmp_path / 'cache/aaaa' / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        return str(tmp_path / 'cache/aaaa')
    monkeypatch.setattr('huggingface_hub.snapshot_download', snapshot_download)
    return tmp_path / 'hub', asked


@pytest.fixture
def rows(tmp_path):
    """Two rows x three pretraining seeds x two fine-tuning seeds; and an untrained model."""
    from answers import CLM, PAST, answers, write
    folder = tmp_path / 'predictions'
    for past, right in [(PAST | {'row': 'mlm'}, 60), (CLM, 80)]:
        for seed, k in itertools.product(range(3), range(2)):
            number = 10 * seed + k
            write(folder / f'{past["row"]}-s{seed}/SC/toy', answers(right + seed - k), f'lr1e-04_sd{number}',
                  settings={'steps': 5}, pretraining=past | {'seed': seed},
                  checkpoint=f'{past["row"]} {seed}', tokenizer='k' * 64, sizes={'layers': 2},
                  training_data='t' * 64,
                  grid=[[1e-4], [10 * seed, 10 * seed + 1]])
    write(folder / 'untrained/SC/toy', answers(50))
    return folder
