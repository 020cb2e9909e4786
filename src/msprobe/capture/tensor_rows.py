"""The rows of the tensors of a step: numbered as they are made, handed to the writer piece by piece.

What a row says: :mod:`msprobe.store.rows`. Rows are made by the C extension where it is built, else by numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.capture import native
from msprobe.store import row_format, row_signs

Floats = npt.NDArray[np.float64]

# Elements at a time; a multiple of the word of the signs.
PIECE = 1 << 20


class PythonRowTable:
    """Stands in for ``native.RowTable``."""

    def __init__(self) -> None:
        self.on = 0
        self.made = 0
        self._rows: list[bytes] = []
        self._known: dict[bytes, int] = {}

    @property
    def pending(self) -> int:
        """How many rows nobody has taken."""
        return len(self._rows)

    def put(self, row: bytes) -> int:
        """The number of a row, which is added unless there is an equal one."""
        number = self._known.get(row)
        if number is None:
            number = self._known[row] = self.made
            self._rows.append(row)
            self.made += 1
        return number

    def take(self) -> tuple[int, bytes]:
        """The number of the first row since the last time, and the rows."""
        first, rows = self.made - len(self._rows), self._rows
        self._rows = []
        return first, b"".join(rows)

    def clear(self) -> None:
        """The next row has the number 0."""
        self._rows.clear()
        self._known.clear()
        self.made = 0


class TensorRows:
    """The rows of one step; equal ones are one. ``on``: whether tensors get rows now."""

    def __init__(self) -> None:
        #: What the native memo adds its rows to.
        self.table: Any = PythonRowTable() if native.RowTable is None else native.RowTable()

    @property
    def on(self) -> bool:
        """Whether tensors get rows now."""
        return bool(self.table.on)

    @on.setter
    def on(self, wanted: bool) -> None:
        self.table.on = int(wanted)

    @property
    def pending(self) -> int:
        """How many rows :meth:`take` gives."""
        return int(self.table.pending)

    def add(self, row: bytes) -> int:
        """The number of a row: that of an equal one, if there is one."""
        return int(self.table.put(row))

    def take(self) -> tuple[int, bytes]:
        """Rows since the last time: the number of the first, and the rows."""
        first, data = self.table.take()
        return first, data

    def clear(self) -> None:
        """The next row has the number 0."""
        self.table.clear()


def row_of_memory(address: int, shape: Sequence[int], stride: Sequence[int], kind: int, table: bytes | None) -> bytes:
    """The row of elements in memory, of which there are some; ``native.RowTable`` must be there."""
    return bytes(native.RowTable.make(address, tuple(shape), tuple(stride), kind, table))


def row_of(pieces: Iterable[Floats], count: int) -> bytes:
    """The row of ``count`` elements, which come in double, row-major, ``PIECE`` at a time."""
    block = row_format.block_of(count)
    lanes, sums, squares = np.zeros(row_signs.LANES), np.zeros(8), np.zeros(8)
    least, greatest = float("inf"), float("-inf")
    zeros = left_out = done = 0
    for piece in pieces:
        zeros += piece.size - int(np.count_nonzero(piece))
        with np.errstate(invalid="ignore"):
            kept = np.abs(piece) <= row_format.LARGEST
        out = piece.size - int(np.count_nonzero(kept))
        if out:
            left_out += out
            piece = np.where(kept, piece, 0.0)
        if out < piece.size:
            chosen = piece[kept] if out else piece
            least, greatest = min(least, float(chosen.min())), max(greatest, float(chosen.max()))
        for number in range(done // block, -(-(done + piece.size) // block)):
            part = piece[max(number * block - done, 0) : (number + 1) * block - done]
            sums[number] += part.sum()
            squares[number] += np.square(part).sum()
        row_signs.add_to_lanes(lanes, piece, done)
        done += piece.size
    nothing = least > greatest
    return pack(
        sums.sum(),
        squares.sum(),
        row_signs.signed_sums(lanes),
        np.sqrt(squares),
        (float("nan"), float("nan")) if nothing else (greatest, least),
        zeros,
        left_out,
    )


def pack(
    total: float,
    squares: float,
    signed: Sequence[float] | Floats,
    blocks: Sequence[float] | Floats,
    extremes: tuple[float, float],
    zeros: int,
    left_out: int,
) -> bytes:
    """A row; ``extremes``: greatest and least."""
    most = row_format.MOST_COUNTED
    return row_format.NATIVE.pack(total, squares, *signed, *blocks, *extremes, min(zeros, most), min(left_out, most))


def pieces_of(array: Any, widen: Callable[[Any], Any]) -> Iterable[Floats]:
    """The elements of a flat array or tensor; ``widen`` makes an array of numpy of a piece."""
    for start in range(0, len(array), PIECE):
        yield np.asarray(widen(array[start : start + PIECE]), np.float64)
