"""Tensors whose statistics agree and whose elements do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.rows_made import row_of

from msprobe.diagnose.differences.row_digests import RowDigests
from msprobe.store.rows import TensorRow

_VALUES = np.random.default_rng(0).standard_normal(512)


class _Rows:
    """The rows of a part, in memory."""

    def __init__(self, *rows: TensorRow) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def raw(self, number: int) -> bytes | None:
        return repr(self.rows[number]).encode() if number < len(self.rows) else None

    def row(self, number: int) -> TensorRow | None:
        return self.rows[number] if number < len(self.rows) else None

    def changed(self, other: _Rows) -> frozenset[int]:
        return frozenset(n for n in range(min(len(self), len(other))) if self.raw(n) != other.raw(n))


def _digests(mine: list[Any], theirs: list[Any]) -> RowDigests:
    sides: list[Any] = [_Rows(*map(row_of, side)) for side in (mine, theirs)]
    return RowDigests(*sides)


def _leaf(row: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [512]}
    return found if row is None else found | {"row": row}


@pytest.mark.parametrize("other", [_VALUES[::-1], np.roll(_VALUES, 1), np.random.default_rng(1).permutation(_VALUES)])
def test_another_order_is_seen_under_the_same_number_and_another(other: np.ndarray) -> None:
    found = _digests([_VALUES, _VALUES], [other, _VALUES])
    assert found.reordered(_leaf(0), _leaf(0))
    assert found.reordered(_leaf(1), _leaf(0))
    assert not found.reordered(_leaf(1), _leaf(1))
    assert not found.reordered(_leaf(0), _leaf(1))


def test_rounding_is_no_other_order() -> None:
    found = _digests([_VALUES], [_VALUES * (1 + 2**-7 * np.random.default_rng(2).standard_normal(512))])
    assert not found.reordered(_leaf(0), _leaf(0))


def test_without_rows_nothing_is_said() -> None:
    found = _digests([_VALUES], [_VALUES[::-1]])
    assert not found.reordered(_leaf(None), _leaf(0))
    assert not found.reordered(_leaf(0), _leaf(7))
    assert not _digests([], []).reorders([("input.0", _leaf(0))])


def test_a_call_of_one_description_may_take_another_order() -> None:
    found = _digests([_VALUES, _VALUES], [_VALUES, _VALUES[::-1]])
    assert found.reorders([("input.0", _leaf(0)), ("input.1", _leaf(1)), ("input.2", 3)])
    assert not found.reorders([("input.0", _leaf(0)), ("input.2", None)])
