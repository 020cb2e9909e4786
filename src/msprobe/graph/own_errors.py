"""How far the results of each node are off, in a scale that rounding does not upset; and the worst below each node.

A statistic is measured against the size of its tensor: ``|a - b| / max(|b|, RMS)``, ``RMS = Norm / sqrt(elements)``, so
that a mean near 0 says nothing when it moves by a rounding. What eight units of the element type's precision
explain is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from msprobe.compare.number_types import epsilon_of
from msprobe.graph.tree import Tree

Errors = npt.NDArray[np.float64]

_UNITS_OF_NOISE = 8


def error_of(mine: Any, theirs: Any) -> float:
    """The relative error of a tensor, 0 if rounding explains it, infinity for NaN or infinities on one side alone; NaN
    for what is no pair of tensors with statistics.
    """
    if type(mine) is not dict or type(theirs) is not dict or "dtype" not in mine or "dtype" not in theirs:
        return math.nan
    found = mine.get("Max"), mine.get("Min"), mine.get("Mean"), mine.get("Norm")
    wanted = theirs.get("Max"), theirs.get("Min"), theirs.get("Mean"), theirs.get("Norm")
    if found == wanted and type(found[3]) is float:
        return 0.0  # what most pairs are, and this is asked for each
    worst = math.nan
    norm = wanted[3]
    scale = abs(norm) / math.sqrt(_elements(theirs)) if _is_number(norm) and math.isfinite(norm) else 0.0
    for a, b in zip(found, wanted, strict=True):
        if not _is_number(a) or not _is_number(b):
            continue
        if a == b or (a != a and b != b):
            error = 0.0
        elif not math.isfinite(a) or not math.isfinite(b):
            return math.inf
        else:
            size = max(abs(b), scale)
            error = abs(a - b) / size if size else math.inf
        worst = error if worst != worst else max(worst, error)
    if worst == worst and worst <= _UNITS_OF_NOISE * max(_epsilon(mine), _epsilon(theirs)):
        return 0.0
    return worst


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or type(value) is int


def _elements(leaf: Any) -> int:
    shape = leaf.get("shape")
    return max(math.prod(shape), 1) if isinstance(shape, list) and all(type(n) is int for n in shape) else 1


def _epsilon(leaf: Any) -> float:
    return epsilon_of(str(leaf.get("dtype")))


def worst(pairs: Sequence[tuple[Any, Any]]) -> float:
    """The largest error of some pairs; NaN if none can be told."""
    found = math.nan
    for mine, theirs in pairs:
        error = error_of(mine, theirs)
        if error == error and not error <= found:
            found = error
    return found


def worst_below(tree: Tree, own: Errors) -> Errors:
    """The largest error among all descendants of each node; NaN where none has one."""
    found = np.full(len(tree), math.nan)
    parents = tree.parents.tolist()
    own_list, below = own.tolist(), found.tolist()
    for node in tree.by_order.tolist():
        above = parents[node]
        if above < 0:
            continue
        error = below[node]
        mine = own_list[node]
        if mine == mine and not mine <= error:
            error = mine
        if error == error and not error <= below[above]:
            below[above] = error
    return np.array(below)
