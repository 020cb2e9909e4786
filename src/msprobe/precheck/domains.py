"""What arguments of some APIs must be beside in their range: sorted, labels of classes, probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from msprobe.precheck.arguments import Argument, ArgumentTensor, Plain
from msprobe.precheck.metrics import Array
from msprobe.precheck.requests import ApiCall

Name = Literal[
    "", "sorted", "offsets", "unlike", "positive definite", "regular", "labels", "probabilities", "overwritten"
]
#: Of labels this part, at least one, is the index that a loss ignores, where the record has it.
IGNORED_PART = 8
#: Types of labels that kernels of NPUs take and those of torch's CPU do not: they become int64.
NARROW_LABELS = ("int8", "int16", "int32")
_IGNORE_INDEX = -100  # the default of torch and of MindSpore


@dataclass(frozen=True)
class Domain:
    """What values of one argument must be.

    - ``low``, ``high``: the range of labels, in place of the recorded extremes; else None.
    - ``ignored``: the label that the loss ignores, where the record has it at some places.
    - ``axis``: the dimension of the classes, along which probabilities sum to 1.
    """

    name: Name = ""
    low: int | None = None
    high: int | None = None
    ignored: int | None = None
    axis: int | None = None

    def adjusted(self, values: Array, random: np.random.Generator) -> Array:
        """Finite values of the argument's shape, changed so that they are in the domain."""
        if self.name == "labels":
            return _with_ignored(values, self.ignored, random)
        if self.name == "probabilities":
            return _probabilities(values, self.axis, random)
        adjust = _ADJUST.get(self.name)
        return adjust(values, random) if adjust else values


def _with_ignored(values: Array, ignored: int | None, random: np.random.Generator) -> Array:
    if ignored is not None:
        flat = values.reshape(-1)
        flat[random.permutation(flat.size)[: max(1, flat.size // IGNORED_PART)]] = ignored
        return flat.reshape(values.shape)
    return values


def _probabilities(values: Array, axis: int | None, random: np.random.Generator) -> Array:
    values = np.clip(values, 0, 1)
    if axis is None:
        return values
    rows = np.moveaxis(values, axis, -1).copy()
    empty = ~rows.any(-1)
    # Where a record is mostly zeros (a single 1 in each row), a row may have got none.
    rows[empty, random.integers(0, rows.shape[-1], int(empty.sum()))] = 1
    return np.moveaxis(rows / rows.sum(-1, keepdims=True), -1, axis)


def _sorted(values: Array, random: np.random.Generator) -> Array:
    return np.sort(values, axis=-1)


def _offsets(values: Array, random: np.random.Generator) -> Array:
    values = np.sort(values, axis=-1)
    values[..., 0] = 0
    return values


def _unlike(values: Array, random: np.random.Generator) -> Array:
    """Whole numbers of which no two in a row are the same, where the range allows it."""
    low, high = int(values.min()), int(values.max())
    room, length = high - low + 1, values.shape[-1] if values.ndim else 1
    if values.ndim == 0 or room < length:
        return values
    rows = values.reshape(-1, length)
    for row in rows:
        row[:] = low + random.permutation(room)[:length]
    return values


def _positive_definite(values: Array, random: np.random.Generator) -> Array:
    if values.ndim < 2 or values.shape[-1] != values.shape[-2]:
        return values
    size = values.shape[-1]
    return np.asarray(values @ np.swapaxes(values, -1, -2) / size + np.eye(size))


def _regular(values: Array, random: np.random.Generator) -> Array:
    """Square matrices that can be inverted."""
    if values.ndim < 2 or values.shape[-1] != values.shape[-2]:
        return values
    size = float(np.max(np.abs(values))) or 1.0
    return np.asarray(values + np.eye(values.shape[-1]) * size * math.sqrt(values.shape[-1]))


_ADJUST: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "sorted": _sorted,
    "offsets": _offsets,
    "unlike": _unlike,
    "positive definite": _positive_definite,
    "regular": _regular,
}


@dataclass(frozen=True)
class _Place:
    names: frozenset[str]
    paths: frozenset[str]
    domain: Name


def _places(names: str, paths: str, domain: Name) -> _Place:
    return _Place(frozenset(names.split()), frozenset(paths.split()), domain)


# Losses by classes, functions and kernels: all have the input first, the labels second, and ignore_index fifth.
_BY_CLASSES = """cross_entropy nll_loss nll_loss2d nll_loss_nd aten_cross_entropy_loss aten_nll_loss aten_nll_loss_nd
    aten_nll_loss2d aten_nll_loss_forward aten_nll_loss2d_forward npu_cross_entropy_loss"""
_OVERWRITING = """copy_ fill_ zero_ uniform_ normal_ random_ exponential_ bernoulli_ cauchy_ log_normal_ geometric_
    trunc_normal_ constant_ ones_ zeros_"""

#: Names of APIs, the argument (its position, or its name), its domain.
_ARGUMENT_DOMAINS = (
    _places("index_copy index_copy_ index_fill index_fill_ index_put index_put_", "2 index", "unlike"),
    _places("scatter scatter_", "2 index", "unlike"),
    _places("searchsorted", "0 sorted_sequence", "sorted"),
    _places("bucketize", "1 boundaries", "sorted"),
    _places("embedding_bag", "2 offsets", "offsets"),
    _places("cholesky linalg.cholesky linalg_cholesky linalg.cholesky_ex", "0 input A", "positive definite"),
    _places(
        "inverse linalg.inv linalg_inv linalg.solve linalg_solve linalg.det linalg.slogdet", "0 input A", "regular"
    ),
    _places(f"{_BY_CLASSES} multi_margin_loss aten_multi_margin_loss", "1 target", "labels"),
    _places("binary_cross_entropy aten_binary_cross_entropy", "0 1 input self target", "probabilities"),
    _places("binary_cross_entropy_with_logits kl_div", "1 target", "probabilities"),
    _places(_OVERWRITING, "0 input", "overwritten"),
)


def domain_of(call: ApiCall, path: str, info: ArgumentTensor) -> Domain:
    """The domain of an argument of a call: ``path`` is its position (``1``) or name, ``info`` its record."""
    api = call.api.name
    if path.partition(".")[0] == "out":
        return Domain("overwritten")
    name: Name = next((row.domain for row in _ARGUMENT_DOMAINS if path in row.paths and api in row.names), "")
    if name == "labels":
        axis, classes = _classes(call)
        if info.dtype.startswith(("int", "uint")):
            return _labels(info, classes, _ignored_index(call))
        # Probabilities of the classes have the shape of the input.
        fits = len(info.shape) > axis and _may_be_probabilities(info)
        return Domain("probabilities", axis=axis) if fits else Domain()
    if name == "probabilities" and not _may_be_probabilities(info):
        return Domain()  # as targets of kl_div in logarithms
    return Domain(name)


def _may_be_probabilities(info: ArgumentTensor) -> bool:
    """False where the record has a finite extreme outside of 0 to 1."""
    ends = (info.low, info.high, info.finite_low, info.finite_high)
    return all(end is None or not math.isfinite(end) or 0 <= end <= 1 for end in ends)


def _labels(info: ArgumentTensor, classes: int | None, index: int) -> Domain:
    """Whole numbers from 0 on that name classes. The recorded extremes may be the ignored index, on either side."""
    if info.low is None or info.high is None or info.low == info.high:
        return Domain("labels")
    ignored = index if index in (info.low, info.high) else None
    highest = int(info.low if info.high == ignored else info.high)
    if classes:
        highest = classes - 1 if info.high == ignored else min(highest, classes - 1)
    high = max(highest, 0)
    low = 0 if info.low == ignored else min(max(int(info.low), 0), high)
    return Domain("labels", low, high, ignored)


def _classes(call: ApiCall) -> tuple[int, int | None]:
    """The dimension of the classes in the input of a loss, and how many there are; None where the record lacks it."""
    given = call.args[0] if call.args else call.kwargs.get("input", call.kwargs.get("self"))
    shape = given.shape if isinstance(given, ArgumentTensor) else ()
    axis = 1 if len(shape) > 1 else 0
    return axis, shape[axis] if shape else None


def _ignored_index(call: ApiCall) -> int:
    place = 3 if call.api.prefix.startswith("Mint") else 4
    index = _plain(call.kwargs.get("ignore_index", call.args[place] if len(call.args) > place else None))
    return index if isinstance(index, int) and not isinstance(index, bool) else _IGNORE_INDEX


def _plain(argument: Argument | None) -> object:
    return argument.value if isinstance(argument, Plain) else None
