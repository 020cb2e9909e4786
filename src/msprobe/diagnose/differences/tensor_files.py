"""How far tensors are apart whose values both sides wrote to files."""

from __future__ import annotations

import filecmp
import math
from typing import Any

from msprobe.errors import MsprobeError
from msprobe.store.part import DumpPart

_PIECE = 1 << 13


class TensorFiles:
    """Reads the tensor files of two parts; each pair once."""

    def __init__(self, candidate: DumpPart, reference: DumpPart) -> None:
        self._candidate = candidate
        self._reference = reference
        self._deltas: dict[tuple[str, str], float | None] = {}

    def delta(self, left: str, right: str) -> float | None:
        """The relative distance of the values in two files; None where one cannot be read or has other elements."""
        key = (left, right)
        if key not in self._deltas:
            self._deltas[key] = self._read_delta(left, right)
        return self._deltas[key]

    def _read_delta(self, left: str, right: str) -> float | None:
        if self._equal_files(left, right):
            return 0.0
        pair = self.values(left, right)
        if pair is None or pair[0].size != pair[1].size:
            return None
        return of_values(*pair)

    def values(self, left: str, right: str) -> tuple[Any, Any] | None:
        """The values of two tensors, flat; None where one cannot be read."""
        one, other = self._candidate.array(left), self._reference.array(right)
        return None if one is None or other is None else (one.ravel(), other.ravel())

    def _equal_files(self, left: str, right: str) -> bool:
        """True if the files of two tensors are byte for byte the same, which is known sooner than what they hold."""
        try:
            return filecmp.cmp(self._candidate.tensor_path(left), self._reference.tensor_path(right), shallow=False)
        except (MsprobeError, OSError):
            return False


def of_values(left: Any, right: Any) -> float:
    """Relative L2 distance of two flat arrays of one size; infinite where NaN and infinities are in other places.

    They are gone through in pieces that stay in the cache: no copy of a tensor is made.
    """
    # Here: a dump without tensor files is compared without numpy, which takes a third of the start.
    import numpy as np

    if left.dtype.kind in "biu" and right.dtype.kind in "biu":
        return 0.0 if np.array_equal(left, right) else 1.0
    if left.size != right.size:
        raise ValueError(f"one array has {left.size} elements, the other {right.size}")
    kind = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    left, right = np.asarray(left), np.asarray(right)  # pieces of mapped files cost more than what is done with them
    mine = theirs = apart = 0.0
    for start in range(0, left.size, _PIECE):
        one, other = left[start : start + _PIECE], right[start : start + _PIECE]
        a, b = one.astype(kind), other.astype(kind)
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
    size = math.sqrt(max(mine, theirs))
    return math.sqrt(apart) / size if size else 0.0


def dot(left: Any, right: Any) -> float:
    """The real part of the inner product of two flat arrays, in pieces so small that no library starts threads for
    them, which cost more than they save.
    """
    import numpy as np

    pieces = range(0, left.size, _PIECE)
    return sum(float(np.vdot(left[at : at + _PIECE], right[at : at + _PIECE]).real) for at in pieces)
