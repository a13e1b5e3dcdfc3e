"""Fetch a commit of a repository that one does not trust, and write its files as git shows them to a reader.

Nothing of that repository runs here, no hook and no filter, and what it says of a commit is not believed: git
compares each object with its name. A file that Python would read otherwise than `git diff` shows is refused.
referee.py trains again what is written here."""
import hashlib
import io
import os
import subprocess
import sys
import tokenize
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
# git reads no settings but those of our own repository, which has none, and puts no object in another's place
ALONE = {'GIT_CONFIG_GLOBAL': os.devnull, 'GIT_CONFIG_NOSYSTEM': '1', 'GIT_NO_REPLACE_OBJECTS': '1',
         'GIT_NO_LAZY_FETCH': '1', 'GIT_TERMINAL_PROMPT': '0'}
OPTIONS = ['-c', f'core.hooksPath={os.devnull}', '-c', f'core.attributesFile={os.devnull}',
           '-c', 'fetch.fsckObjects=true']
PLAIN = '100644', '100755'      # git's modes of a file; others are of links and submodules
# what Python or its linker runs, and a diff does not show
HIDDEN = {'.so', '.pyd', '.dll', '.dylib', '.pyc', '.pyo', '.pth', '.zip', '.egg', '.whl'}
ATTRIBUTES = '.gitattributes', '.gitmodules'    # with which git shows another text than it stores


def git(folder, *words, given=None):
    """Run git in a folder. Returns what subprocess says of it, in bytes."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith('GIT_')}
    command = ['git', '-C', folder, *OPTIONS, *words]
    return subprocess.run(command, env=outside | ALONE, input=given, capture_output=True)


def fetch(commit, repository, folder):
    """Fetch a commit of a repository, which is a folder or an address, into a new repository in `folder`.
    ValueError if it is not there."""
    if Path(repository).exists():
        repository = Path(repository).resolve()
    git(folder, 'init', '--quiet', '--bare', '--template=', '.')
    replaced = git(folder, 'ls-remote', '--', repository, 'refs/replace/*')
    if replaced.stdout:
        raise ValueError(f'{repository}: its git shows other objects than it names (git replace -l)')
    fetched = git(folder, 'fetch', '--quiet', '--depth=1', '--no-tags', '--', repository, commit)
    if fetched.returncode or git(folder, 'cat-file', '-t', commit).stdout != b'commit\n':
        reason = ' '.join(fetched.stderr.decode(errors='replace').split()) or 'it is no commit'
        raise ValueError(f'{repository}: git has no commit {commit} there ({reason:.200}); fetch it, or say '
                         'which --repository has it')


def read_files(folder, commit):
    """Return {path: bytes} of a commit in a repository that `fetch` made. ValueError for a file that is not
    what git shows."""
    blobs = {}
    listing = git(folder, 'ls-tree', '-r', '-z', '--full-tree', commit).stdout
    for entry in listing.decode().split('\0')[:-1]:
        about, path = entry.split('\t', 1)
        mode, _, blobs[path] = about.split()
        check_path(path, mode)
    check_modules(blobs)
    contents = io.BytesIO(git(folder, 'cat-file', '--batch', given='\n'.join(blobs.values()).encode()).stdout)
    files = {}
    for path, blob in blobs.items():
        _, _, size = contents.readline().split()    # its name, `blob`, bytes
        content = contents.read(int(size))
        contents.readline()
        digest = hashlib.sha1(b'blob %d\0' % len(content) + content).hexdigest()
        if digest != blob:
            raise ValueError(f'{path}: git gave another file than its commit names')
        if path.endswith('.py'):
            check_text(path, content)
        files[path] = content
    return files


def check_path(path, mode):
    """ValueError for a path that stands for something else than a file that a reader of a diff can read."""
    if mode not in PLAIN:
        raise ValueError(f'{path!r:.80}: is a link or a submodule: put the file itself there')
    if not path.isprintable():
        raise ValueError(f'{path!r:.80}: has characters in its name that a terminal does not show')
    name = PurePosixPath(path)
    if name.name.lower() in ATTRIBUTES:
        raise ValueError(f'{path:.80}: has git show other files than it stores: remove it')
    if HIDDEN & {suffix.lower() for suffix in name.suffixes}:
        raise ValueError(f'{path:.80}: holds code that no diff shows: remove it')


def check_modules(paths):
    """ValueError if Python would import one of these files where a reader thinks of another."""
    for path in paths:
        package = f'{path.removesuffix(".py")}/__init__.py'
        if path.endswith('.py') and package in paths:
            raise ValueError(f'{package:.80}: Python imports it in place of {path}')
    ours = {path.stem for path in ROOT.iterdir()}
    elsewhere = {*sys.stdlib_module_names, *packages_distributions()} - ours
    elsewhere |= {'sitecustomize', 'usercustomize'}
    for path in paths:
        first = PurePosixPath(path).parts[0].removesuffix('.py')
        if path.endswith('.py') and first in elsewhere:
            raise ValueError(f'{path:.80}: Python imports it in place of the package {first}: rename it')


def check_text(path, content):
    """ValueError for a .py that is no UTF-8, or has a character that a terminal does not show as such."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode('utf-8')
    except (SyntaxError, UnicodeDecodeError):
        raise ValueError(f'{path:.80}: is not UTF-8') from None
    if encoding != 'utf-8':
        raise ValueError(f'{path:.80}: Python reads it as {encoding:.20}, and git shows it as UTF-8')
    for number, line in enumerate(text.split('\n'), 1):
        for character in line.replace('\t', ' '):
            if not character.isprintable():
                raise ValueError(f'{path:.80}:{number}: has the character U+{ord(character):04X}, which a '
                                 'terminal does not show')


def write_files(files, folder):
    """Write {path: bytes} into a folder."""
    for path, content in files.items():
        place = Path(folder, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
