"""How far two tensors are apart, and what kind of difference it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from msprobe.compare.number_types import LEAST_SPACING, UNIT
from msprobe.environment.checkpoint.megatron_names import is_vocabulary
from msprobe.environment.checkpoint.tensors import CheckpointTensor
from msprobe.messages import said
from msprobe.store.dtypes import Array

MeasureKind = Literal[
    "missing", "extra", "other shape", "not finite", "reshaped", "transposed", "permuted", "exchanged", "scaled",
    "stale", "changed", "padded", "rounded", "equal", "unreadable",
]  # fmt: skip

_BLOCK = 1 << 20
# Layouts pad a vocabulary to a multiple of 128 or so; where more is gone, a rank's share of it is.
_PADDED = 0.75
_FRACTION_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


@dataclass(frozen=True)
class ParameterMeasures:
    """What was found of one parameter.

    ``l2`` is the 2-norm of the difference, ``cosine`` that of the angle (None where one side is zero), ``relative``
    is l2 by
    the norm of the first. ``shape``, ``dtype``: of each side. ``factor``: the second by the first, where it is one
    number. ``padded``: rows of both, of which the common ones were compared.
    """

    name: str
    kind: MeasureKind
    shape: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    dtype: tuple[str | None, str | None]
    l2: float | None = None
    cosine: float | None = None
    relative: float | None = None
    max_abs: float | None = None
    max_relative: float | None = None
    nan_count: tuple[int, int] = (0, 0)
    inf_count: tuple[int, int] = (0, 0)
    ulp_max: int | None = None
    factor: float | None = None
    norms: tuple[float, float] | None = None
    padded: tuple[int, int] | None = None
    detail: str = ""
    replicas_differ: tuple[bool, bool] = (False, False)
    differing_files: tuple[str, ...] = ()
    other_name: str | None = None
    section: str = "weights"

    @property
    def exact(self) -> bool:
        """True if both sides have the same numbers."""
        return self.kind == "equal" or (self.kind == "stale" and self.l2 == 0)

    @property
    def numel(self) -> tuple[int, int]:
        """Elements of each side."""
        first, second = (math.prod(shape) if shape is not None else 0 for shape in self.shape)
        return first, second


def measure(name: str, first: CheckpointTensor, second: CheckpointTensor) -> ParameterMeasures:
    """Compare two tensors. Raises PathError, InvalidInputError where one cannot be read."""
    measures = ParameterMeasures(name, "changed", (first.shape, second.shape), (first.dtype, second.dtype))
    a, b = _numbers(first.read()), _numbers(second.read())
    if a.shape != b.shape:
        return _compare_shapes(measures, a, b)
    return _kind(_apart(measures, a, b), a, b)


def _numbers(array: Array) -> Array:
    """Complex numbers as pairs, so that no half of them is lost."""
    if array.dtype.kind != "c":
        return array
    real = array.real.dtype
    return np.ascontiguousarray(array).view(real).reshape((*array.shape, 2))


def _compare_shapes(measures: ParameterMeasures, a: Array, b: Array) -> ParameterMeasures:
    if a.size == b.size:
        if a.ndim >= 2 and a.ndim == b.ndim and b.shape == a.swapaxes(-1, -2).shape and _same(a.swapaxes(-1, -2), b):
            return replace(measures, kind="transposed", detail=said("axes-exchanged"))
        if _same(a.reshape(-1), b.reshape(-1)):
            return replace(measures, kind="reshaped", detail=said("same-order-of-elements"))
        if _same_in_another_order(a, b):
            return replace(measures, kind="permuted", detail=said("different-order-and-shape"))
    if is_vocabulary(measures.name) and a.ndim == b.ndim >= 1 and a.shape[1:] == b.shape[1:]:
        rows = min(len(a), len(b))
        common = _apart(measures, a[:rows], b[:rows])
        detail = said("rows-padded-equal" if common.l2 == 0 else "rows-padded-compared", len(a), len(b))
        kind: MeasureKind = (
            "changed" if common.l2 != 0 else "padded" if rows >= _PADDED * max(len(a), len(b)) else "other shape"
        )
        return replace(common, kind=kind, padded=(len(a), len(b)), detail=detail)
    return replace(measures, kind="other shape", detail=said("fields-and", str(list(a.shape)), str(list(b.shape))))


def _same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f"))


def _same_in_another_order(a: Array, b: Array) -> bool:
    if a.size < 2 or a.dtype != b.dtype:
        return False
    first, second = a.reshape(-1), b.reshape(-1)
    # A sum of squares is the same in any order but for its rounding: sorting is for those where it is.
    ours, two = _squares(first), _squares(second)
    if not (math.isfinite(ours) and abs(ours - two) <= 1e-9 * max(ours, two)):
        return False
    return _same(np.sort(first), np.sort(second))


def _squares(flat: Array) -> float:
    return sum(
        float(np.dot(part, part))
        for part in (flat[at : at + _BLOCK].astype(np.float64) for at in range(0, flat.size, _BLOCK))
    )


def _apart(measures: ParameterMeasures, a: Array, b: Array) -> ParameterMeasures:
    """Everything that adds up, block by block, in double precision."""
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    dot = square_a = square_b = square_d = max_abs = max_relative = 0.0
    nan, inf = [0, 0], [0, 0]
    same_numbers = True
    with np.errstate(all="ignore"):
        for at in range(0, flat_a.size, _BLOCK):
            raw = flat_a[at : at + _BLOCK], flat_b[at : at + _BLOCK]
            equal = _same(*raw)
            same_numbers &= equal
            x, y = raw[0].astype(np.float64), raw[1].astype(np.float64)
            for side, values_of_side in enumerate((x, y)):
                if not np.isfinite(values_of_side).all():
                    nan[side] += int(np.isnan(values_of_side).sum())
                    inf[side] += int(np.isinf(values_of_side).sum())
            dot += float(np.dot(x, y))
            square_a += float(np.dot(x, x))
            square_b += float(np.dot(y, y))
            if equal:
                continue
            apart = np.abs(x - y)
            square_d += float(np.dot(apart, apart))
            max_abs = _larger(max_abs, float(np.max(apart)))
            share = apart / np.abs(x)
            max_relative = _larger(max_relative, float(np.max(share, initial=0.0, where=apart != 0)))
    norm_a, norm_b, l2 = math.sqrt(square_a), math.sqrt(square_b), math.sqrt(square_d) if square_d >= 0 else math.nan
    return replace(
        measures,
        kind="equal" if same_numbers else "changed",
        l2=math.nan if any(nan) else l2,
        cosine=_cosine(dot, norm_a, norm_b, same_numbers and not any(nan)),
        relative=l2 / norm_a if norm_a else (0.0 if l2 == 0 else math.inf),
        max_abs=max_abs,
        max_relative=max_relative,
        nan_count=(nan[0], nan[1]),
        inf_count=(inf[0], inf[1]),
        factor=dot / square_a if square_a else None,
        norms=(norm_a, norm_b),
    )


def _larger(first: float, second: float) -> float:
    return second if math.isnan(second) or second > first else first


def _cosine(dot: float, norm_a: float, norm_b: float, same: bool) -> float | None:
    if norm_a == norm_b == 0 or (same and math.isfinite(norm_a)):
        return 1.0
    if norm_a == 0 or norm_b == 0:
        return None
    return dot / norm_a / norm_b


def _kind(measures: ParameterMeasures, a: Array, b: Array) -> ParameterMeasures:
    factor, measures = measures.factor, replace(measures, factor=None)
    if measures.kind == "equal":
        return measures
    measures = replace(measures, ulp_max=_units(a, b, measures.dtype))
    if measures.nan_count != (0, 0) or measures.inf_count != (0, 0):
        if measures.nan_count != measures.nan_count[::-1] or measures.inf_count != measures.inf_count[::-1]:
            detail = said("nan-and-inf-of-both", *measures.nan_count, *measures.inf_count)
            return replace(measures, kind="not finite", detail=detail)
        return measures
    if measures.dtype[0] != measures.dtype[1] and _is_rounded(measures, a, b):
        return replace(measures, kind="rounded", detail=said("equal-but-for-rounding-of-types", *measures.dtype))
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2] and _same(a.swapaxes(-1, -2), b):
        return replace(measures, kind="transposed", detail=said("axes-exchanged"))
    if _same_in_another_order(a, b):
        return replace(measures, kind="permuted", detail=_order(a, b))
    if measures.cosine is None:
        return replace(
            measures, detail=said("first-all-zeros" if measures.relative == math.inf else "second-all-zeros")
        )
    return _scaled(measures, factor)


def _is_rounded(measures: ParameterMeasures, a: Array, b: Array) -> bool:
    kinds = [kind for kind in measures.dtype if kind in UNIT]
    if len(kinds) < 2:
        return False
    limit = max(UNIT[kind] for kind in kinds)
    floor = max(LEAST_SPACING.get(kind, 0.0) for kind in kinds)
    x, y = a.reshape(-1), b.reshape(-1)
    for at in range(0, x.size, _BLOCK):
        ours, two = x[at : at + _BLOCK].astype(np.float64), y[at : at + _BLOCK].astype(np.float64)
        if not np.all(np.abs(ours - two) <= limit * np.maximum(np.abs(ours), np.abs(two)) * (1 + 1e-6) + floor):
            return False
    return True


def _order(a: Array, b: Array) -> str:
    for what, x, y in (("rows-in-different-order", a, b), ("columns-in-different-order", a.T, b.T)):
        if a.ndim == 2 and len(x) > 1:
            orders = _row_order(x), _row_order(y)
            if _same(x[orders[0]], y[orders[1]]):
                block = _block(*orders)
                return said(what, said("in-blocks-as-heads", block) if block > 1 else "")
    if a.ndim == 1:
        block = _block(np.argsort(a, kind="stable"), np.argsort(b, kind="stable"))
        return said("elements-in-different-order", said("in-blocks", block) if block > 1 else "")
    return said("elements-in-different-order", "")


def _block(first: Array, second: Array) -> int:
    """How many neighbours stayed together, if what ``first`` sorts was exchanged to what ``second`` sorts."""
    source = np.empty_like(first)
    source[second] = first
    ends = np.flatnonzero(np.diff(source) != 1) + 1
    return int(np.gcd.reduce(np.append(ends, len(source))))


def _row_order(rows: Array) -> Array:
    """An order of rows that depends on what is in them alone."""
    return np.lexsort(tuple(rows[:, at] for at in range(min(rows.shape[1], 64))))


def _scaled(measures: ParameterMeasures, factor: float | None) -> ParameterMeasures:
    if factor is None or factor == 0 or measures.cosine is None or measures.l2 is None or measures.numel[0] < 4:
        return measures
    # What is left over after scaling is the sine of the angle; it cannot be distinguished from rounding below this.
    slack = max(16 * max(UNIT.get(kind or "", 0.0) for kind in measures.dtype), 1e-7)
    sine = math.sqrt(max(0.0, 1 - measures.cosine * measures.cosine))
    if sine > slack or abs(factor - 1) <= 16 * slack:
        return measures
    return replace(measures, kind="scaled", factor=factor, detail=said("second-is-times-first", factor))


def _units(a: Array, b: Array, dtypes: tuple[str | None, str | None]) -> int | None:
    """The largest distance in units in the last place; None for types that have none."""
    bits = _FRACTION_BITS.get(dtypes[0] or "")
    if dtypes[0] != dtypes[1] or bits is None or a.dtype != b.dtype:
        return None
    whole: Any = {2: np.int16, 4: np.int32, 8: np.int64}[a.dtype.itemsize]
    shift = {2: 10, 4: 23, 8: 52}[a.dtype.itemsize] - bits
    largest = 0
    x, y = a.reshape(-1), b.reshape(-1)
    for at in range(0, x.size, _BLOCK):
        ours, two = (
            np.ascontiguousarray(part[at : at + _BLOCK])
            .view(whole)
            .astype(np.float64 if whole is np.int64 else np.int64)
            for part in (x, y)
        )
        low = -(2 ** (8 * a.dtype.itemsize - 1))
        ours, two = (np.where(part < 0, low - part, part) for part in (ours, two))
        largest = max(largest, int(np.max(np.abs(ours - two), initial=0)))
    return largest >> shift
