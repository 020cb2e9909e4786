"""The rows of the tensors of a step: numbered as they are made, handed to the writer piece by piece.

What a row says: :mod:`msprobe.store.rows`. Rows are made by the C extension where it is built, else by numpy.
"""

from __future__ import annotations

import threading
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

    @property
    def pending(self) -> int:
        """How many rows nobody has taken."""
        return len(self._rows)

    def put(self, row: bytes) -> int:
        """Add a row; its number."""
        self._rows.append(row)
        self.made += 1
        return self.made - 1

    def take(self) -> bytes:
        """The rows since the last time."""
        rows, self._rows = self._rows, []
        return b"".join(rows)

    def clear(self) -> None:
        """The next row has the number 0."""
        self._rows.clear()
        self.made = 0


class TensorRows:
    """The rows of one step. ``on``: whether tensors get rows now.

    May be used by several threads.
    """

    def __init__(self) -> None:
        #: What the native memo adds its rows to.
        self.table: Any = PythonRowTable() if native.RowTable is None else native.RowTable()
        # Rows whose numbers came after their place was kept.
        self._late: list[tuple[int, bytes]] = []
        self._lock = threading.Lock()
        # Whoever fills a place of an earlier step comes too late.
        self.step = 0

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
        return int(self.table.pending) + len(self._late)

    def add_memory(
        self, address: int, shape: Sequence[int], stride: Sequence[int], kind: int, table: bytes | None
    ) -> int:
        """The number of the row of elements in memory, of which there are some; the extension must be there."""
        return int(self.table.add(address, tuple(shape), tuple(stride), kind, table))

    def add_values(self, pieces: Iterable[Floats], count: int) -> int:
        """The number of the row of ``count`` elements, which come in double, row-major, ``PIECE`` at a time."""
        return int(self.table.put(row_of(pieces, count)))

    def keep_place(self) -> int:
        """The number of a row that :meth:`fill` gets later."""
        return int(self.table.put(row_format.MISSING))

    def fill(self, number: int, row: bytes, step: int) -> None:
        """The row of a place that was kept in that ``step``."""
        with self._lock:
            if step == self.step:
                self._late.append((number, row))

    def take(self) -> list[tuple[int, bytes]]:
        """Rows since the last time, in pieces: the number of the first, and the rows."""
        with self._lock:
            late, self._late = self._late, []
            made, data = self.table.made, self.table.take()
        # Another thread may have added some in between: what was taken ends where it says.
        return [*([(made - len(data) // row_format.ROW_BYTES, data)] if data else ()), *late]

    def clear(self) -> None:
        """The next row has the number 0."""
        with self._lock:
            self.step += 1
            self.table.clear()
            self._late.clear()


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
