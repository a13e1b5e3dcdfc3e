from pathlib import Path

if not Path(__file__).parent.with_name('pretrain.py').exists():
    raise ImportError('nanoEncoder is a repository to clone, not a package: clone it, and work in its folder')
