from __future__ import annotations

from pathlib import Path
from typing import Any

from support.hand_made import call, tensor, write_part

from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.pairing.order import in_order
from msprobe.diagnose.steps.timeline import Timeline

PLAIN = call(tensor(2, value=3.0), out=tensor(2, value=4.0))


def order(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    """The names of both sides, None where one has no such call."""
    timelines = Timeline(write_part(tmp_path / "one", one)), Timeline(write_part(tmp_path / "other", other))
    return [(left and left.name, right and right.name) for left, right in in_order(pair(*timelines))]


def test_calls_of_one_side_stand_where_they_are_made(tmp_path: Path) -> None:
    a, b, c = (f"Tensor.{name}.0.forward" for name in ("exp", "mul", "sum"))
    alone, missing = "Tensor.sin.0.forward", "Tensor.cos.0.forward"
    found = order(
        tmp_path,
        dict.fromkeys((a, alone, b, c), PLAIN),
        dict.fromkeys((missing, a, b, "Tensor.cos.1.forward", c), PLAIN),
    )
    assert found == [(None, missing), (a, a), (alone, None), (b, b), (None, "Tensor.cos.1.forward"), (c, c)]


def test_what_comes_late_in_the_reference_does_not_stand_among_what_came_early(tmp_path: Path) -> None:
    """The candidate was interrupted, and its gradients have no order but that of the modules."""
    one, two = (f"Module.{name}.Linear.parameters_grad" for name in ("one", "two"))
    back = {"input": [tensor(2)], "output": [tensor(2)]}
    forward = {"Torch.exp.0.forward": PLAIN, one: {"weight": [None]}, two: {"weight": [None]}}
    backward = {"Module.two.Linear.backward.0": back, "Module.one.Linear.backward.0": back}
    names = [
        left or right
        for left, right in order(tmp_path, forward, {**forward, **backward, "Optimizer.SGD.0.forward": PLAIN})
    ]
    assert names[0] == "Torch.exp.0.forward"
    assert names[-1] == "Optimizer.SGD.0.forward"
