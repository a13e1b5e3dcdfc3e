"""The code of the pages' recipes, which tests execute."""
import re

from conftest import ROOT

README = ROOT / 'README.md'
# {first line without its '# ': lines} of the fenced Python blocks of four pages
RECIPES = ''.join((ROOT / page).read_text()
                  for page in ('docs/hacking.md', 'docs/decoders.md', 'studies/README.md',
                               'studies/masked_inputs/README.md'))
BLOCKS = dict(re.findall(r'```python\n# (.*)\n((?:.*\n)*?)```', RECIPES))


def indented(block):
    return re.sub('(?m)^(?=.)', '    ', block)


def run_block(title, module, **names):
    """Execute a block of a page with the names of a module, and others. Returns all names."""
    scope = vars(module) | names
    exec(BLOCKS[title], scope)
    return scope
