"""Tensors whose statistics agree and whose elements do not: another order of them, as the sums of their rows show.

The signed sums of a row hang on the place of each element. Where the statistics of two tensors are the same, or apart
by no more than adding up in another order makes them, and their signed sums are further apart than rounding makes
those, no rounding can be the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msprobe.diagnose.steps.tensor_info import is_tensor
from msprobe.store.rows import StoredRows, distance, number_of

#: Sixteen units of the coarsest type that trains, bfloat16, are an eighth of a number: rounding that leaves all
#: statistics as they are makes less than half of that.
_OTHER_ORDER = 1 / 16
#: Rows are added up in single precision at least, whatever the type of the elements is: in another order, sums of the
#: same elements are some units of it apart.
_ADDED_UP = 1e-6


class RowDigests:
    """The rows of two parts, asked pair by pair."""

    def __init__(self, candidate: StoredRows, reference: StoredRows) -> None:
        self._candidate, self._reference = candidate, reference
        self._known: dict[tuple[int, int], bool] = {}
        self._same_elements: dict[tuple[int, int], bool] = {}
        self._changed: frozenset[int] | None = None

    def reordered(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
        """True if two tensors of the same statistics, type and number of elements hold other elements. False where a
        side has no row.
        """
        key = number_of(left), number_of(right)
        if min(key) < 0 or (key[0] == key[1] and key[0] not in self._changed_rows()):
            return False
        apart = self._known.get(key)
        if apart is None:
            apart = self._known[key] = self._are_apart(*key)
        return apart

    def added_up_otherwise(self, left: Mapping[str, Any], right: Mapping[str, Any], count: int) -> bool:
        """True if two tensors of one type and of ``count`` elements hold the same elements in another order, so that
        their statistics are apart in the last digit. False where a side has no row.
        """
        key = number_of(left), number_of(right)
        if min(key) < 0 or count < 2:
            return False
        same = self._same_elements.get(key)
        if same is None:
            same = self._same_elements[key] = self._hold_the_same(*key, count)
        return same and self.reordered(left, right)

    def _hold_the_same(self, first: int, other: int, count: int) -> bool:
        mine, theirs = self._candidate.numbers(first), self._reference.numbers(other)
        if mine is None or theirs is None or mine[7] != theirs[7]:
            return False
        squares = max(mine[1], theirs[1])
        most = max(abs(mine[4]), abs(mine[5]), abs(theirs[4]), abs(theirs[5]))
        return (
            abs(mine[1] - theirs[1]) <= 2 * _ADDED_UP * squares
            and abs(mine[0] - theirs[0]) <= _ADDED_UP * math.sqrt(squares * count)
            and max(abs(mine[4] - theirs[4]), abs(mine[5] - theirs[5])) <= _ADDED_UP * most
        )

    def between(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
        """The relative distance of two tensors by their rows, 0 where these are the same bits or a side has none."""
        first, other = number_of(left), number_of(right)
        if min(first, other) < 0 or self._candidate.raw(first) == self._reference.raw(other):
            return 0.0
        mine, theirs = self._candidate.row(first), self._reference.row(other)
        if mine is None or theirs is None:
            return 0.0
        size = max(mine.norm, theirs.norm)
        apart = distance(mine, theirs) / size if size else 0.0
        return apart if math.isfinite(apart) else 0.0

    def apart(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
        """The relative distance of two tensors of the same elements that are :meth:`reordered`; 0 of others."""
        return self.between(left, right) if self.reordered(left, right) else 0.0

    def reorders(self, slots: Iterable[tuple[str, Any]]) -> bool:
        """True if one of these tensors, which the reference's call has with the same description, holds other
        elements there.
        """
        return bool(self._changed_rows()) and any(self.reordered(leaf, leaf) for _, leaf in slots if is_tensor(leaf))

    def _are_apart(self, first: int, other: int) -> bool:
        if self._candidate.raw(first) == self._reference.raw(other):
            return False
        mine, theirs = self._candidate.row(first), self._reference.row(other)
        if mine is None or theirs is None or mine.left_out != theirs.left_out:
            return False
        apart = distance(mine, theirs)
        return not math.isnan(apart) and apart > _OTHER_ORDER * max(mine.norm, theirs.norm)

    def _changed_rows(self) -> frozenset[int]:
        """The numbers of rows that differ between the files."""
        if self._changed is None:
            self._changed = self._candidate.changed(self._reference)
        return self._changed
