"""The pictures that explain: docs/pictures."""
import pytest

from conftest import ROOT
from docs.pictures import draw

NAMES = [picture.__name__ for picture in draw.PICTURES]


@pytest.mark.parametrize('name', NAMES)
def test_pictures_are_what_the_script_draws(name, tmp_path, capsys):
    """Targets, cuts, masks and rates in them are the program's."""
    picture, = [picture for picture in draw.PICTURES if picture.__name__ == name]
    picture(tmp_path)
    committed = ROOT / 'docs/pictures' / f'{name}.svg'
    drawn = tmp_path / f'{name}.svg'
    assert committed.read_bytes() == drawn.read_bytes(), 'run docs/pictures/draw.py'
