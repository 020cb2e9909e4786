from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.training import Plan, train

from msprobe.diagnose.steps.links import Producers, is_unset
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.store.reader import open_dump


def timeline(tmp_path: Path, **plan: Any) -> Timeline:
    return Timeline(open_dump(train(tmp_path / "run", Plan(**plan))).part())


def maker(found: Timeline, name: str, slot: str) -> str | None:
    event = found.by_name[name]
    leaf = dict([*event.inputs(), *event.parameters()])[slot]
    made = Producers(found).of(leaf, event)
    return made.name if made is not None else None


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize(
    ("name", "slot", "expected"),
    [
        ("Torch.tanh.1.forward", "input.0", "Functional.linear.1.forward"),
        ("Tensor.__add__.1.forward", "input.0", "Tensor.__add__.0.forward"),
        ("Tensor.__add__.1.forward", "input.1", "Tensor.__mul__.1.forward"),
        ("Functional.linear.0.forward", "input.0", "Functional.embedding.0.forward"),
        ("Functional.linear.0.forward", "input.1", None),
        ("Functional.embedding.0.forward", "input.0", None),
        ("Torch.tanh.1.backward", "input.0", "Functional.dropout.1.backward"),
        ("Functional.mse_loss.0.backward", "input.0", None),
        ("Optimizer.SGD.0.forward", "input.head.bias.weight", None),
    ],
)
def test_who_made_a_tensor(tmp_path: Path, name: str, slot: str, expected: str | None, digests: bool) -> None:
    assert maker(timeline(tmp_path, digests=digests), name, slot) == expected


def test_recomputation_takes_what_the_forward_pass_made(tmp_path: Path) -> None:
    found = timeline(tmp_path, recompute=True)
    assert maker(found, "Functional.linear.3.forward", "input.0") == "Tensor.__add__.0.forward"
    assert maker(found, "Torch.tanh.2.forward", "input.0") == "Functional.linear.3.forward"


def test_modules_are_makers_where_calls_were_not_recorded(tmp_path: Path) -> None:
    found = timeline(tmp_path, level="L0")
    assert maker(found, "Module.head.Linear.forward.0", "input.0") == "Module.blocks.1.Block.forward.0"


def _by_hand(tmp_path: Path, *calls: tuple[str, Any, Any]) -> Timeline:
    rec = Recording()
    for api, given, out in calls:
        rec.call(api, [given], out)
    rec.write(tmp_path / "step0" / "rank")
    return Timeline(open_dump(tmp_path).part())


def test_the_last_call_before_goes_first(tmp_path: Path) -> None:
    a, b = Value(drawn("a", 4)), Value(drawn("b", 4))
    found = _by_hand(tmp_path, ("Torch.sin", a, b), ("Torch.cos", a, b), ("Torch.tan", b, a), ("Torch.exp", a, b))
    assert maker(found, "Torch.tan.0.forward", "input.0") == "Torch.cos.0.forward"
    assert maker(found, "Torch.sin.0.forward", "input.0") is None, "it was made only later"


def test_constants_have_no_maker_without_digests(tmp_path: Path) -> None:
    ones = Value(np.ones(4, np.float32))
    rec = Recording(digests=False)
    rec.call("Torch.ones", [4], ones)
    rec.call("Torch.sin", [ones], Value(drawn("a", 4)))
    rec.write(tmp_path / "step0" / "rank")
    found = Timeline(open_dump(tmp_path).part())
    assert maker(found, "Torch.sin.0.forward", "input.0") is None


class TestParameters:
    def test_are_known_by_name(self, tmp_path: Path) -> None:
        found = timeline(tmp_path)
        makers = Producers(found)
        leaves = dict(found.by_name["Functional.linear.1.forward"].inputs())
        assert makers.parameters(leaves["input.1"]) == ["blocks.1.fc.weight"]
        assert makers.parameters(leaves["input.2"]) == ["blocks.1.fc.bias"]
        assert makers.parameters(leaves["input.0"]) == []

    def test_are_used_by_the_calls_in_their_module(self, tmp_path: Path) -> None:
        users = [event.name for event in Producers(timeline(tmp_path)).users("blocks.0.fc")]
        assert sorted(users) == ["Functional.linear.0.forward", "Module.blocks.0.fc.Linear.forward.0"]

    def test_that_are_tied_have_all_their_uses(self, tmp_path: Path) -> None:
        users = {event.name for event in Producers(timeline(tmp_path, tied=True)).users("embedding")}
        assert {"Functional.embedding.0.forward", "Functional.linear.2.forward"} <= users

    def test_of_no_module_have_no_users(self, tmp_path: Path) -> None:
        assert Producers(timeline(tmp_path)).users("nowhere") == []


@pytest.mark.parametrize(
    ("api", "expected"),
    [("Torch.empty", True), ("Tensor.new_empty", True), ("Torch.empty_like", True), ("Torch.zeros", False)],
)
def test_memory_that_nothing_was_written_to(tmp_path: Path, api: str, expected: bool) -> None:
    found = _by_hand(tmp_path, (api, 4, Value(drawn("whatever", 4))))
    (event,) = found
    assert isinstance(event, Event)
    assert is_unset(event) is expected
    assert [leaf.get("unset", False) for _, leaf in event.outputs()] == [expected]
