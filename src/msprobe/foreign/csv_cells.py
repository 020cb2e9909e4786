"""The one writer of csv files: no text in a cell is a formula to a spreadsheet, whatever a dump or a log brings.

A text that a spreadsheet would run gets an apostrophe in front; numbers stay what they are. What we read back is given
to :func:`plain_text`, which takes it away. Messages are written in the language that is asked for; columns, statuses
and values, which programs read, are none.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Protocol

from msprobe.messages import Wording, translated

_FORMULA = tuple("=+-@%＝＋－＠％")
_BLANK = " \t\r\n\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
_BLANK += "".join(map(chr, range(0x2000, 0x2010)))
_NUMERIC = re.compile(r"[+-]?(?:inf|nan|[0-9.]+(?:e[+-]?[0-9]+)?)%?\t?", re.IGNORECASE)


class CsvRows(Protocol):
    """Takes rows, as the writers of Python's ``csv`` do."""

    def write(self, text: str, /) -> object:
        """Take the text of a row."""


def safe_text(text: str) -> str:
    """The text, with an apostrophe in front if a spreadsheet that reads it from CSV would run it.

    A NUL becomes the sign for "cannot be shown": readers of CSV stop at it, and Python 3.10 does not write it.

    >>> safe_text("=cmd|x"), safe_text(" @x"), safe_text("-inf\\t"), safe_text("Torch.add")
    ("'=cmd|x", "' @x", '-inf\\t', 'Torch.add')
    """
    # Most texts begin with a letter.
    if not text[:1].isalnum() and _is_run(text):
        text = f"'{text}"
    return text.replace("\0", "\ufffd") if "\0" in text else text


def plain_text(text: str) -> str:
    """The text without the apostrophe that :func:`safe_text` has put in front."""
    return text[1:] if text[:1] == "'" and _is_run(text[1:]) else text


def _is_run(text: str) -> bool:
    bare = text.lstrip(_BLANK)
    if bare.startswith(_FORMULA):
        return not _NUMERIC.fullmatch(bare)
    return text[:1] in ("\t", "\r", "\n") and bool(bare)


def safe_row(cells: Iterable[object]) -> list[object]:
    """The cells of a row with safe texts."""
    return [safe_text(_in_language(cell)) if isinstance(cell, str) else cell for cell in cells]


def _in_language(cell: str) -> str:
    """A message in the language that is asked for; any other text as it is."""
    return translated(cell) if isinstance(cell, Wording) else cell


class CsvWriter:
    """Writes rows as Python's ``csv`` does; texts are safe, all other cells are what ``str`` says of them."""

    def __init__(self, file: CsvRows, lineterminator: str = "\r\n") -> None:
        self._writer = csv.writer(file, lineterminator=lineterminator)

    def writerow(self, cells: Iterable[object]) -> None:
        """Write one row."""
        self._writer.writerow(safe_row(cells))

    def writerows(self, rows: Iterable[Iterable[object]]) -> None:
        """Write several rows."""
        self._writer.writerows(map(safe_row, rows))

    def write_safe_rows(self, rows: Iterable[Iterable[object]]) -> None:
        """Write rows whose texts are names of ours, or safe already."""
        self._writer.writerows(rows)


def writer(file: CsvRows, lineterminator: str = "\r\n") -> CsvWriter:
    """A writer of csv rows into ``file``."""
    return CsvWriter(file, lineterminator)
