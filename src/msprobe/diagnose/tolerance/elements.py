"""What rounding may do to a single element, where the values of a result were recorded and its inputs agree.

The distance of two tensors is that of all elements together, in which one of ten thousand vanishes. The model gives the
size of errors as a share of the typical element (``noise``), and the largest of n normal errors is √(2 ln n) times as
large (Cramér, *Mathematical Methods of Statistics*, 28.6).
"""

from __future__ import annotations

import math
from typing import Any

from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.differences.tensor_pass import Detail
from msprobe.diagnose.tolerance.judge import Judged


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
        detail = comparer.detail(names[0], names[1])
        if detail is not None and _cannot_be_beyond(detail, judged.allowed):
            continue
        values = comparer.values(names[0], names[1])
        size = _furthest(*values) if values is not None else 0.0
        if size > judged.allowed:
            judged.status, judged.output_difference = "unexplained", max(judged.output_difference, size)


def _cannot_be_beyond(detail: Detail, allowed: float) -> bool:
    """Whether even the largest difference is within what rounding may do to a typical element."""
    if detail.size < 2:
        return True
    typical = math.sqrt(detail.squares[1] / detail.size)
    # What is known of it is right to some 1e-6.
    return typical > 0.0 and detail.largest <= 0.9999 * allowed * math.sqrt(2 * math.log(detail.size)) * typical


def _furthest(ours: Any, other: Any) -> float:
    """The largest difference of an element, beside its own size or that of the typical one, as a share of what the
    largest of so many errors may be.
    """
    import numpy as np

    if ours.size != other.size or ours.size < 2 or ours.dtype.kind not in "fc":
        return 0.0
    wide = [np.asarray(values, np.complex128 if values.dtype.kind == "c" else np.float64) for values in (ours, other)]
    typical = math.sqrt(float(np.mean(np.square(np.abs(wide[1])))))
    if not typical or not math.isfinite(typical):
        return 0.0
    furthest = np.max(np.abs(wide[0] - wide[1]) / np.maximum(np.abs(wide[1]), typical))
    return float(furthest) / math.sqrt(2 * math.log(ours.size)) if math.isfinite(furthest) else 0.0
