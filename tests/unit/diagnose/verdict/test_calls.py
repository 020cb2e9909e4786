from __future__ import annotations

from pathlib import Path
from typing import Any

from hand_made import call, tensor, write_part

from msprobe.diagnose import compare_runs
from msprobe.diagnose.verdict.calls import Call


def calls_of(tmp_path: Path, one: dict[str, Any], other: dict[str, Any]) -> tuple[Call, ...]:
    write_part(tmp_path / "one", one)
    write_part(tmp_path / "other", other)
    found = compare_runs(tmp_path / "one", tmp_path / "other", with_calls=True).calls
    assert found is not None
    return found.calls


def test_calls_of_one_side_stand_where_they_are_made(tmp_path: Path) -> None:
    a, b, c = (f"Tensor.{name}.0.forward" for name in ("exp", "mul", "sum"))
    plain = call(tensor(2, value=3.0), out=tensor(2, value=4.0))
    alone, missing = "Tensor.sin.0.forward", "Tensor.cos.0.forward"
    calls = calls_of(
        tmp_path,
        {a: plain, alone: plain, b: plain, c: plain},
        {missing: plain, a: plain, b: plain, "Tensor.cos.1.forward": plain, c: plain},
    )
    assert [(one.name, one.status) for one in calls] == [
        (missing, "reference_only"),
        (a, "same"),
        (alone, "candidate_only"),
        (b, "same"),
        ("Tensor.cos.1.forward", "reference_only"),
        (c, "same"),
    ]


def test_a_call_has_the_sizes_it_was_judged_by(tmp_path: Path) -> None:
    name = "Tensor.exp.0.forward"
    went_in = tensor(2, value=3.0)
    calls = calls_of(
        tmp_path,
        {name: call(went_in, out=tensor(2, value=4.0))},
        {name: call(went_in, out=tensor(2, value=5.0))},
    )
    (found,) = calls
    assert found.status == "guilty"
    assert found.arrived == 0.0
    assert 0.1 < found.left < 0.5
    assert 0.0 < found.allowed < 1e-3


def test_calls_are_kept_only_where_asked_for(tmp_path: Path) -> None:
    write_part(tmp_path / "one", {"Tensor.exp.0.forward": call()})
    write_part(tmp_path / "other", {"Tensor.exp.0.forward": call()})
    assert compare_runs(tmp_path / "one", tmp_path / "other").calls is None


def test_what_comes_late_in_the_reference_does_not_stand_among_what_came_early(tmp_path: Path) -> None:
    """The candidate was interrupted, and its gradients have no order but that of the modules."""
    plain = call(tensor(2, value=3.0), out=tensor(2, value=4.0))
    one, two = (f"Module.{name}.Linear.parameters_grad" for name in ("one", "two"))
    back = {"input": [tensor(2)], "output": [tensor(2)]}
    forward = {"Torch.exp.0.forward": plain, one: {"weight": [None]}, two: {"weight": [None]}}
    backward = {"Module.two.Linear.backward.0": back, "Module.one.Linear.backward.0": back}
    calls = calls_of(tmp_path, forward, {**forward, **backward, "Optimizer.SGD.0.forward": plain})
    names = [one.name for one in calls]
    assert names[0] == "Torch.exp.0.forward"
    assert names[-1] == "Optimizer.SGD.0.forward"
