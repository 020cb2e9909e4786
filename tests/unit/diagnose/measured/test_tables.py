"""The tensors of a pair of calls: which of them say something."""

from __future__ import annotations

import math
import operator
import random
from typing import Any

from msprobe.diagnose.measured.tables import DeviationTable


class _NoRows:
    def numbers(self, _number: int) -> None:
        return None


def _tensor(*shape: int, **more: Any) -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape), **more}


def _noted(one: dict[str, Any], other: dict[str, Any]) -> tuple[int, bool]:
    rows: Any = _NoRows()
    found = DeviationTable(rows, rows).note([("input.0", one)], [("input.0", other)])
    return len(found.slots), found.is_same


def test_an_empty_tensor_and_memory_that_nobody_wrote_to_say_nothing() -> None:
    assert _noted(_tensor(0), _tensor(0)) == (0, True)
    assert _noted(_tensor(8, unset=True), _tensor(8, unset=True)) == (0, True)


def test_all_others_are_known_or_not() -> None:
    assert _noted(_tensor(8), _tensor(8)) == (1, True)
    assert _noted(_tensor(0), _tensor(8)) == (1, True)
    assert _noted(_tensor(8, unset=True), _tensor(8)) == (1, True)


class _Rows:
    """Rows of the numbers of tensors: sum, sum of squares, signed sums, norms of blocks, largest, least, zeros, out."""

    def __init__(self, *values: list[float]) -> None:
        self._values = values

    def numbers(self, number: int) -> Any:
        values = self._values[number]
        signs = [random.Random(place).choices((-1.0, 1.0), k=len(values)) for place in range(8)]
        signed = [sum(map(operator.mul, values, row)) for row in signs]
        blocks = [abs(value) for value in values[:8]]
        return sum(values), math.fsum(v * v for v in values), signed, blocks, max(values), min(values), 0, 0


def _kind(one: list[float], other: list[float], shape: tuple[int, ...], its: tuple[int, ...], crossing: bool) -> str:
    rows: tuple[Any, Any] = _Rows(one), _Rows(other)
    table = DeviationTable(*rows, crossing=crossing)
    tensors = table.note([("input.0", _tensor(*shape, row=0))], [("input.0", _tensor(*its, row=0))])
    table.measure()
    return table.of(tensors.places[0]).kind


def test_two_frameworks_may_have_the_elements_of_a_tensor_in_another_order() -> None:
    values = [1.0, -2.0, 3.0, 5.0, -7.0, 11.0, 13.0, -17.0]
    turned = [values[4 * (n % 2) + n // 2] for n in range(8)]
    assert _kind(values, turned, (2, 4), (2, 4), crossing=True) == "unknown"
    assert _kind(values, turned, (2, 4), (2, 4), crossing=False) == "estimate"
    # Sizes in another order say so themselves.
    assert _kind(values, values, (2, 4), (4, 2), crossing=True) == "unknown"
    # As many elements in rows that are put together are in one order.
    assert _kind(values, [value * 1.01 for value in values], (2, 4), (8,), crossing=True) == "estimate"
    # Another factor is none.
    assert _kind(values, [value * 2.0 for value in values], (2, 4), (2, 4), crossing=True) == "estimate"
