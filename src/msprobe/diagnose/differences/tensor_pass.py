"""All that is asked of two tensors, in one pass over their elements: digests, distance, and what words need.

The elements are gone through in pieces that stay in the cache, in their own type: no copy of a tensor is made, and none
in float64. A piece whose squares leave the range of its type, or that has NaN or infinities, is worked out in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from msprobe.diagnose.differences.elements import ROW, Difference, compare, has_negative_zero, square_of
from msprobe.messages import said

#: Bytes of a piece: two of them stay in the cache, and calling numpy costs little beside them.
_PIECE_BYTES = 1 << 19
#: Sums of squares in single precision within these are right to some 1e-6.
_LEAST, _GREATEST = 1e-20, 1e30
#: Sums of squares of the same elements in another order, and the square of the distance of what is apart by rounding.
_SAME_SIZE, _ROUNDING = 1e-4, 1e-10


@dataclass(frozen=True, slots=True)
class Detail:
    """What two tensors of floating-point numbers of one type and size are to each other; all elements are finite.

    ``count``: elements that differ, of ``size``; the ``first`` and ``last`` of them, and what the ``first`` is on each
    side. ``becomes_zero``: where they differ, the first tensor is zero. ``squares``: sums of squares of the first, the
    second, and their difference.
    """

    size: int
    count: int
    first: int
    last: int
    first_values: tuple[float, float]
    becomes_zero: bool
    squares: tuple[float, float, float]

    @property
    def may_be_reordered(self) -> bool:
        """Whether they may be the same elements in another order: both are of one size, and apart by more than
        rounding makes of it.
        """
        mine, theirs, apart = self.squares
        return self.count > 1 and abs(mine - theirs) <= _SAME_SIZE * mine and apart > _ROUNDING * mine


@dataclass(frozen=True, slots=True)
class ComparedTensors:
    """Two tensors: a digest of the values of each, how many elements each has, their relative distance (None where they
    have other numbers of elements), and ``detail`` where it is known.
    """

    digests: tuple[str, str]
    sizes: tuple[int, int]
    delta: float | None
    detail: Detail | None = None


def digest_of(flat: Any) -> str:
    """The digest of the values of a flat array; both zeros are one number."""
    import numpy as np
    from xxhash import xxh3_64

    digest, step = xxh3_64(), _piece_of(flat.dtype)
    with np.errstate(all="ignore"):  # some NaN make the processor say so when anything is added to them
        for start in range(0, flat.size, step):
            digest.update(_with_one_zero(flat[start : start + step]).view(np.uint8).data)
    return _word(digest)


def _piece_of(dtype: Any) -> int:
    """How many elements are a piece."""
    return max(1, _PIECE_BYTES // int(dtype.itemsize))


def _with_one_zero(piece: Any) -> Any:
    """A piece with one zero for both; the piece itself where it has no negative one."""
    dtype = piece.dtype
    if dtype.kind not in "fc" or (dtype.char in "fd" and not has_negative_zero(piece)):
        return piece
    return piece + dtype.type(0)


def compare_tensors(left: Any, right: Any) -> ComparedTensors:
    """What two flat contiguous arrays are to each other."""
    sizes = left.size, right.size
    if left.dtype == right.dtype and left.dtype.char in "fd" and left.size == right.size:
        return _compare_floats(left, right)
    digests = digest_of(left), digest_of(right)
    if left.size != right.size:
        return ComparedTensors(digests, sizes, None)
    if digests[0] == digests[1] and left.dtype == right.dtype and left.dtype.kind in "biu":
        return ComparedTensors(digests, sizes, 0.0)
    return ComparedTensors(digests, sizes, values_difference(left, right))


def _compare_floats(left: Any, right: Any) -> ComparedTensors:
    import numpy as np
    from xxhash import xxh3_64

    size, step = left.size, _piece_of(left.dtype)
    mine, theirs, sums, zero = xxh3_64(), None, _Sums(), left.dtype.type(0)
    with np.errstate(all="ignore"):  # some NaN make the processor say so when anything is done with them
        for start in range(0, size, step):
            a, b = left[start : start + step], right[start : start + step]
            difference = compare(a, b)
            count, _, _, negative_zero, _, _ = difference
            if count and theirs is None:
                theirs = mine.copy()
            digested = a + zero if negative_zero[0] else a
            mine.update(digested)
            if theirs is not None:
                theirs.update(digested if not count else b + zero if negative_zero[1] else b)
            sums.add(start, a, b, difference)
    if theirs is None:
        return ComparedTensors((_word(mine), _word(mine)), (size, size), 0.0)
    detail = sums.detail(size) if sums.is_finite else None
    return ComparedTensors((_word(mine), _word(theirs)), (size, size), sums.delta(), detail)


@dataclass(slots=True)
class _Sums:
    """What is known of two tensors up to a piece."""

    squares: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    count: int = 0
    first: int = -1
    last: int = -1
    first_values: tuple[float, float] = (0.0, 0.0)
    becomes_zero: bool = True
    is_finite: bool = True
    is_unlike: bool = False  # NaN or infinities stand in other places

    def add(self, start: int, a: Any, b: Any, difference: Difference) -> None:
        """A piece of both that begins at ``start``, and how it differs."""
        count, first, last, _, is_zero, squares = difference
        if count:
            if self.first < 0:
                self.first, self.first_values = start + first, (float(a[first]) + 0.0, float(b[first]) + 0.0)
            self.last = start + last
            self.count += count
            self.becomes_zero = self.becomes_zero and is_zero
        mine, theirs, apart = squares
        if not (
            (_LEAST < mine < _GREATEST or not (mine or a.any()))
            and (_LEAST < theirs < _GREATEST or not (theirs or b.any()))
            and (_LEAST < apart < _GREATEST or not count)
        ):
            mine, theirs, apart = self._in_double(a, b)
        self.squares[0] += mine
        self.squares[1] += theirs
        self.squares[2] += apart

    def _in_double(self, a: Any, b: Any) -> tuple[float, float, float]:
        import numpy as np

        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(b)
        self.is_finite = self.is_finite and bool(finite.all()) and bool(np.isfinite(a).all())
        if not self.is_finite:
            if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                self.is_unlike = True
                return 0.0, 0.0, 0.0
            a, b = a[finite], b[finite]
        apart = a - b
        return square_of(a), square_of(b), square_of(apart)

    def delta(self) -> float:
        """The relative distance."""
        return math.inf if self.is_unlike else _relative(*self.squares)

    def detail(self, size: int) -> Detail:
        mine, theirs, apart = self.squares
        squares = mine, theirs, apart
        return Detail(size, self.count, self.first, self.last, self.first_values, self.becomes_zero, squares)


def values_difference(left: Any, right: Any) -> float:
    """Relative L2 distance of two flat arrays of one size; infinite where NaN and infinities are in other places.

    They are gone through in pieces that stay in the cache: no copy of a tensor is made.
    """
    # Here: a dump without tensor files is compared without numpy, which takes a third of the start.
    import numpy as np

    if left.dtype.kind in "biu" and right.dtype.kind in "biu":
        return 0.0 if np.array_equal(left, right) else 1.0
    if left.size != right.size:
        raise ValueError(said("array-sizes-apart", left.size, right.size))
    kind = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    left, right = np.asarray(left), np.asarray(right)  # pieces of mapped files cost more than what is done with them
    mine = theirs = apart = 0.0
    with np.errstate(all="ignore"):  # as above
        for start in range(0, left.size, ROW):
            ours, other = left[start : start + ROW], right[start : start + ROW]
            a, b = ours.astype(kind), other.astype(kind)
            finite = np.isfinite(b)
            if not np.array_equal(np.isfinite(a), finite):
                return math.inf
            if not finite.all():
                if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                    return math.inf
                a, b = a[finite], b[finite]
            mine += dot(a, a)
            theirs += dot(b, b)
            apart += dot(a - b, a - b)
    return _relative(mine, theirs, apart)


def dot(left: Any, right: Any) -> float:
    """The real part of the inner product of two flat arrays, in pieces so small that no library starts threads for
    them, which cost more than they save.
    """
    import numpy as np

    pieces = range(0, left.size, ROW)
    return sum(float(np.vdot(left[at : at + ROW], right[at : at + ROW]).real) for at in pieces)


def _relative(mine: float, theirs: float, apart: float) -> float:
    size = math.sqrt(max(mine, theirs))
    return math.sqrt(apart) / size if size else 0.0


def _word(digest: Any) -> str:
    return f"values:{digest.hexdigest()}"
