"""What comes first when several things are found, and what is not doubted."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.comparing import agrees, compare, first, told
from unit.diagnose.dumps import Recording, Value
from unit.diagnose.training import WORDS, Plan


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


PLANTED: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({"data": lambda tokens: (tokens + 1) % WORDS}, "Functional.embedding.0.forward"),
    "initial_weights": ({"weights": {"blocks.0.fc.bias": off(1.5)}}, "Functional.linear.0.forward"),
    "argument": ({"arguments": {"blocks.0.mul": {1: 0.7}}}, "Tensor.__mul__.0.forward"),
    "computation": ({"results": {"blocks.1.linear": off(1.1)}}, "Functional.linear.1.forward"),
    "structure": ({"left_out": frozenset(["blocks.1.dropout"])}, "Functional.dropout.1.forward"),
    "gradient": ({"results": {"blocks.1.tanh.backward": off(1.1)}}, "Torch.tanh.1.backward"),
    "parameter_gradient": (
        {"parameter_gradients": {"head.bias": off(1.1)}},
        "Module.head.Linear.parameters_grad",
    ),
    "optimizer": ({"settings": {"lr": 0.3}}, "Optimizer.SGD.0.forward"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_one_thing_planted_is_the_first_that_is_told(tmp_path: Path, kind: str) -> None:
    plan, entry = PLANTED[kind]
    verdict = compare(tmp_path, Plan(**plan))
    assert told(verdict)[0] == (kind, entry)
    first(verdict)


@pytest.mark.parametrize("kind", PLANTED)
def test_seen_from_the_other_side_it_is_told_at_the_same_call(tmp_path: Path, kind: str) -> None:
    plan, entry = PLANTED[kind]
    verdict = compare(tmp_path, Plan(), Plan(**plan))
    assert told(verdict)[0] == (kind, entry)


ORDER = [kind for kind in PLANTED if kind not in ("gradient", "parameter_gradient")]


@pytest.mark.parametrize(("earlier", "later"), [*pairwise(ORDER)])
def test_of_two_things_the_earlier_one_is_told_first(tmp_path: Path, earlier: str, later: str) -> None:
    verdict = compare(tmp_path, Plan(**PLANTED[earlier][0], **PLANTED[later][0]))
    assert told(verdict)[0] == (earlier, PLANTED[earlier][1])
    first(verdict)


@pytest.mark.parametrize("kind", ["initial_weights", "argument", "computation", "gradient", "optimizer"])
@pytest.mark.parametrize(
    "more",
    [{"tied": True}, {"recompute": True}, {"prefix": "module."}, {"states": {}}, {"steps": 2}, {"blocks": 4}],
    ids=str,
)
def test_whatever_the_training_is_like(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    plan, _ = PLANTED[kind]
    candidate = Plan(**plan, **more)
    reference = Plan(**more)
    verdict = compare(tmp_path, candidate, reference)
    assert told(verdict)[0][0] == ("gradient" if kind == "gradient" else kind)
    assert first(verdict).step == 0


def test_a_call_in_evaluation_before_the_training_shifts_nothing(tmp_path: Path) -> None:
    def look(rec: Recording, x: Value) -> Value:
        seen = Value(np.tanh(x.array), False)
        rec.call("Torch.tanh", [Value(x.array)], seen)
        rec.call("Tensor.item", [Value(seen.array.max())], 1.0)
        return x

    assert agrees(compare(tmp_path, Plan(before={"blocks.0.dropout": look})))
