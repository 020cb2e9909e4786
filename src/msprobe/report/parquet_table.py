"""Write tables as Parquet, for those who go on with them in a program. Needs polars (extra ``compare``)."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msprobe.paths import StrPath, write_atomically
from msprobe.report.formats import sheet_format
from msprobe.report.workbook import Cell, Column, Sheet

# Words of the sheet that stand where no number is.
_NO_NUMBER = frozenset(("", "N/A", "None", "unsupported", "-"))
_PER_CENT = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?%|[-+]?(inf|nan)%")
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "true": 1.0, "false": 0.0}


def write_parquet(path: StrPath, header: Sequence[str], blocks: Iterable[Sequence[Column]]) -> None:
    """Write a table given in blocks of columns; the file appears when it is whole.

    A column that holds a number becomes one of floats: per cent as fractions, truth values as 0 and 1, null where
    the sheet has a word for no number. Other words in it (arguments that are texts) stand in a column
    ``{name} (text)`` beside it. All other columns are texts. Raises NotAvailableError without polars, PathError.
    """
    sheet_format("parquet").check_available()
    import polars

    columns: list[list[Cell]] = [[] for _ in header]
    for block in blocks:
        for column, cells in zip(columns, block, strict=True):
            column.extend(cells)
    series = [series for name, cells in zip(header, columns, strict=True) for series in _series(polars, name, cells)]
    held = io.BytesIO()
    polars.DataFrame(series).write_parquet(held)
    write_atomically(path, held.getvalue(), fsync=False)


def write_parquet_sheet(path: StrPath, sheets: Iterable[Sheet]) -> None:
    """Write the first of the sheets. Raises as :func:`write_parquet`."""
    sheet = next(iter(sheets))
    write_parquet(path, sheet.header, sheet.blocks)


def _series(polars: Any, name: str, cells: list[Cell]) -> list[Any]:
    if not any(type(cell) in (float, int) or (isinstance(cell, str) and _is_share(cell)) for cell in cells):
        return [polars.Series(name, [None if cell is None else str(cell) for cell in cells], dtype=polars.String)]
    numbers = [_number(cell) for cell in cells]
    series = [polars.Series(name, numbers, dtype=polars.Float64)]
    texts = [
        cell if number is None and isinstance(cell, str) and cell.strip() not in _NO_NUMBER else None
        for cell, number in zip(cells, numbers, strict=True)
    ]
    if any(text is not None for text in texts):
        series.append(polars.Series(f"{name} (text)", texts, dtype=polars.String))
    return series


def _number(cell: Cell) -> float | None:
    if cell is None:
        return None
    if not isinstance(cell, str):
        return float(cell)
    word = cell.strip().lower()
    return float(word[:-1]) / 100 if _is_share(word) else _WORDS.get(word)


def _is_share(word: str) -> bool:
    return _PER_CENT.fullmatch(word) is not None
