"""Reading the csv files of monitored runs: ours, and those of mindstudio-probe 8.1.1 and 26.2.0, which look alike."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from msprobe import log
from msprobe.errors import PathError, reason_of
from msprobe.foreign.budget import Budget, Limits
from msprobe.foreign.csv_cells import plain_text
from msprobe.foreign.opening import read_bounded
from msprobe.messages import said
from msprobe.monitor.files import RunFolder, files_of
from msprobe.paths import StrPath

_NAME = re.compile(
    r"(?P<quantity>[a-z][a-z0-9_]*?)_(?P<first>\d{1,15})-(?P<last>\d{1,15})(?:\.(?P<part>\d{1,6}))?\.csv", re.ASCII
)
_FIXED = ("vpp_stage", "name", "step", "micro_step", "shape", "dtype")
_WHOLE = ("vpp_stage", "step", "micro_step")
_NEEDED = ("vpp_stage", "name", "step")
_MOST_BYTES = 8 << 30
_MOST_COLUMNS = 1000
#: Letters of a whole number of 64 bits, with its sign.
_MOST_LETTERS = 18

Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Steps = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a csv file says. ``part``: 1, more for files of the same steps with another header."""

    quantity: str
    first: int
    last: int
    part: int = 1


@dataclass(frozen=True, slots=True)
class QuantityTable:
    """The rows of one quantity as columns, in the order of the files.

    ``steps``: [rows]. ``micro_steps``: [rows], 0 where the file has no such column. ``values``: [rows, ops] in double
    precision; NaN also for what is missing. ``shapes``, ``dtypes``: as written; "nan" where there was no tensor, ""
    where that is not known.
    ``has_micro_steps``: whether any file has the column.
    """

    quantity: str
    ops: tuple[str, ...]
    stages: list[int]
    names: list[str]
    steps: Steps
    micro_steps: Steps
    values: Floats
    shapes: list[str]
    dtypes: list[str]
    has_micro_steps: bool
    #: Lines of its files that could not be read.
    damaged: int = 0

    def __len__(self) -> int:
        return len(self.names)

    def keys(self) -> list[tuple[int, str, int, int]]:
        """Stage, name, step and micro step of each row."""
        return list(zip(self.stages, self.names, self.steps.tolist(), self.micro_steps.tolist(), strict=True))


def parse_file_name(name: str) -> FileName | None:
    """``grad_reduced_0-9.csv`` in its parts; None if it is no file of a quantity."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return FileName(match["quantity"], int(match["first"]), int(match["last"]), int(match["part"] or 1))


def file_name(quantity: str, first: int, last: int, part: int = 1) -> str:
    """The name of the file that holds the steps from ``first`` to ``last``, both included."""
    return f"{quantity}_{first}-{last}{f'.{part}' if part > 1 else ''}.csv"


def quantities_of(folder: StrPath) -> dict[str, list[Path]]:
    """The csv files of each quantity in a run's folder, in the order of their steps."""
    files: dict[str, list[tuple[tuple[int, int, int], Path]]] = {}
    for path in files_of(folder):
        name = parse_file_name(path.name)
        if name is not None:
            files.setdefault(name.quantity, []).append(((name.first, -name.last, name.part), path))
    return {quantity: [path for _, path in sorted(files)] for quantity, files in files.items()}


def read_csv_tables(run: RunFolder, quantity: str) -> list[QuantityTable]:
    """The csv files of a quantity in a run, in the order of their steps. Raises PathError."""
    return [read_table(path) for path in quantities_of(run.path).get(quantity, ())]


def read_table(path: StrPath) -> QuantityTable:
    """Read one file; a last line that a killed run left torn is passed over, and damaged lines are counted in the log.

    Raises PathError if the file cannot be read, or is no csv file of the monitor.
    """
    path = Path(path)
    name = parse_file_name(path.name)
    data = _read(path)
    text = data[: whole_length(data)].decode("utf-8", "replace")
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(lines, [])
        columns = _columns(path, header)
        kept, damaged = _rows(lines, header, columns)
    except csv.Error as problem:
        raise PathError(said("file-unreadable", path, problem)) from None
    quantity = name.quantity if name else path.stem
    try:
        table = _table(quantity, header, columns, kept)
    except (ValueError, OverflowError):  # a number of more than 64 bits, or with two signs
        whole = [columns[name] for name in _WHOLE if name in columns]
        table = _table(quantity, header, columns, [row for row in kept if all(_is_whole(row[at]) for at in whole)])
    damaged += len(kept) - len(table)
    if damaged:
        log.warning(said("csv-lines-damaged", path, damaged))
    return replace(table, damaged=damaged)


def whole_length(data: bytes) -> int:
    """How many of the bytes are whole lines: up to the last line end that is outside quotes."""
    end = data.rfind(b"\n") + 1
    quotes = data.count(b'"', 0, end)
    while quotes % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return end


def merged(tables: Iterable[QuantityTable]) -> QuantityTable:
    """Several tables of one quantity as one, with all their operators; of equal rows the last one counts."""
    parts = list(tables)
    ops = tuple(dict.fromkeys(op for table in parts for op in table.ops))
    total = sum(map(len, parts))
    values = np.full((total, len(ops)), np.nan)
    at = 0
    for table in parts:
        values[at : at + len(table), [ops.index(op) for op in table.ops]] = table.values
        at += len(table)
    table = QuantityTable(
        parts[0].quantity,
        ops,
        [stage for part in parts for stage in part.stages],
        [name for part in parts for name in part.names],
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.micro_steps for part in parts]),
        values,
        [shape for part in parts for shape in part.shapes],
        [dtype for part in parts for dtype in part.dtypes],
        any(part.has_micro_steps for part in parts),
        sum(part.damaged for part in parts),
    )
    return _without_repeats(table)


def selected(table: QuantityTable, rows: Sequence[int]) -> QuantityTable:
    """The table with these rows only, in this order."""
    at = np.asarray(rows, dtype=np.int64)
    return QuantityTable(
        table.quantity,
        table.ops,
        [table.stages[row] for row in rows],
        [table.names[row] for row in rows],
        table.steps[at],
        table.micro_steps[at],
        table.values[at],
        [table.shapes[row] for row in rows],
        [table.dtypes[row] for row in rows],
        table.has_micro_steps,
        table.damaged,
    )


def _without_repeats(table: QuantityTable) -> QuantityTable:
    last = {key: row for row, key in enumerate(table.keys())}
    return table if len(last) == len(table) else selected(table, sorted(last.values()))


def _read(path: Path) -> bytes:
    try:
        data = read_bounded(path, Budget(path, Limits(bytes=_MOST_BYTES)))
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from None
    return data.removeprefix(b"\xef\xbb\xbf")


def _columns(path: Path, header: list[str]) -> dict[str, int]:
    if len(header) > _MOST_COLUMNS:
        raise PathError(said("monitor-csv-columns", path, len(header)))
    columns = {name: at for at, name in enumerate(header)}
    missing = [name for name in _NEEDED if name not in columns]
    if missing and header:
        raise PathError(said("monitor-csv-column-missing", path, ", ".join(missing)))
    return columns


def _rows(lines: Iterator[list[str]], header: list[str], columns: dict[str, int]) -> tuple[list[list[str]], int]:
    """The rows that have a cell for each column and whole numbers where they belong; and how many have not."""
    if not header:
        return [], 0
    width = len(header)
    whole = [columns[name] for name in _WHOLE if name in columns]
    kept: list[list[str]] = []
    damaged = 0
    for cells in lines:
        if len(cells) == width and all(cells[at].lstrip("-").isdecimal() for at in whole):
            kept.append(cells)
        elif cells:
            damaged += 1
    return kept, damaged


def _is_whole(cell: str) -> bool:
    return cell.removeprefix("-").isdecimal() and len(cell) <= _MOST_LETTERS


def _table(quantity: str, header: list[str], columns: dict[str, int], rows: list[list[str]]) -> QuantityTable:
    shared: dict[str, str] = {}

    def texts(name: str) -> list[str]:
        at = columns.get(name)
        # Files of features of layers have no such column.
        if at is None:
            return [""] * len(rows)
        texts_shared = [shared.setdefault(row[at], row[at]) for row in rows]
        safe = {text: plain_text(text) for text in shared if text[:1] == "'"}
        return [safe.get(text, text) for text in texts_shared] if safe else texts_shared

    def numbers(name: str) -> list[int]:
        at = columns.get(name)
        return [0] * len(rows) if at is None else [int(row[at]) for row in rows]

    ops = tuple(name for name in header if name not in _FIXED)
    values = np.empty((len(rows), len(ops)))
    for at, op in enumerate(ops):
        values[:, at] = _floats([row[columns[op]] for row in rows])
    return QuantityTable(
        quantity,
        ops,
        numbers("vpp_stage"),
        texts("name"),
        np.array(numbers("step"), dtype=np.int64),
        np.array(numbers("micro_step"), dtype=np.int64),
        values,
        texts("shape"),
        texts("dtype"),
        "micro_step" in columns,
    )


def _floats(cells: list[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array([_float(cell) for cell in cells], dtype=np.float64)


def _float(cell: str) -> float:
    if cell in ("True", "False"):
        return float(cell == "True")
    try:
        return float(cell)
    except ValueError:  # an empty cell, or a text
        return float("nan")
