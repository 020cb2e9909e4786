"""What rounding may do to a single element, where the values of a result were recorded and its inputs agree.

The distance of two tensors is that of all elements together, in which one of ten thousand vanishes. The model gives the
size of errors as a share of the typical element (``noise``), and the largest of n normal errors is √(2 ln n) times as
large (Cramér, *Mathematical Methods of Statistics*, 28.6).
"""

from __future__ import annotations

import math
from typing import Any

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.tolerance.judge import Judged

_PIECE = 1 << 16  # elements, which stay in the cache as float64


def mark_corrupted(judged: Judged, comparer: Comparer) -> None:
    """Call a pair unexplained that differs by rounding as a whole, if one of its elements does not."""
    if judged.status != "rounding" or judged.changed_inputs or judged.input_difference or not judged.allowed:
        return
    for difference in judged.changed_outputs:
        names = [
            leaf.get("data_name") if isinstance(leaf, dict) else None for leaf in (difference.left, difference.right)
        ]
        if not (isinstance(names[0], str) and isinstance(names[1], str)):
            continue
        values = comparer.values(names[0], names[1])
        size = _furthest(*values) if values is not None else 0.0
        if size > judged.allowed:
            judged.status, judged.output_difference = "unexplained", max(judged.output_difference, size)


def _furthest(ours: Any, other: Any) -> float:
    """The largest difference of an element, beside its own size or that of the typical one, as a share of what the
    largest of so many errors may be.
    """
    import numpy as np

    if ours.size != other.size or ours.size < 2 or ours.dtype.kind not in "fc":
        return 0.0
    kind = np.complex128 if "c" in (ours.dtype.kind, other.dtype.kind) else np.float64
    pieces = [slice(start, start + _PIECE) for start in range(0, ours.size, _PIECE)]
    squares = [float(np.square(np.abs(other[piece].astype(kind))).sum()) for piece in pieces]
    typical = math.sqrt(math.fsum(squares) / ours.size) if all(map(math.isfinite, squares)) else 0.0
    if not typical:
        return 0.0
    furthest = 0.0
    for piece in pieces:
        mine, theirs = ours[piece].astype(kind), other[piece].astype(kind)
        size = float(np.max(np.abs(mine - theirs) / np.maximum(np.abs(theirs), typical)))
        if not math.isfinite(size):
            return 0.0
        furthest = max(furthest, size)
    return furthest / math.sqrt(2 * math.log(ours.size))
