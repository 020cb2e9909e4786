"""The verdict on a result of MindSpore (mindstudio-probe 8.1.1): its cosine, and its largest difference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from msprobe.messages import said
from msprobe.precheck.side.elements import HALVES, format_of

COSINE_OVER, MAX_ABS_BELOW = 0.99, 0.001
_SMALL = 1e-8


class ByCosine(NamedTuple):
    """``pass`` or ``error``, why, and the numbers where arrays were compared."""

    status: str = "pass"
    message: str = ""
    cosine: float | None = None
    max_abs: float | None = None
    max_relative: float | None = None


def judge_by_cosine(ours: Any, theirs: Any, their_type: str, atol: float = MAX_ABS_BELOW) -> ByCosine:
    """Compare a result with the reference (``ours``), each an array or a plain value. ``their_type``: MindSpore's word
    of its type; ``atol``: below which largest difference it passes.
    """
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        return ByCosine() if ours == theirs else ByCosine("error", said("value-differs", theirs, ours))
    if ours.shape != theirs.shape:
        return ByCosine("error", said("result-shapes-differ", theirs.shape, ours.shape))
    b, d = ours.astype(np.float64).ravel(), theirs.astype(np.float64).ravel()
    if not np.array_equal(np.isfinite(b), np.isfinite(d)):
        return ByCosine("error", said("infinities-elsewhere"))
    finite = np.isfinite(b)
    b, d = b[finite], d[finite]
    if not b.size:
        return ByCosine()
    cosine = float((b @ d + _SMALL) / (np.linalg.norm(b) * np.linalg.norm(d) + _SMALL))
    largest = float(np.max(np.abs(d - b)))
    numbers = (cosine, largest, float(np.max(np.abs(d - b) / (np.abs(b) + _SMALL))))
    word = their_type.lower()
    # A half type cannot be nearer than its rounding, at sizes above one.
    unit = 2.0 ** -format_of(word)[0] if word in HALVES else 0.0
    allowed = max(atol, 2 * unit * float(np.max(np.abs(b))))
    if cosine <= COSINE_OVER:
        return ByCosine("error", said("cosine-too-small", cosine, COSINE_OVER), *numbers)
    if largest >= allowed:
        return ByCosine("error", said("largest-difference-too-large", largest, allowed), *numbers)
    return ByCosine("pass", "", *numbers)
