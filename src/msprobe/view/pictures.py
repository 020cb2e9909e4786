"""How the values of two tensors differ, as a picture: the worst slice as a grid of cells, and histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.view.protocol import Histogram, Picture

#: Cells along each side of the picture.
MOST_CELLS = 128
_BINS = 60
_WIDEST = 1e299
#: Of larger tensors so many elements are counted for the histogram, evenly spread.
_MOST_COUNTED = 1 << 22
#: Larger tensors are not read: the answer would take many seconds, and as much memory.
MOST_ELEMENTS = 1 << 28

Values = npt.NDArray[Any]


def picture_of(candidate: Values, reference: Values) -> Picture:
    """The answer of ``/api/picture``.

    Both arrays have the same shape. ``cells`` shows the last two dimensions of the slice with the largest difference,
    the largest absolute difference of each cell; NaN or infinity on one side alone is as large as JSON can write.
    Raises InvalidInputError for shapes that differ, kinds of numbers without a difference, and tensors that are too
    large.
    """
    if candidate.shape != reference.shape:
        raise InvalidInputError(said("picture-shapes-differ", list(candidate.shape), list(reference.shape)))
    if candidate.size > MOST_ELEMENTS:
        raise InvalidInputError(said("picture-too-large", candidate.size))
    if candidate.dtype.kind not in "fiubc" or reference.dtype.kind not in "fiubc":
        raise InvalidInputError(said("picture-without-difference"))
    shape = list(candidate.shape)
    if not candidate.size:
        raise InvalidInputError(said("picture-of-nothing"))
    kind = np.complex128 if "c" in (candidate.dtype.kind, reference.dtype.kind) else np.float64
    matrix = _as_slices(candidate), _as_slices(reference)
    worst, largest = _worst_slice(*matrix, kind)
    apart = _difference(matrix[0][worst], matrix[1][worst], kind)
    return {
        "shape": shape,
        "slice": _slice_in_words(worst, candidate.shape),
        "cells": [[_number(value) for value in row] for row in _cells(apart)],
        "cell": (-(-apart.shape[0] // MOST_CELLS), -(-apart.shape[1] // MOST_CELLS)),
        "largest": _number(largest),
        "histogram": _histograms(candidate, reference, kind),
    }


def _as_slices(values: Values) -> Values:
    """Three dimensions: the slices, and the last two of the tensor."""
    while values.ndim < 2:
        values = values[np.newaxis]
    return values.reshape((-1, *values.shape[-2:]))


def _difference(left: Values, right: Values, kind: Any) -> npt.NDArray[np.float64]:
    """Absolute difference; infinite where one side alone is NaN or infinite, 0 where both are alike."""
    a, b = left.astype(kind), right.astype(kind)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart[same] = 0.0
    apart[~np.isfinite(apart)] = np.inf
    return np.asarray(apart, np.float64)


def _worst_slice(left: Values, right: Values, kind: Any) -> tuple[int, float]:
    worst, largest = 0, -1.0
    for number in range(left.shape[0]):
        largest_here = float(_difference(left[number], right[number], kind).max())
        if largest_here > largest:
            worst, largest = number, largest_here
    return worst, largest


def _slice_in_words(number: int, shape: tuple[int, ...]) -> str:
    if len(shape) < 2:
        return "[:]"
    index = [str(int(index)) for index in np.unravel_index(number, shape[:-2])] if len(shape) > 2 else []
    return f"[{', '.join([*index, ':', ':'])}]"


def _cells(apart: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rows = np.arange(0, apart.shape[0], -(-apart.shape[0] // MOST_CELLS))
    columns = np.arange(0, apart.shape[1], -(-apart.shape[1] // MOST_CELLS))
    cells: npt.NDArray[np.float64] = np.maximum.reduceat(np.maximum.reduceat(apart, rows, axis=0), columns, axis=1)
    return cells


def _histograms(candidate: Values, reference: Values, kind: Any) -> Histogram:
    every = max(1, candidate.size // _MOST_COUNTED)
    a, b = (side.reshape(-1)[::every].astype(kind) for side in (candidate, reference))
    if kind is np.complex128:
        a, b = np.abs(a), np.abs(b)
    values = np.concatenate([a, b])
    finite = values[np.isfinite(values)]
    edges = _edges(finite)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = a - b
    differences = apart[np.isfinite(apart)]
    apart_edges = _edges(differences)
    return {
        "edges": [_number(edge) for edge in edges],
        "candidate": np.histogram(a[np.isfinite(a)], edges)[0].tolist(),
        "reference": np.histogram(b[np.isfinite(b)], edges)[0].tolist(),
        "difference_edges": [_number(edge) for edge in apart_edges],
        "difference": np.histogram(differences, apart_edges)[0].tolist(),
        "every": every,
    }


def _edges(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Edges of bins from the least to the largest; what is further out than float64 can span is in no bin."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    low, high = (min(max(bound, -_WIDEST), _WIDEST) for bound in (low, high))
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        # One number, which cannot be cut.
        pad = max(abs(low), abs(high), 1e-12) * 1e-3
        low, high = low - pad, high + pad
    return np.linspace(low, high, _BINS + 1)


def _number(value: float) -> float:
    number = float(value)
    if math.isnan(number):
        return 1e300
    return max(-1e300, min(1e300, float(f"{number:.5e}"))) if math.isfinite(number) else math.copysign(1e300, number)
