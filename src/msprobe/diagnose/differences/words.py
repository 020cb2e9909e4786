"""What a difference looks like, in words: a constant factor, a permutation, single elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.diagnose.differences.records import (
    Comparer,
    Difference,
    described,
    is_floating,
    is_integer,
    numbers,
    numel,
)
from msprobe.diagnose.differences.tensor_pass import Detail, dot
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.messages import Wording, said
from msprobe.statistics_table import KEYS

_SAME_RATIO = 1e-4
_FEW = 8


@dataclass(frozen=True)
class Relation:
    """What two tensors have to do with each other: ``words`` is a size (``2.1e-05``), or says it (``transposed``).

    ``is_distance``: a relative difference; ``is_size``: and that is all that is known.
    """

    words: str = ""
    is_distance: bool = False
    is_size: bool = False

    def __bool__(self) -> bool:
        return bool(self.words)

    def __str__(self) -> str:
        return said("relative-difference", self.words) if self.is_distance else self.words

    def brief(self) -> str:
        """For a line that has little room: ``by 2.1e-05``, ``(transposed)``; empty if nothing is known."""
        return (
            said("by-distance", self.words) if self.is_distance else Wording("({})", self.words) if self.words else ""
        )


NO_RELATION = Relation()


def ratio_of(left: Any, right: Any) -> float | None:
    """The constant factor between the statistics of two tensors; None if there is none, or it is 1."""
    if not (is_floating(left) and is_floating(right)):
        return None
    ours, other = numbers(left), numbers(right)
    if ours is None or other is None or not other[3] or not all(map(math.isfinite, (*ours, *other))):
        return None
    size = ours[3] / other[3]
    sign = 1.0
    largest, least = ours[0], ours[1]
    if abs(largest - size * other[0]) > _SAME_RATIO * size * abs(other[0]) + 1e-30 and math.isclose(
        largest, -size * other[1], rel_tol=_SAME_RATIO
    ):
        sign = -1.0
    expected = (other[0], other[1]) if sign > 0 else (-other[1], -other[0])
    scale = size * max(abs(v) for v in other[:2])
    if any(
        abs(number - size * value) > _SAME_RATIO * max(scale, 1e-30)
        for number, value in zip((largest, least), expected, strict=True)
    ):
        return None
    if abs(sign * size - 1.0) < 1e-3 or not size:
        return None
    return sign * size


def ratio_in_words(left: Any, right: Any) -> str:
    """``1024 times``, if one tensor is that many times the other."""
    ratio = ratio_of(left, right)
    if ratio is None:
        return ""
    if abs(ratio) < 1 and abs(round(1 / ratio) - 1 / ratio) < 1e-3 * abs(1 / ratio):
        return said("one-nth", round(1 / ratio)) if ratio > 0 else said("minus-one-nth", abs(round(1 / ratio)))
    return said("times-as-large", ratio)


def relation_in_words(difference: Difference, comparer: Comparer, bound: bool = False) -> str:
    """The same as :func:`relation_of`, in words."""
    return str(relation_of(difference, comparer, bound))


def relation_of(difference: Difference, comparer: Comparer, bound: bool = False, other: str = "reference") -> Relation:
    """What two tensors have to do with each other, as far as it can be seen. ``bound``: say where the distance is known
    by statistics alone, which say the least that it may be. ``other``: what the second of them is of.
    """
    left, right = difference.left, difference.right
    if difference.what not in ("value", "not_finite") or not isinstance(left, dict) or not isinstance(right, dict):
        return NO_RELATION
    names = left.get("data_name"), right.get("data_name")
    if isinstance(names[0], str) and isinstance(names[1], str):
        relation = _relation_of_files(names[0], names[1], left.get("shape"), comparer)
        if relation:
            return relation
    if difference.what == "not_finite" and numel(left) == 1:
        value = numbers(left)
        return Relation(Wording("NaN" if value is None or math.isnan(value[2]) else "infinite"))
    if difference.what == "not_finite":
        return Relation(
            said(
                "nan-and-infinite",
                left.get("nan", 0) or said("some-elements"),
                left.get("inf", 0) or said("no-elements"),
                numel(left),
            )
        )
    if left.get("shape") != right.get("shape"):
        return Relation(said("shapes-differ", left.get("shape"), other, right.get("shape")))
    ratio = ratio_in_words(left, right)
    if ratio:
        return Relation(ratio)
    if is_integer(left):
        return Relation("whole numbers differ")
    if difference.delta == 0.0:
        return Relation(said("same-statistics"))
    counted = _counted_in_words(left, right, other)
    if counted or math.isinf(difference.delta):
        return Relation(counted or "not finite")
    least = "at least " if bound and at_least(difference) else ""
    return Relation(Wording("{}{:.2g}", least, difference.delta), is_distance=True, is_size=True)


def _relation_of_files(left: str, right: str, shape: Any, comparer: Comparer) -> Relation:
    """The relation of the values in two files, which are read for it once."""
    known = comparer.relations
    key = left, right, str(shape)
    if key not in known:
        detail = comparer.detail(left, right)
        first_difference = None if detail is None else relation_of_detail(detail, shape)
        if first_difference is not None:
            known[key] = first_difference
            return first_difference
        values = comparer.values(left, right)
        is_pair = values is not None and values[0].size == values[1].size
        known[key] = relation_of_values(*values, shape=shape) if values is not None and is_pair else NO_RELATION
    relation: Relation = known[key]
    return relation


def _counted_in_words(left: dict[str, Any], right: dict[str, Any], other: str) -> str:
    """How many elements are not finite on each side, where both have some and they were counted."""
    for key, word in (("nan", "NaN"), ("inf", said("infinite"))):
        if left.get(key) != right.get(key) and left.get(key) and right.get(key):
            return said("elements-not-finite-on-sides", left[key], numel(left), word, other, right[key])
    return ""


def relation_of_values(left: Any, right: Any, shape: Any = None) -> Relation:
    """The relation of two flat arrays of one size; a distance if they are just different, empty if they are not."""
    import numpy as np

    if left.dtype.kind not in "fiub" or right.dtype.kind not in "fiub":
        return NO_RELATION
    a, b = np.asarray(left).astype(np.float64), np.asarray(right).astype(np.float64)
    other = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    count = int(other.sum())
    if not count:
        return NO_RELATION
    size = a.size
    if count <= _FEW and size > 4 * _FEW:
        first = int(np.flatnonzero(other)[0])
        first_difference = said("first-element", _index(first, shape), a[first], b[first])
        return Relation(said("elements-differ", count, size, first_difference))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Relation(said("elements-not-finite", int((~np.isfinite(a)).sum()), size))
    if (a[other] == 0).all() and count < size:
        return Relation(said("elements-zero", count, size))
    norm = dot(b, b)
    if norm:
        factor = dot(a, b) / norm
        if (
            factor
            and abs(factor - 1) > 1e-3
            and np.allclose(a, factor * b, rtol=1e-4, atol=1e-6 * abs(factor) * float(np.abs(b).max()))
        ):
            inverse = 1 / factor
            if abs(factor) < 1 and abs(round(inverse) - inverse) < 1e-3 * abs(inverse):
                return Relation(said("one-nth", round(inverse)))
            return Relation(said("times-as-large", factor))
    if count > 1 and _sum_of_bits(a) == _sum_of_bits(b) and np.array_equal(np.sort(a), np.sort(b)):
        square = isinstance(shape, list) and len(shape) == 2 and shape[0] == shape[1]
        if square and np.array_equal(a.reshape(shape), b.reshape(shape).T):
            return Relation(said("transposed"))
        return Relation(said("same-elements-reordered"))
    places = np.flatnonzero(other)
    if count < size // 2 and places[-1] - places[0] + 1 == count:
        return Relation(said("elements-from-to", places[0], places[-1], size))
    distance = math.sqrt(dot(a - b, a - b)) / math.sqrt(max(dot(a, a), norm))
    return Relation(said("distance-in-elements", distance, count, size), is_distance=True)


def relation_of_detail(detail: Detail, shape: Any = None) -> Relation | None:
    """The same as :func:`relation_of_values`, from what one pass over both said; None where the values must be seen."""
    count, size = detail.count, detail.size
    if count <= _FEW and size > 4 * _FEW:
        first_difference = said("first-element", _index(detail.first, shape), *detail.first_values)
        return Relation(said("elements-differ", count, size, first_difference))
    if detail.becomes_zero and count < size:
        return Relation(said("elements-zero", count, size))
    mine, theirs, apart = detail.squares
    both = (mine + theirs - apart) / 2
    if (
        theirs
        and mine
        and abs(both / theirs - 1) > 1e-3
        and mine - both * both / theirs <= (1e-4 + 3e-12 * size) * mine
    ):
        return None  # it may be a multiple
    if detail.may_be_reordered:
        return None
    if count < size // 2 and detail.last - detail.first + 1 == count:
        return Relation(said("elements-from-to", detail.first, detail.last, size))
    distance = math.sqrt(apart) / math.sqrt(max(mine, theirs))
    return Relation(said("distance-in-elements", distance, count, size), is_distance=True)


def _sum_of_bits(values: Any) -> int:
    """The same for the same elements in any order, and seldom for others, for a small part of the price of sorting."""
    import numpy as np

    return int((values + 0.0).view(np.uint64).sum(dtype=np.uint64))  # both zeros are one number


def _index(flat: int, shape: Any) -> str:
    if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape):
        import numpy as np

        return str([int(i) for i in np.unravel_index(flat, shape)])
    return str(flat)


def measure(difference: Difference) -> dict[str, Any]:
    """What was measured of a difference, for the evidence of a finding."""
    measures: dict[str, Any] = {"relative_difference": difference.delta}
    for side, leaf in (("candidate", difference.left), ("reference", difference.right)):
        if is_tensor(leaf):
            measures[side] = {key: leaf.get(key) for key in ("dtype", "shape", *KEYS, "nan", "inf") if key in leaf}
        elif leaf is not None:
            measures[side] = described(leaf)
    return measures


def at_least(difference: Difference) -> dict[str, Any]:
    """For the evidence: that the distance is no more than a lower bound, as it is known by statistics alone."""
    known = all(
        isinstance(leaf, dict) and isinstance(leaf.get("data_name"), str)
        for leaf in (difference.left, difference.right)
    )
    return {} if known else {"lower_bound": True}


def dtype_word(leaf: Any) -> str:
    """The dtype of a tensor without the name of the framework."""
    return str(leaf["dtype"]).removeprefix("torch.")


def named(events: Sequence[Event]) -> str:
    """The names of calls, not too many of them."""
    return listed([event.name for event in events])


def listed(names: Sequence[object], most: int = 4) -> str:
    """The first of these, and how many there are besides."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (said("and-more", more) if more > 0 else "")


def quoted(names: Sequence[str], most: int = 4) -> str:
    """The same in quotation marks."""
    return listed([f'"{name}"' for name in names], most)


def settings_in_words(left: object, right: object) -> tuple[str, str]:
    """Two settings as they are read, with as many digits as distinguish them: no 0.07500000000000001."""
    for digits in (6, 10):
        texts = [f"{value:.{digits}g}" if isinstance(value, float) else str(value) for value in (left, right)]
        if texts[0] != texts[1]:
            return texts[0], texts[1]
    return str(left), str(right)
