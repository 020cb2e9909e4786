"""How far two tensors are apart, value by value.

Source of the measures and of the order of the checks: mindstudio-probe 8.1.1. Ours: whole numbers are subtracted as
whole numbers, complex ones as complex numbers, and 0 against 0 has no relative error in any element type.

One pass in pieces that stay in the cache, about 1 ns for each byte (bench/compare); the memory does not depend on
the size of the tensors.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from msprobe.messages import said
from msprobe.store.dtypes import Array

Value = float | str
Form = Literal["8.1.1", "26.2"]

TENSOR_MEASURES = (
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio",
)  # fmt: skip
THOUSANDTH, FIVE_THOUSANDTHS = 0.001, 0.005

UNSUPPORTED = "unsupported"
SHAPE_UNMATCHED = "shape unmatched"
NOT_AVAILABLE = "N/A"
NOT_A_NUMBER = "Nan"

_PIECE = 1 << 15
_EPSILON = float(np.finfo(np.float64).eps)
_DECIMALS = 12


@dataclass(frozen=True)
class TensorMeasures:
    """The six measures of a pair, each a number or the word that stands for it, and notes for the reader.

    ``own`` are the cells of columns that users add.
    """

    cosine: Value
    euclidean: Value
    max_absolute: Value
    max_relative: Value
    one_thousandth: Value
    five_thousandths: Value
    notes: tuple[str, ...] = ()
    own: tuple[Value, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        """The measures in the order of :data:`TENSOR_MEASURES`."""
        return (
            self.cosine, self.euclidean, self.max_absolute, self.max_relative,
            self.one_thousandth, self.five_thousandths,
        )  # fmt: skip


def all_six(word: str, *notes: str) -> TensorMeasures:
    """The same word for all measures."""
    return TensorMeasures(word, word, word, word, word, word, notes)


def measure_tensors(candidate: Array, reference: Array, form: Form = "8.1.1") -> TensorMeasures:
    """Compare two arrays of numbers; differing shapes and places of NaN are found here, too.

    The forms differ in the relative error of half precision and of values whose reference is 0, and in what they
    report tensors of one element.
    """
    if candidate.dtype.kind not in "biufc" or reference.dtype.kind not in "biufc":
        return all_six(UNSUPPORTED, said("values-are-no-numbers"))
    if candidate.size == 0:
        return all_six(UNSUPPORTED, said("tensor-is-empty"))
    if candidate.ndim and candidate.shape != reference.shape:
        note = said("tensor-shapes-differ", list(candidate.shape), list(reference.shape))
        return all_six(SHAPE_UNMATCHED, note)
    if not candidate.ndim and reference.size != 1:
        return all_six(SHAPE_UNMATCHED, said("target-single-value", list(reference.shape)))
    sums = _Sums(candidate.dtype, reference.dtype, form)
    if candidate.ndim == reference.ndim and _same_bytes(candidate, reference):
        # Equal bits: nothing to subtract, but the notes of a tensor without values apply.
        sums.same()
    elif not sums.add_all(candidate.reshape(-1), reference.reshape(-1)):
        elsewhere = said("not-finite-at-other-places")
        if not candidate.ndim:
            return TensorMeasures(
                UNSUPPORTED, UNSUPPORTED, NOT_A_NUMBER, NOT_A_NUMBER, UNSUPPORTED, UNSUPPORTED, (elsewhere,)
            )
        return all_six(NOT_AVAILABLE, elsewhere)
    measures = sums.measures(candidate.size)
    if not candidate.ndim or (form == "26.2" and candidate.size == 1):
        return replace(
            measures,
            cosine=UNSUPPORTED,
            euclidean=UNSUPPORTED,
            one_thousandth=UNSUPPORTED,
            five_thousandths=UNSUPPORTED,
            notes=(said("single-value-measures"),),
        )
    if candidate.shape == (1,):
        return replace(measures, cosine=UNSUPPORTED, notes=(said("one-element-no-cosine"),))
    return measures


def _same_bytes(candidate: Array, reference: Array) -> bool:
    if candidate.dtype != reference.dtype:
        return False
    if not (candidate.flags.c_contiguous and reference.flags.c_contiguous):
        return False
    ours, theirs = candidate.reshape(-1).view(np.uint8), reference.reshape(-1).view(np.uint8)
    # The first piece distinguishes most different tensors, for the price of nothing.
    if not np.array_equal(ours[:_PIECE], theirs[:_PIECE]):
        return False
    step = _PIECE * 16
    return all(
        np.array_equal(ours[start : start + step], theirs[start : start + step])
        for start in range(_PIECE, ours.size, step)
    )


class _Scratch(threading.local):
    """Arrays of one piece, used again and again: memory that comes and goes costs more than the arithmetic."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, np.dtype[Any]], Array] = {}

    def get(self, name: str, dtype: np.dtype[Any], count: int) -> Array:
        """``count`` elements that nobody else uses under this name and type."""
        scratch = self._known.get((name, dtype))
        if scratch is None:
            scratch = self._known[name, dtype] = np.empty(_PIECE, dtype)
        return scratch[:count]


_scratch = _Scratch()


def _as(values: Array, dtype: np.dtype[Any], name: str) -> Array:
    """The values in another type; the same array where it has that type."""
    if values.dtype == dtype:
        return values
    scratch = _scratch.get(name, dtype, values.size)
    scratch[:] = values
    return scratch


class _Sums:
    """What is gathered over the pieces of two flat arrays."""

    def __init__(self, candidate: npt.DTypeLike, reference: npt.DTypeLike, form: Form) -> None:
        ours, theirs = np.dtype(candidate), np.dtype(reference)
        self._complex = ours.kind == "c" or theirs.kind == "c"
        self._whole = ours.kind in "iub" and theirs.kind in "iub"
        self._wide = self._whole and 8 in (ours.itemsize, theirs.itemsize)
        # 8.1.1 calculates the relative error in the element type itself; half precision through single, rounded
        # after each operation, which gives the same numbers. 26.2 takes single precision at least.
        floats = ours.kind == "f" and theirs.kind == "f"
        self._half = form == "8.1.1" and floats and ours.itemsize == theirs.itemsize == 2
        joined = np.result_type(ours, theirs, np.float32) if floats else np.dtype(np.float64)
        self._relative_type: np.dtype[Any] = np.dtype(np.float32) if self._half else joined
        epsilon = float(np.finfo(joined).eps) if form == "26.2" else _EPSILON
        self._epsilon = self._relative_type.type(0.0 if self._half else epsilon)
        self._finite_kinds = ours.kind in "fc" or theirs.kind in "fc"
        self._dot = 0.0
        self._ours_squared = 0.0
        self._theirs_squared = 0.0
        self._squared = 0.0
        self._largest = 0.0
        self._largest_relative = 0.0
        self._nan = False
        self._within_thousandth = 0
        self._within_five = 0
        self._identical = False

    def same(self) -> None:
        """The two are the same."""
        self._identical = True

    def add_all(self, candidate: Array, reference: Array) -> bool:
        """Go through both; False if NaN or infinities stand at different places."""
        with np.errstate(all="ignore"):
            return all(
                self._add(candidate[start : start + _PIECE], reference[start : start + _PIECE])
                for start in range(0, candidate.size, _PIECE)
            )

    def _add(self, ours: Array, theirs: Array) -> bool:
        scratch, kind = _scratch.get, np.dtype(np.complex128 if self._complex else np.float64)
        if self._half:
            ours, theirs = _as(ours, np.dtype(np.float32), "ours"), _as(theirs, np.dtype(np.float32), "theirs")
        a, b = _as(ours, kind, "a"), _as(theirs, kind, "b")
        # One sum says whether there is anything to look for; it may overflow, so what it finds is looked at.
        if self._finite_kinds and not (np.isfinite(a.sum()) and np.isfinite(b.sum())):
            cleaned = _without_nonfinite(ours, theirs)
            if cleaned is None:
                return False
            ours, theirs = cleaned
            a, b = _as(ours, kind, "a"), _as(theirs, kind, "b")
        if self._wide:
            difference = _whole_difference(ours, theirs)
        else:
            difference = np.subtract(a, b, out=scratch("difference", kind, a.size))
        size = np.abs(difference, out=scratch("size", np.dtype(np.float64), a.size))
        if self._complex:
            self._dot += float(np.vdot(a, b).real)
            self._ours_squared += float(np.vdot(a, a).real)
            self._theirs_squared += float(np.vdot(b, b).real)
            self._squared += float(np.vdot(difference, difference).real)
        else:
            self._dot += float(np.dot(a, b))
            self._ours_squared += float(np.dot(a, a))
            self._theirs_squared += float(np.dot(b, b))
            self._squared += float(np.dot(difference, difference))
        self._largest = max(self._largest, float(size.max()))
        self._add_relative(ours, theirs, size, b)
        return True

    def _add_relative(self, ours: Array, theirs: Array, size: Array, b: Array) -> None:
        """|(n - b) / b|, with the epsilon added to both where b is 0."""
        scratch, kind, count = _scratch.get, self._relative_type, size.size
        divisor = scratch("divisor", kind, count)
        if self._complex or kind == np.float64:
            np.abs(b, out=divisor)
            over = size
        else:
            a, b = _as(ours, kind, "ours"), _as(theirs, kind, "theirs")
            np.abs(b, out=divisor)
            over = np.subtract(a, b, out=scratch("over", kind, count))
            np.abs(over, out=over)
        zero = np.equal(divisor, 0, out=scratch("zero", np.dtype(np.bool_), count))
        if self._half:
            over[:] = over.astype(np.float16)
        if zero.any():
            divisor[zero] = self._epsilon
        relative = np.divide(over, divisor, out=divisor)
        if self._half:
            relative[:] = relative.astype(np.float16)
            relative[zero & (over == 0)] = 0.0
        largest = float(relative.max())
        if not np.isfinite(largest):
            self._nan = True
        self._largest_relative = max(self._largest_relative, largest)
        self._within_thousandth += int(np.count_nonzero(np.less(relative, THOUSANDTH, out=zero)))
        self._within_five += int(np.count_nonzero(np.less(relative, FIVE_THOUSANDTHS, out=zero)))

    def measures(self, count: int) -> TensorMeasures:
        """The measures of all that was added."""
        if self._identical:
            return TensorMeasures(1.0, 0.0, 0.0, 0.0, 1.0, 1.0)
        notes: list[str] = []
        max_relative: Value = round(self._largest_relative, _DECIMALS)
        if self._nan:
            max_relative = NOT_A_NUMBER
            notes.append(said("relative-error-not-finite"))
        return TensorMeasures(
            cosine=self._cosine(notes),
            euclidean=float(np.sqrt(self._squared)),
            max_absolute=round(self._largest, _DECIMALS),
            max_relative=max_relative,
            one_thousandth=round(self._within_thousandth / count, _DECIMALS),
            five_thousandths=round(self._within_five / count, _DECIMALS),
            notes=tuple(notes),
        )

    def _cosine(self, notes: list[str]) -> Value:
        ours, theirs = float(np.sqrt(self._ours_squared)), float(np.sqrt(self._theirs_squared))
        if ours <= _EPSILON and theirs <= _EPSILON:
            return 1.0
        for name, norm in (("target-all-zero", ours), ("bench-all-zero", theirs)):
            if norm <= _EPSILON:
                notes.insert(0, said(name))
                return NOT_A_NUMBER
        cosine = self._dot / (ours * theirs)
        if not np.isfinite(cosine):
            notes.insert(0, said("norms-overflow"))
            return NOT_A_NUMBER
        return round(cosine, 6 if cosine > 0.9999 else _DECIMALS)


def _without_nonfinite(ours: Array, theirs: Array) -> tuple[Array, Array] | None:
    """Both with zeros in place of NaN and infinities; None if those stand at different places."""
    nan, infinite = np.isnan(ours), np.isinf(ours)
    if not (np.array_equal(nan, np.isnan(theirs)) and np.array_equal(infinite, np.isinf(theirs))):
        return None
    bad = nan | infinite
    return np.where(bad, ours.dtype.type(0), ours), np.where(bad, theirs.dtype.type(0), theirs)


def _whole_difference(ours: Array, theirs: Array) -> Array:
    """The difference of whole numbers of 64 bits, without loss where it is small."""
    a, b = ours.astype(np.uint64), theirs.astype(np.uint64)
    greater = ours > theirs if ours.dtype.kind == theirs.dtype.kind else ours.astype(object) > theirs.astype(object)
    size = np.where(greater, a - b, b - a).astype(np.float64)
    return np.where(greater, size, -size)
