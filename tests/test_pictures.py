"""The pictures that explain: docs/pictures."""
from conftest import ROOT
from docs.pictures import draw


def test_pictures_are_what_the_script_draws(tmp_path, capsys):
    """Targets, cuts, masks and rates in them are the program's."""
    for picture in draw.PICTURES:
        picture(tmp_path)
        name = f'{picture.__name__}.svg'
        committed = ROOT / 'docs/pictures' / name
        assert committed.read_bytes() == (tmp_path / name).read_bytes(), 'run docs/pictures/draw.py'
