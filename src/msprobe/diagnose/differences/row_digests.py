"""Tensors whose statistics agree and whose elements do not: another order of them, as the sums of their rows show.

The signed sums of a row hang on the place of each element. Where the statistics of two tensors are the same, and their
rows are further apart than rounding makes them, no rounding can be the reason.
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


class RowDigests:
    """The rows of two parts, asked pair by pair."""

    def __init__(self, candidate: StoredRows, reference: StoredRows) -> None:
        self._candidate, self._reference = candidate, reference
        self._known: dict[tuple[int, int], bool] = {}
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

    def apart(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
        """The relative distance of two tensors that are :meth:`reordered`, 0 of others: their statistics say none."""
        if not self.reordered(left, right):
            return 0.0
        mine, theirs = self._candidate.row(number_of(left)), self._reference.row(number_of(right))
        if mine is None or theirs is None:
            return 0.0
        return distance(mine, theirs) / max(mine.norm, theirs.norm)

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
