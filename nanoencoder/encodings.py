"""What a file that is not UTF-8 is likely encoded in, and the command that converts it."""
import codecs
import contextlib
import functools
import gzip
import re
import shlex

# {iconv's name of an encoding: what most characters beyond ASCII are in a text that is read by the right one}
LATIN = '(?<=[A-Za-z])[{0}]|[{0}](?=[a-z])|[‘’“”–—…£€©®°]'
HAN = '\u3000-\u303f\uff00-\uff0f\u4e00-\u9fff'
ENCODINGS = {
    'WINDOWS-1252': LATIN.format('ß-ÿœ¿¡'),
    'MACINTOSH': LATIN.format('ß-ÿœ¿¡'),
    'WINDOWS-1250': LATIN.format('ß-ÿąćčďęěłńňőřśšťůűźżž'),
    'WINDOWS-1251': '(?<=[А-я])[а-яё]',
    'KOI8-R': '(?<=[А-я])[а-яё]',
    'SHIFT-JIS': f'[{HAN}\u3040-\u30ff]',
    'EUC-KR': '[\uac00-\ud7a3]',
    'GB18030': f'[{HAN}]',
    # after those whose texts it reads as kanji: if two fit equally well, the first is taken
    'EUC-JP': f'[{HAN}\u3040-\u30ff]',
    'BIG5': f'[{HAN}]'}


def is_packed(path):
    return path.suffix.lower() == '.gz'


def unpacked(path):
    """Open a file to read its bytes, or what a .gz holds."""
    open_file = gzip.open if is_packed(path) else open
    return open_file(path, 'rb')


@functools.cache    # a file may have many lines that are not
def not_utf8(path):
    """Return a sentence about a file of text, perhaps a .gz, that is not UTF-8: where, which encoding it is
    likely in, and the command that converts it."""
    with unpacked(path) as file:
        content = file.read()
    start = 0       # all bytes of UTF-16 without a mark may be good UTF-8
    try:
        content.decode()
    except UnicodeDecodeError as error:
        start = error.start
    line = content.count(b'\n', 0, start) + 1
    where = f'{path}:{line}: is not UTF-8 from byte {start:,} of the file on'

    text = content.decode(errors='replace')
    num_bad = text.count('\ufffd')
    if len(re.findall('[^\x00-\x7f]', text)) > 2 * num_bad > 0:
        return f'{where}, but most of it is: mend that line'
    name = likely_encoding(content)
    guess = 'in an encoding that only you may know' if name == 'ENCODING' else f'likely {name}'
    plain = shlex.quote(str(path))
    unpack = ''
    if is_packed(path):
        unpack = f'gunzip {plain} && '
        plain = shlex.quote(str(path.with_suffix('')))
    return (f'{where}, but {guess}; convert it: {unpack}iconv -f {name} -t UTF-8 {plain} > utf8.tmp && '
            f'mv utf8.tmp {plain} (other encodings: iconv -l)')


def likely_encoding(content):
    """Guess the encoding of a text's bytes, which are not UTF-8. Returns iconv's name of it, or ENCODING."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return 'UTF-16'
    if 0 in content[:1000]:     # the upper bytes of Latin script
        return 'UTF-16BE' if content[0] == 0 else 'UTF-16LE'
    best = 'ENCODING'
    most = 0.3
    for name, usual in ENCODINGS.items():
        with contextlib.suppress(UnicodeDecodeError):
            text = content.decode(name)
            share = len(re.findall(usual, text)) / len(re.findall('[^\x00-\x7f]', text))
            if share > most:
                best = name
                most = share
    return best
