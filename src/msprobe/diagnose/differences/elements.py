"""How a piece of two tensors differs, element by element: in C, or with numpy where the extension was not built.

``MSPROBE_NATIVE=0`` in the environment chooses numpy. Both give the same but for the rounding of sums.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

#: No library starts threads for an inner product of so many, which cost more than they save.
ROW = 1 << 13
#: Of all bits read as integers, those of the negative zero are the least.
_BITS = {"f": ("i4", -(1 << 31)), "d": ("i8", -(1 << 63))}

#: The square of a distance below which two tensors have one size to some 1e-6, as right as their sums are.
_ONE_SIZE = 1e-12

#: Of two pieces of one type (float32 or float64) and size: how many elements differ, NaN among them; the places of the
#: first and the last (-1: none); whether either has a negative zero; whether the first piece is zero where they differ;
#: the sums of squares of the first, the second and their difference, in single precision at least over each row.
Difference = tuple[int, int, int, tuple[bool, bool], bool, tuple[float, float, float]]


def compare_with_numpy(left: Any, right: Any) -> Difference:
    """As ``compare``, in several passes."""
    import numpy as np

    differs = np.not_equal(left, right)
    count = int(np.count_nonzero(differs))
    zeros = has_negative_zero(left), has_negative_zero(right)
    square = square_of(left)
    if not count:
        return 0, -1, -1, zeros, True, (square, square, 0.0)
    # Where all differ, or the last does, nothing is searched: backwards, numpy copies what it searches.
    first, last = int(differs.argmax()), differs.size - 1
    if not differs[-1]:
        last -= int(differs[::-1].argmax())
    is_zero = not left[first] and not left[differs].any()
    apart = square_of(left - right)
    other = square if apart <= _ONE_SIZE * square else square_of(right)
    return count, first, last, zeros, is_zero, (square, other, apart)


def has_negative_zero(piece: Any) -> bool:
    """Whether a flat array of float32 or float64 has a zero with a sign."""
    integer, least = _BITS[piece.dtype.char]
    return bool(piece.size and piece.view(integer).min() == least)


def square_of(piece: Any) -> float:
    """The sum of the squares of a contiguous piece: inner products of rows, made by one call and added up in double."""
    import numpy as np

    rows = piece.size // ROW
    full = rows * ROW
    total = float(np.vdot(piece[full:], piece[full:]))
    if rows:
        head = piece[:full]
        products = np.matmul(head.reshape(rows, 1, ROW), head.reshape(rows, ROW, 1))
        total += float(np.add.reduce(products, axis=None, dtype=np.float64))
    return total


def _in_c() -> Callable[[Any, Any], Difference] | None:
    if os.environ.get("MSPROBE_NATIVE", "1") == "0":
        return None
    try:
        from msprobe.diagnose.differences._elements import compare as native
    except ImportError:
        return None
    return native  # type: ignore[no-any-return]


compare: Callable[[Any, Any], Difference] = _in_c() or compare_with_numpy
is_in_c = compare is not compare_with_numpy
