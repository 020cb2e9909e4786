"""Rows: what a dump keeps of each tensor in full precision, beside the statistics that mindstudio-probe writes.

A tensor of ``dump.json`` has the number of its row under the key ``row``; the rows lie in a file beside it
(:mod:`msprobe.store.row_format`), those of an unfinished step in its journal. Tensors that were met again unchanged
have the same row. For those who judge::

    part = open_dump("dump").part(step=0, rank=0)
    row = part.rows.of(entry)            # a Row, or None; entry: the object of a tensor in dump.json
    row.sum, row.squares, row.signed     # in double, whatever the type of the tensor
    part.rows.row(12)                    # the same by number
    columns = part.tensors()
    table = part.rows.take(columns.row)  # many at once: a structured array, a row for each; NaN where there is none
    table["squares"], table["signed"]    # float64, the second with 8 columns

Of two tensors ``a`` and ``b`` with the same number of elements, each ``(a.signed[k] - b.signed[k]) ** 2`` has the
expectation ``sum((a - b) ** 2)``: see :func:`distance`. NaN, infinities and values beyond 1e18 in magnitude (fill
values of masks) are in no sum. A complex tensor counts as its real and imaginary parts by turns.

Files of strangers: what is no row file, is cut off or names a row that is not there gives no row and one warning.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe import log
from msprobe.errors import MsprobeError, in_one_line
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.store import row_format

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    StructuredArray = np.ndarray[Any, np.dtype[np.void]]

#: A row as it is judged: the fields ``sum``, ``squares``, ``signed``, ``blocks``, ``max``, ``min``, ``zero`` and
#: ``left_out`` of :class:`TensorRow`.
Numbers = tuple[float, float, tuple[float, ...], tuple[float, ...], float, float, int, int]

KEY = "row"
SUMS = 8
BLOCKS = 8
_NAN = float("nan")
_MOST_HEADER_BYTES = 1 << 16
_MOST_ROW_BYTES = 1 << 12
_TYPES = {"f4": 4, "f8": 8, "u4": 4}
_CODES = {"f4": "f", "f8": "d", "u4": "I"}


@dataclass(frozen=True)
class TensorRow:
    """What is known of the elements of one tensor, in double.

    ``max``, ``min``: of those in the sums, rounded to float32 (exact for types up to that; those of ``dump.json`` are
    exact, and of all elements); NaN where there are none. ``sum`` and ``squares``: their sum, and that of their
    squares. ``blocks``: the norms of eight blocks of neighbours in row-major order, rounded to float32: each has
    ``64 * ceil(count / 512)`` elements, the last ones fewer or none (:func:`msprobe.store.row_format.block_of`).
    ``signed``: eight sums with random signs (:mod:`msprobe.store.row_signs`); NaN where the recorder did not compute
    them. ``zero``: how many elements are zero. ``left_out``: how many are in no sum. ``nan`` and ``inf``: how many of
    them are NaN and infinite, where ``dump.json`` says so; 0 for a row by its number.
    """

    max: float
    min: float
    sum: float
    squares: float
    blocks: tuple[float, ...]
    signed: tuple[float, ...]
    zero: int
    left_out: int
    nan: int = 0
    inf: int = 0

    @property
    def norm(self) -> float:
        """The root of the sum of squares; NaN for one that no numbers have."""
        return math.sqrt(self.squares) if self.squares >= 0.0 else _NAN


def distance(first: TensorRow, other: TensorRow) -> float:
    """An unbiased estimate of the norm of the difference of two tensors with the same number of elements, good to about
    a quarter; NaN where a side has no signed sums.
    """
    return math.sqrt(sum((a - b) * (a - b) for a, b in zip(first.signed, other.signed, strict=True)) / SUMS)


class RowLayout:
    """How a row lies in a file. Raises ValueError for a header that describes none."""

    def __init__(self, header: Any) -> None:
        if not isinstance(header, dict) or header.get("version") != row_format.VERSION:
            raise ValueError(said("rows-version-unknown"))
        order = header.get("byteorder")
        if order not in ("little", "big"):
            raise ValueError(said("rows-byte-order-unknown"))
        self.row_bytes = _size(header.get("row_bytes"), 1, _MOST_ROW_BYTES)
        self.start = _size(header.get("start"), 12, 2 * _MOST_HEADER_BYTES)
        self.mark = "<" if order == "little" else ">"
        # name -> (type, count, offset)
        self.fields: dict[str, tuple[str, int, int]] = {}
        fields = header.get("fields")
        for field in fields if isinstance(fields, list) else ():
            self._add(field)
        if not self.fields.keys() >= {"sum", "squares"}:
            raise ValueError(said("rows-without-sums"))
        #: Whether a row lies there as it lies in the memory of a recorder on this machine.
        self.is_native = (order, self.row_bytes) == (sys.byteorder, row_format.ROW_BYTES) and self.fields == {
            name: (kind, count, offset) for name, kind, count, offset in row_format.FIELDS
        }

    def _add(self, field: Any) -> None:
        if not isinstance(field, list) or len(field) != 4:
            raise ValueError(said("rows-field-undescribed"))
        name, kind, count, offset = field
        known = {field[0]: field[2] for field in row_format.FIELDS}
        if not isinstance(name, str) or name not in known:
            return
        if kind not in _TYPES or count != known[name] or type(offset) is not int:
            raise ValueError(said("rows-field-of-other-kind", name))
        if offset < 0 or offset + count * _TYPES[kind] > self.row_bytes:
            raise ValueError(said("rows-field-outside", name))
        self.fields[name] = kind, count, offset

    def values(self, data: Any, place: int) -> dict[str, tuple[Any, ...]]:
        """The fields of the row at ``place``."""
        return {
            name: struct.unpack_from(f"{self.mark}{count}{_CODES[kind]}", data, place + offset)
            for name, (kind, count, offset) in self.fields.items()
        }

    def dtype(self) -> Any:
        """A row as a type of numpy."""
        import numpy as np

        return np.dtype(
            {
                "names": list(self.fields),
                "formats": [
                    (self.mark + kind, (count,)) if count > 1 else self.mark + kind
                    for kind, count, _ in self.fields.values()
                ],
                "offsets": [offset for _, _, offset in self.fields.values()],
                "itemsize": self.row_bytes,
            }
        )


def _size(number: Any, least: int, most: int) -> int:
    if type(number) is not int or not least <= number <= most:
        raise ValueError(said("rows-sizes-wrong"))
    return number


OURS = RowLayout(
    {
        "version": row_format.VERSION,
        "byteorder": sys.byteorder,
        "row_bytes": row_format.ROW_BYTES,
        "start": 4 * row_format.ROW_BYTES,
        "fields": [list(field) for field in row_format.FIELDS],
    }
)


@dataclass(frozen=True)
class _Run:
    """Rows that follow each other: numbers from ``first`` on, in ``data`` from ``start`` on."""

    first: int
    count: int
    data: Any
    start: int
    layout: RowLayout

    def cut(self, count: int) -> bytes:
        """The first so many rows."""
        return bytes(self.data[self.start : self.start + count * self.layout.row_bytes])


class StoredRows:
    """The rows of one step of one rank. No method raises because of what is in the file."""

    def __init__(self, path: Path) -> None:
        """``path``: the file, which need not be there. It is opened when the first row is asked for."""
        self.path = path
        self._runs: list[_Run] = []
        # Pieces of journals: the number of the first row, and where they stand.
        self._pieces: list[tuple[int, Any, int, int]] = []
        self._is_open = False

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRows, (self.path,)

    @property
    def is_there(self) -> bool:
        """Whether rows were recorded: a file that may hold some, or pieces of a journal."""
        return bool(self._pieces) or os.path.lexists(self.path)

    def add_run(self, first: int, data: Any, start: int, end: int) -> None:
        """Rows of a journal, from ``start`` to ``end`` of ``data``; later ones count before earlier ones."""
        count = (end - start) // OURS.row_bytes
        if count > 0:
            self._pieces.append((first, data, start, start + count * OURS.row_bytes))

    def of(self, entry: Mapping[str, Any]) -> TensorRow | None:
        """The row of a tensor, given as its object in ``dump.json``; None if it has none."""
        number = number_of(entry)
        values = None if number < 0 else self._values(number)
        if values is None:
            return None
        return _row(values, _count(entry.get("nan")), _count(entry.get("inf")), _count(entry.get("zero")))

    def row(self, number: int) -> TensorRow | None:
        """The row of this number; None if there is none."""
        values = self._values(number) if number >= 0 else None
        return None if values is None else _row(values, 0, 0, 0)

    def numbers(self, number: int) -> Numbers | None:
        """The numbers of the row, NaN for those that are not recorded; None if there is none, or no signed sums."""
        if number < 0:
            return None
        self._open()
        for run in reversed(self._runs):
            if run.first <= number < run.first + run.count:
                place = run.start + (number - run.first) * run.layout.row_bytes
                if run.layout.is_native:
                    numbers = row_format.NATIVE.unpack_from(run.data, place)
                    total, squares, signed, blocks, rest = (
                        numbers[0],
                        numbers[1],
                        numbers[2:10],
                        numbers[10:18],
                        numbers[18:],
                    )
                else:
                    named = run.layout.values(run.data, place)
                    (total,), (squares,) = named["sum"], named["squares"]
                    signed = named.get("signed", (_NAN,) * SUMS)
                    blocks = named.get("blocks", (_NAN,) * BLOCKS)
                    rest = tuple(named.get(name, (_NAN,))[0] for name in ("max", "min", "zero", "left_out"))
                # One is NaN where the row never came, the other where they were not computed.
                is_known = squares == squares and (added := sum(signed)) == added
                return (total, squares, signed, blocks, *rest) if is_known else None
        self._warn_of_missing()
        return None

    def changed(self, other: StoredRows) -> frozenset[int]:
        """The numbers of rows that are not, byte for byte, those of the same number in ``other``."""
        count = min(len(self), len(other))
        runs = [side._runs for side in (self, other)]
        if all(len(run) == 1 and run[0].first == 0 for run in runs):
            ones, others = runs[0][0].cut(count), runs[1][0].cut(count)
            if ones == others:
                return frozenset()
        return frozenset(number for number in range(count) if self.raw(number) != other.raw(number))

    def raw(self, number: int) -> bytes | None:
        """The row of this number as it lies in the file; None if there is none."""
        self._open()
        for run in reversed(self._runs):
            if run.first <= number < run.first + run.count:
                place = run.start + (number - run.first) * run.layout.row_bytes
                return bytes(run.data[place : place + run.layout.row_bytes])
        return None

    def __len__(self) -> int:
        """One more than the largest number of a row."""
        self._open()
        return max((run.first + run.count for run in self._runs), default=0)

    def take(self, numbers: npt.ArrayLike) -> StructuredArray:
        """A structured array with one row for each number: the fields of :class:`TensorRow` without ``nan`` and
        ``inf``, all in float64; NaN for numbers below 0 and rows that are not there.
        """
        import numpy as np

        wanted = np.asarray(numbers, np.int64).reshape(-1)
        fields: list[tuple[Any, ...]] = [
            (name, np.float64) if count == 1 else (name, np.float64, (count,))
            for name, _, count, _ in row_format.FIELDS
        ]
        table = np.full(len(wanted), np.nan, np.dtype(fields))
        if not len(wanted) or wanted.max() < 0:
            return table
        self._open()
        is_taken = np.zeros(len(wanted), np.bool_)
        for run in reversed(self._runs):
            inside = ~is_taken & (wanted >= run.first) & (wanted < run.first + run.count)
            if inside.any():
                here = np.frombuffer(run.data, run.layout.dtype(), run.count, run.start)[wanted[inside] - run.first]
                for name in run.layout.fields:
                    table[name][inside] = here[name]
                is_taken |= inside
        if not is_taken[wanted >= 0].all():
            self._warn_of_missing()
        for name in table.dtype.names or ():
            table[name][np.isnan(table["squares"])] = np.nan
        return table

    def close(self) -> None:
        """Let go of the file."""
        runs, self._runs = self._runs, []
        self._pieces.clear()
        self._is_open = True
        for run in runs:
            if isinstance(run.data, mmap.mmap):
                run.data.close()

    def _values(self, number: int) -> dict[str, tuple[Any, ...]] | None:
        self._open()
        for run in reversed(self._runs):
            if run.first <= number < run.first + run.count:
                values = run.layout.values(run.data, run.start + (number - run.first) * run.layout.row_bytes)
                # A place that was kept for what has not come.
                return None if values["squares"][0] != values["squares"][0] else values
        self._warn_of_missing()
        return None

    def _warn_of_missing(self) -> None:
        log.once(
            ("rows missing", str(self.path)),
            "warning",
            said("rows-missing", self.path),
        )

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        run = None
        try:
            run = _open_file(self.path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, MsprobeError) as problem:
            reason = (isinstance(problem, OSError) and problem.strerror) or in_one_line(problem)
            log.once(
                ("rows unreadable", str(self.path)),
                "warning",
                said("rows-unreadable", self.path, reason),
            )
        if run is not None:
            self._runs.append(run)
        self._join_pieces()

    def _join_pieces(self) -> None:
        """The rows of journals as one piece. Numbers far beyond what there is are a stranger's."""
        size = OURS.row_bytes
        pieces, self._pieces = self._pieces, []
        most = 2 * sum((end - start) // size for _, _, start, end in pieces) + sum(run.count for run in self._runs)
        pieces = [piece for piece in pieces if piece[0] + (piece[3] - piece[2]) // size <= most]
        if not pieces:
            return
        first = min(piece[0] for piece in pieces)
        count = max(piece[0] + (piece[3] - piece[2]) // size for piece in pieces) - first
        joined = bytearray(row_format.MISSING * count)
        for number, data, start, end in pieces:
            place = (number - first) * size
            joined[place : place + end - start] = data[start:end]
        self._runs.append(_Run(first, count, bytes(joined), 0, OURS))


def number_of(entry: Mapping[str, Any]) -> int:
    """The number of the row of a tensor in ``dump.json``; -1 if there is none."""
    number = entry.get(KEY)
    return number if type(number) is int and 0 <= number < 1 << 62 else -1


def _open_file(path: Path) -> _Run | None:
    """The rows of a file; None if there are none. Raises ValueError for what is no such file, OSError, MsprobeError."""
    with open_regular(path, follow_links=False) as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(len(row_format.MAGIC) + row_format.LENGTH.size)
        if len(head) < len(row_format.MAGIC) + row_format.LENGTH.size or not head.startswith(row_format.MAGIC):
            raise ValueError(said("rows-begin-differently"))
        (length,) = row_format.LENGTH.unpack_from(head, len(row_format.MAGIC))
        if length > _MOST_HEADER_BYTES:
            raise ValueError(said("rows-header-too-large"))
        text = file.read(length)
        if len(text) < length:
            raise ValueError(said("rows-header-cut-off"))
        layout = RowLayout(parse_json(text, path))
        count = (size - layout.start) // layout.row_bytes
        if count <= 0:
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _Run(0, count, data, layout.start, layout)


def _row(values: dict[str, tuple[Any, ...]], nan: int, inf: int, zero: int) -> TensorRow:
    def number(name: str) -> float:
        return float(values[name][0]) if name in values else _NAN

    def count(name: str) -> int:
        return int(values[name][0]) if name in values and values[name][0] == values[name][0] else 0

    return TensorRow(
        max=number("max"),
        min=number("min"),
        sum=number("sum"),
        squares=number("squares"),
        blocks=tuple(map(float, values.get("blocks", (_NAN,) * BLOCKS))),
        signed=tuple(map(float, values.get("signed", (_NAN,) * SUMS))),
        zero=max(zero, count("zero")) if count("zero") == row_format.MOST_COUNTED else count("zero"),
        left_out=count("left_out"),
        nan=nan,
        inf=inf,
    )


def _count(count: Any) -> int:
    return count if type(count) is int and count >= 0 else 0
