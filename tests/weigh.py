"""Print how many tokens of Python each part of the repository has, and how many more or fewer than on main.

    make weigh WEIGH_AGAINST=HEAD~3

Without a commit it compares with main, and with HEAD where that is checked out or not there. This is a report
for whoever reviews a change; tests/test_house.py has bounds for what is read together."""
import collections
import io
import os
import subprocess
import tokenize
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENDMARKER)
# What a reader holds at once, by files and folders. A file belongs to the first part that has it.
READ_TOGETHER = {
    'a training step': ('model.py', 'data.py', 'pretrain.py'),
    'a fine-tuning': ('finetune.py', 'nanoencoder/tasks'),
    'a score': ('evaluate.py', 'nanoencoder/metrics.py', 'nanoencoder/predictions.py'),
}
PARTS = (*READ_TOGETHER, 'other scripts', 'the rest of nanoencoder', 'studies', 'speedrun',
         'examples', 'bench', 'tests', 'configs')


def tokens_of_lines(text):
    """{line: how many of Python's tokens begin on it}, without comments and layout."""
    counts = collections.Counter()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            counts[token.start[0]] += 1
    return counts


def part_of(path):
    """The part of the repository that a file, 'studies/run.py', belongs to."""
    path = PurePosixPath(path)
    for part, places in READ_TOGETHER.items():
        if any(path.is_relative_to(place) for place in places):
            return part
    if len(path.parts) == 1:
        return 'other scripts'
    if path.name == 'config.py':
        return 'configs'    # of a study
    if 'tests' in path.parts:
        return 'tests'
    if path.parts[0] == 'nanoencoder':
        return 'the rest of nanoencoder'
    return path.parts[0]


def git(*words):
    return subprocess.check_output(['git', *words], cwd=ROOT, text=True, stderr=subprocess.DEVNULL)


def commit_of(name):
    """The commit that a name stands for, or '' if git knows none."""
    asked = ['git', 'rev-parse', '--quiet', '--verify', f'{name}^{{commit}}']
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def weights(files):
    """{part: tokens} of {path: text}."""
    total = collections.Counter()
    for path, text in files.items():
        total[part_of(path)] += tokens_of_lines(text).total()
    return total


def files_now():
    """{path: text} of the Python files here, also of those that git does not know yet."""
    listed = git('ls-files', '--cached', '--others', '--exclude-standard', '*.py').splitlines()
    return {path: (ROOT / path).read_text() for path in listed if (ROOT / path).exists()}


def files_of(commit):
    listed = git('ls-tree', '-r', '--name-only', commit).splitlines()
    return {path: git('show', f'{commit}:{path}') for path in listed if path.endswith('.py')}


def main():
    against = os.environ.get('WEIGH_AGAINST') or 'main'
    commit = commit_of(against)
    if against == 'main' and commit in ('', commit_of('HEAD')):
        against = 'HEAD'
        commit = commit_of('HEAD')
    if not commit:
        raise SystemExit(f'error: git knows no commit {against}')
    now = weights(files_now())
    before = weights(files_of(commit))
    parts = dict.fromkeys((*PARTS, *now, *before))     # a new folder is a part of its own
    print(f'{"tokens of Python":<24}{"now":>10}{"against " + against:>24}')
    for part in parts:
        print(f'{part:<24}{now[part]:>10,}{now[part] - before[part]:>+24,}')
    print(f'{"all":<24}{now.total():>10,}{now.total() - before.total():>+24,}')


if __name__ == '__main__':
    main()
