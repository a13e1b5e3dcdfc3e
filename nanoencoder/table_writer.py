"""A file of rows that is written a block at a time, and continued after a kill.

    labels.csv.part             the rows that are done, renamed to labels.csv when all of them are
    labels.csv.progress.json    how many rows and bytes these are, and the sha256 of what they were made of"""
import csv
import json
from types import SimpleNamespace

from nanoencoder.files import read_json, sync, write_json

FORMS = '.csv', '.jsonl'


class TableWriter:
    """Writes the rows of one file. If an earlier process wrote some of them, `rows` says how many."""

    def __init__(self, out, made_of):
        """made_of  {'input': sha256, ...} of all that decides what is written"""
        self.out = out
        self.part = out.with_name(f'{out.name}.part')
        self.path = out.with_name(f'{out.name}.progress.json')
        self.made_of = made_of
        self.is_whole = out.exists()
        self.rows = 0
        self.bytes = 0
        has_progress = self.path.exists()
        if self.is_whole and not has_progress:
            raise ValueError(f'{out}: is there already, and predict.py did not write it: give another --out')
        if has_progress and (self.is_whole or self.part.exists()):
            self.take_over()

    def take_over(self):
        """Read how far an earlier process came. ValueError if it wrote other rows than this one would."""
        progress = read_json(self.path)
        advice = f'remove it and {self.path}, or give another --out'
        for name, digest in self.made_of.items():
            if progress.get(name) != digest:
                raise ValueError(f'{self.out}: was begun with another {name}, or with fewer rows of it; '
                                 f'{advice}')
        self.rows = progress['rows']
        self.bytes = progress['bytes']
        written = self.out if self.is_whole else self.part
        size = written.stat().st_size
        if size < self.bytes or self.is_whole and size > self.bytes:
            raise ValueError(f'{written}: changed since it was written; {advice}')

    def write(self, blocks, columns):
        """Append blocks of rows, which begin where `rows` ends, and note after each that it is there.

        columns  of a .csv"""
        with open(self.part, 'ab') as file:
            file.truncate(self.bytes)   # a block that was being written at the kill
            for block in blocks:
                if self.out.suffix == '.jsonl':
                    text = lines_of(block)
                else:
                    text = csv_of(block, columns, has_header=self.rows == 0)
                file.write(text.encode())
                file.flush()
                sync(self.part)
                self.rows += len(block)
                self.bytes = file.tell()
                write_json(self.path, self.made_of | {'rows': self.rows, 'bytes': self.bytes})
        self.part.rename(self.out)
        self.is_whole = True


def lines_of(rows):
    # a date, which a .parquet may hold, becomes text
    return ''.join(json.dumps(row, ensure_ascii=False, default=str) + '\n' for row in rows)


def csv_of(rows, columns, has_header):
    """Return rows as text of a .csv. Lists and objects are written as JSON."""
    lines = []
    # lines end with \r\n at first, as csv quotes only those characters that a line ends with
    writer = csv.DictWriter(SimpleNamespace(write=lines.append), columns)
    if has_header:
        writer.writeheader()
    for row in rows:
        fields = {}
        for name, value in row.items():
            is_nested = isinstance(value, (list, dict))
            fields[name] = json.dumps(value, ensure_ascii=False, default=str) if is_nested else value
        writer.writerow(fields)
    return ''.join(line.removesuffix('\r\n') + '\n' for line in lines)
