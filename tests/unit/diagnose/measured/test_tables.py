"""The tensors of a pair of calls: which of them say something."""

from __future__ import annotations

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
