"""Perturbations and comparisons of elements on the host, as numpy arrays, by the rules of the kernels for PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from msprobe.config.settings import NoiseKind, PerturbationMode
from msprobe.messages import said
from msprobe.perturb.framework import ErrorLimits, Reactions, TensorDistance
from msprobe.perturb.thresholds import noise_of
from msprobe.signed_errors import CheckedResult, judge_signed

Array = np.ndarray[Any, np.dtype[Any]]

_PERIOD = 4099
_FACTOR = 4.0
_ROW = 16
# Of the bits of float32 these are not there in bfloat16.
_BITS_OF_BFLOAT16 = 16


def perturbed(mode: PerturbationMode, own: Array, dtype: str, noise: NoiseKind, scale: int) -> Any:
    """A changed copy, or the reason why there is none. ``dtype``: the type of the tensor, of which bfloat16 comes as
    float32.
    """
    least = noise_of(dtype)
    if least is None or (mode == "bit_noise" and dtype == "bfloat16"):
        return "dtype unsupported"
    if not own.size:
        return "tensor shape must > 0"
    magnitude = np.abs(own)
    if not float(magnitude.max()) >= least:
        return "maximum value is less than the minimum threshold"
    if mode == "add_noise" and noise == "absolute":
        return np.where(magnitude > least**0.5, own + own.dtype.type(least), own)
    raw = np.ascontiguousarray(own).view(f"i{own.itemsize}")
    if mode == "bit_noise":
        moved = raw ^ 1
    else:
        step = scale << _BITS_OF_BFLOAT16 if dtype == "bfloat16" else scale
        moved = raw + (signs(own.size, 0).reshape(own.shape) * step).astype(raw.dtype)
    changed = moved.view(own.dtype).reshape(own.shape)
    is_changed = (magnitude > np.finfo(own.dtype).tiny) & np.isfinite(changed) & np.isfinite(own)
    return np.where(is_changed, changed, own)


def rounded(own: Array, unit: float, seed: int) -> Array:
    """Each element times ``1 + unit`` or ``1 - unit``."""
    moves = signs(own.size, seed + 1).reshape(own.shape) * unit + 1
    return (own * moves).astype(own.dtype)


def moved(own: Array, unit: float, seed: int) -> Array:
    """The same, finite where it was."""
    with np.errstate(over="ignore"):
        shifted = rounded(own, unit, seed)
    return np.where(np.isfinite(shifted), shifted, own)


def signs(count: int, seed: int) -> Array:
    """+1 and -1 for so many elements, by a hash of their index (Knuth 6.4)."""
    index = np.arange(min(count, _PERIOD), dtype=np.int64) + seed * 7919 + 1
    mixed = (index * 2654435761) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    return np.resize((((mixed >> 16) & 1) * 2 - 1).astype(np.int8), count).astype(np.int64)


def exchanged(own: Array, axis: int | None) -> Any:
    if own.dtype.kind not in "fc":
        return "dtype unsupported"
    exchanged_array = own.copy()
    if axis is None and own.ndim > 1:
        if not (own.shape[0] and own.shape[1] and max(own.shape[:2]) > 1):
            return "at least one of 0-dimension or 1-dimension greater than 1"
        exchanged_array[0, 0], exchanged_array[-1, -1] = own[-1, -1], own[0, 0]
        return exchanged_array
    axis = axis or 0
    if not -own.ndim <= axis < own.ndim or own.shape[axis] < 2:
        return "0-dimension must greater than 1"
    view, source = np.moveaxis(exchanged_array, axis, 0), np.moveaxis(own, axis, 0)
    view[0], view[-1] = source[-1], source[0]
    return exchanged_array


def compare(own: Array, other: Array, limits: ErrorLimits) -> TensorDistance:
    """By the ratio of magnitudes."""
    if own.shape != other.shape:
        raise ValueError(said("repeated-shape-differs", list(own.shape), list(other.shape)))
    if own.dtype.kind == "b" or not own.size or np.array_equal(own, other):
        return TensorDistance(True)
    mismatch, flips, ratio, a, b = _elements(_wide(own), _wide(other), limits.floor)
    bad = (ratio > limits.ratio) | mismatch | flips
    word = "nan_mismatch" if mismatch.any() else "symbol_flipping" if flips.any() else ""
    worst = float(ratio.max())
    mean = float((np.abs(a - b) / np.maximum(np.abs(a), limits.floor)).mean())
    return TensorDistance(not word and worst <= limits.ratio, worst, word, mean, float(bad.mean()))


def is_explained(own: Array, other: Array, limits: ErrorLimits, reactions: Reactions) -> bool:
    base = _wide(reactions.base)
    mismatch, flips, ratio, a, b = _elements(_wide(own), _wide(other), limits.floor)
    unbounded, answer = ~np.isfinite(base), np.zeros_like(base)
    for shift in reactions.shifted:
        unbounded |= ~np.isfinite(shift)
        with np.errstate(invalid="ignore"):
            answer = np.maximum(answer, np.nan_to_num(np.abs(_wide(shift) - base), posinf=0.0, neginf=0.0))
    square = np.square(answer)
    has_rows = answer.ndim > 1 and answer.shape[-1] >= _ROW
    scale = np.sqrt(square.mean(-1, keepdims=True) if has_rows else square.mean())
    own_rounding = 2 * reactions.unit * np.nan_to_num(np.abs(base), posinf=0.0, neginf=0.0)
    allowed = _FACTOR * (own_rounding + np.maximum(answer, scale))
    bad = (ratio > limits.ratio) | flips
    unexplained = (bad & (np.abs(a - b) > allowed)) | mismatch
    return not bool((unexplained & ~unbounded).any())


def goes_one_way(own: Array, reactions: Reactions) -> str:
    base, given = _wide(reactions.base), _wide(own)
    if base.shape != given.shape or not base.size:
        return ""
    shifted = [_wide(shift) for shift in reactions.shifted]
    finite = np.isfinite(base) & np.isfinite(given)
    for shift in shifted:
        finite &= np.isfinite(shift)
    base = np.where(finite, base, 0.0)
    answer = np.zeros_like(base)
    with np.errstate(invalid="ignore"):
        for shift in shifted:
            answer = np.maximum(answer, np.where(finite, np.abs(shift - base), 0.0))
        errors = np.where(finite, given - base, 0.0)
    epsilon = 2 * reactions.unit
    units = np.exp2(np.floor(np.log2(np.maximum(np.abs(base), np.finfo(np.float32).tiny)))) * epsilon
    typical = float(np.sqrt(np.mean(np.square(base)))) * epsilon / 8
    judged = judge_signed(CheckedResult(base, errors, units, np.maximum(np.maximum(units, answer), typical), epsilon))
    return judged.message if judged.status != "pass" else ""


def distance(first: Array, other: Array) -> float:
    """Norm of the difference over the norm of the first."""
    a, b = _wide(first), _wide(other)
    finite = np.isfinite(a) & np.isfinite(b)
    norm, apart = float(np.linalg.norm(a[finite])), float(np.linalg.norm(a[finite] - b[finite]))
    return apart / norm if norm else (0.0 if not apart else float("inf"))


def _elements(a: Array, b: Array, floor: float) -> tuple[Array, Array, Array, Array, Array]:
    """Of each element: finite on one side alone; another sign; ratio of magnitudes; and both, zero where not finite."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(finite, a, 0), np.where(finite, b, 0)
    r = np.maximum(np.abs(a), floor) / np.maximum(np.abs(b), floor)
    return ~finite & ~same, a * b < -(floor**2), np.maximum(r, 1 / r), a, b


def _wide(array: Array) -> Array:
    return np.asarray(array, np.float64)
