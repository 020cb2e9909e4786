"""What a step writes to, and the next one takes."""

from __future__ import annotations

from typing import Any

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.effect.reach import pair_of


def _tensor(*shape: int, mean: float = 0.25, norm: float = 4.0) -> dict[str, Any]:
    return {"dtype": "torch.float32", "shape": list(shape), "Max": 1.0, "Min": -1.0, "Mean": mean, "Norm": norm}


def _pair(one: Any, other: Any) -> Any:
    return pair_of(Difference("input.0", "value", one, other, 1e-3))


def test_a_tensor_is_known_again_as_what_a_rank_has_of_it() -> None:
    whole = _pair(_tensor(7, 4), _tensor(7, 4, norm=4.5))
    assert whole == _pair(_tensor(16, mean=0.2), _tensor(16, mean=0.2, norm=4.5)) is not None
    assert whole != _pair(_tensor(7, 4), _tensor(7, 4, norm=4.6))


def test_a_single_number_or_what_has_no_statistics_is_none() -> None:
    assert _pair(_tensor(1), _tensor(1, norm=5.0)) is None
    assert _pair(_tensor(4), {"dtype": "torch.float32", "shape": [4]}) is None
    assert _pair(None, _tensor(4)) is None
