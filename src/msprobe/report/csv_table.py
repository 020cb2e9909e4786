"""Write tables as CSV: UTF-8 without a byte order mark, commas, a line break after each row."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from msprobe.foreign import csv_cells
from msprobe.foreign.csv_cells import safe_text
from msprobe.paths import StrPath, write_atomically
from msprobe.report.workbook import Cell, Column, Sheet

_INFINITIES = {float("inf"): " inf", float("-inf"): " -inf"}


def write_csv(path: StrPath, header: Sequence[str], blocks: Iterable[Sequence[Column]]) -> None:
    """Write a table given in blocks of columns; the file appears when it is whole. Raises PathError."""
    write_atomically(path, _pieces(header, blocks), fsync=False)


def write_csv_sheet(path: StrPath, sheets: Iterable[Sheet]) -> None:
    """Write the first of the sheets. Raises PathError."""
    sheet = next(iter(sheets))
    write_csv(path, sheet.header, sheet.blocks)


def _pieces(header: Sequence[str], blocks: Iterable[Sequence[Column]]) -> Iterator[bytes]:
    held = io.StringIO()
    writer = csv_cells.writer(held, lineterminator="\n")
    writer.writerow(header)
    for block in blocks:
        writer.write_safe_rows(zip(*map(_safe, block), strict=True))
        yield held.getvalue().encode("utf-8", "backslashreplace")
        held.seek(0)
        held.truncate()
    yield held.getvalue().encode("utf-8", "backslashreplace")


def _safe(column: Column) -> list[Cell]:
    """The column with texts that no spreadsheet runs, and infinities as 26.2 writes them."""
    if set(map(type, column)) == {float} and all(map(isfinite, column)):  # type: ignore[arg-type]
        return list(column)
    known: dict[Cell, Cell] = {}
    cells: list[Cell] = []
    for value in column:
        if type(value) is float:
            cells.append(value if -1.7e308 < value < 1.7e308 else _INFINITIES.get(value, value))
        elif isinstance(value, str):
            safe = known.get(value)
            if safe is None:
                safe = known[value] = safe_text(value)
            cells.append(safe)
        else:
            cells.append(value)
    return cells
