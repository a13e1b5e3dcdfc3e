"""Every command of the README is valid bash, names files that exist, and passes the parser of its script."""
import re
import shlex
import subprocess

from nanoencoder import settings as configs
import data
import evaluate
import finetune
import pretrain
import tasks
from conftest import ROOT

COMMANDS = [line.strip() for line in (ROOT / 'README.md').read_text().splitlines() if re.match(r'    (\.venv/bin/|make |sed |git |cp )', line)]


def test_commands_are_bash_and_parse():
    assert len(COMMANDS) > 15
    for command in COMMANDS:
        assert subprocess.run(['bash', '-n', '-c', re.sub('<[a-z ]+>', 'x', command)]).returncode == 0, command
    parsed = 0
    for command in COMMANDS:
        words = shlex.split(command.replace('$HEAD', 'head'), comments=True)
        for script, cls, actions in (
                ('data.py', data.Settings, dict(part=-1, parts=1, verify=False, train_tokenizer=0)),
                ('pretrain.py', pretrain.Settings, dict(dry_run=False, world_size=1, tracker='')),
                ('tasks.py', tasks.Task, dict(baseline=False, predictions='')),
                ('finetune.py', finetune.Settings, dict(grid=False, part=0, parts=1, probe=False)),
                ('evaluate.py', evaluate.Settings, {})):
            rest = words[words.index(script) + 1:] if script in words else []
            if script == 'evaluate.py':  # its commands take names
                rest = [word for word in rest if word.startswith('--')]
            if 'configs/tasks/mine.py' in rest:
                rest[rest.index('configs/tasks/mine.py')] = 'configs/tasks/example_sc.py'  # of which it is a copy
            if rest and rest != ['--help']:
                if script == 'pretrain.py':  # what a hub's model would say of itself
                    actions = actions | {'inherit': lambda values: {'name': 'smollm2-135m-mlm40'}}
                configs.parse(cls, rest, **actions)
                parsed += 1
    assert parsed > 16


def test_the_line_of_the_table_that_the_readme_names():
    number = int(re.search(r'sed -n (\d+)p', (ROOT / 'README.md').read_text()).group(1))
    line = (ROOT / 'configs/paper_runs.txt').read_text().splitlines()[number - 1]
    assert configs.parse(pretrain.Settings, shlex.split(line))[0].name.startswith('610m-clm')
