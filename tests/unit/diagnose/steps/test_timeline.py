from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.hand_made import backward, call, tensor, write_part
from unit.diagnose.training import Plan, train

from msprobe.diagnose.steps.timeline import Event, Timeline, flatten, is_tensor
from msprobe.store.reader import open_dump


def timeline(tmp_path: Path, **plan: Any) -> Timeline:
    return Timeline(open_dump(train(tmp_path / "run", Plan(**plan))).part(plan.get("first_step", 0)))


def names(found: list[Event] | Timeline) -> list[str]:
    return [event.name for event in found]


class TestOrder:
    def test_gradients_of_parameters_follow_the_last_backward_call_of_their_module(self, tmp_path: Path) -> None:
        order = names(timeline(tmp_path))
        for path, owner in (("head", "Linear"), ("blocks.0.fc", "Linear"), ("embedding", "Embedding")):
            gradient = order.index(f"Module.{path}.{owner}.parameters_grad")
            assert order[gradient - 1] == f"Module.{path}.{owner}.backward.0"
        assert order[-1] == "Optimizer.SGD.0.forward"

    def test_all_else_is_as_in_the_dump(self, tmp_path: Path) -> None:
        found = timeline(tmp_path)
        kept = [name for name in found.part.names() if "parameters_grad" not in name]
        assert [name for name in names(found) if "parameters_grad" not in name] == kept
        assert [event.index for event in found] == list(range(len(found)))
        assert len(found) == len(found.part)

    def test_without_a_backward_pass_gradients_come_before_the_optimizer(self, tmp_path: Path) -> None:
        data = {"Module.fc.Linear.parameters_grad": {"weight": [None]}, "Torch.sin.0.forward": call()}
        step = {"Optimizer.SGD.0.forward": call()}
        kept = Timeline(write_part(tmp_path / "interrupted", data))
        assert names(kept) == ["Torch.sin.0.forward", "Module.fc.Linear.parameters_grad"]
        whole = Timeline(write_part(tmp_path / "whole", {**data, **step}))
        assert names(whole)[1:] == ["Module.fc.Linear.parameters_grad", "Optimizer.SGD.0.forward"]

    def test_without_modules_gradients_come_after_the_backward_pass(self, tmp_path: Path) -> None:
        data = {
            "Module.fc.Linear.parameters_grad": {"weight": [tensor(2)]},
            "Torch.sin.0.forward": call(),
            "Torch.sin.0.backward": backward(),
            "Torch.cos.0.forward": call(),
        }
        found = Timeline(write_part(tmp_path, data))
        assert names(found) == [
            "Torch.sin.0.forward",
            "Torch.sin.0.backward",
            "Module.fc.Linear.parameters_grad",
            "Torch.cos.0.forward",
        ]

    def test_calls_inside_a_module_count_for_its_gradients(self, tmp_path: Path) -> None:
        data = {
            "Module.fc.Linear.forward.0": call(),
            "Module.fc.Linear.parameters_grad": {"weight": [tensor(2)]},
            "Torch.cos.0.forward": call(),
            "Functional.linear.0.backward": backward(),
            "Torch.cos.0.backward": backward(),
        }
        parents = {"Functional.linear.0.backward": "Module.fc.Linear.forward.0"}
        found = names(Timeline(write_part(tmp_path, data, construct=parents)))
        assert found.index("Module.fc.Linear.parameters_grad") == found.index("Functional.linear.0.backward") + 1

    def test_a_step_without_backward_pass(self, tmp_path: Path) -> None:
        data = {"Module.fc.Linear.parameters_grad": {"weight": [None]}, "Torch.cos.0.forward": call()}
        assert sorted(names(Timeline(write_part(tmp_path, data)))) == sorted(data)

    def test_several_backward_passes(self, tmp_path: Path) -> None:
        passes = [f"Module.fc.Linear.backward.{number}" for number in (0, 1)]
        data: dict[str, Any] = {"Module.fc.Linear.parameters_grad": {"weight": [tensor(2)]}}
        data["Module.fc.Linear.parameters_grad.1"] = {"weight": [tensor(2)]}
        data |= dict.fromkeys(passes, backward())
        assert names(Timeline(write_part(tmp_path, data)))[:2] == passes


class TestTree:
    def test_calls_hang_in_the_modules_they_ran_in(self, tmp_path: Path) -> None:
        found = timeline(tmp_path)
        block = found.by_name["Module.blocks.1.Block.forward.0"]
        inside = [child.name for child in block.children if child.direction == "forward"]
        assert inside == [
            "Module.blocks.1.fc.Linear.forward.0",
            "Torch.tanh.1.forward",
            "Functional.dropout.1.forward",
            "Tensor.__mul__.1.forward",
            "Tensor.__add__.1.forward",
        ]
        assert block in found.roots
        assert found.by_name["Functional.mse_loss.0.forward"].module is None
        assert found.by_name["Functional.linear.1.forward"].module == "blocks.1.fc"
        assert block.module == "blocks.1"

    @pytest.mark.parametrize("level", ["L1", "L0"])
    def test_levels_that_record_less(self, tmp_path: Path, level: str) -> None:
        found = timeline(tmp_path, level=level)
        assert found.events
        assert (len(found.roots) == len(found)) == (level == "L1")

    def test_a_micro_step_beside_the_parent(self, tmp_path: Path) -> None:
        data = {"Torch.sin.0.forward": call(), "Module.fc.Linear.forward.0": call()}
        found = Timeline(
            write_part(tmp_path, data, construct={"Torch.sin.0.forward": ["Module.fc.Linear.forward.0", 3]})
        )
        assert found.by_name["Torch.sin.0.forward"].parent is found.by_name["Module.fc.Linear.forward.0"]

    @pytest.mark.parametrize("parent", ["Torch.sin.0.forward", "Module.gone.forward.0", None, [], 7])
    def test_a_parent_that_makes_no_sense_is_none(self, tmp_path: Path, parent: Any) -> None:
        found = Timeline(
            write_part(tmp_path, {"Torch.sin.0.forward": call()}, construct={"Torch.sin.0.forward": parent})
        )
        assert found.roots == found.events
        assert found.events[0].parent is None

    def test_forward_and_backward_lead_to_each_other(self, tmp_path: Path) -> None:
        found = timeline(tmp_path)
        for name in ("Functional.linear.1.forward", "Module.blocks.1.Block.forward.0"):
            forward = found.by_name[name]
            back = found.backward_of(forward)
            assert back is not None
            assert back.direction == "backward"
            assert found.forward_of(back) is forward
        assert found.backward_of(found.by_name["Optimizer.SGD.0.forward"]) is None


class TestDirections:
    def test_of_a_training(self, tmp_path: Path) -> None:
        found = timeline(tmp_path, recompute=True)
        directions = {event.name: event.direction for event in found}
        assert directions["Torch.tanh.0.forward"] == "forward"
        assert directions["Torch.tanh.2.forward"] == "recompute"
        assert directions["Torch.tanh.2.backward"] == "backward"
        assert directions["Module.blocks.1.Block.forward.1"] == "recompute"
        assert directions["Module.head.Linear.parameters_grad"] == "gradient"
        assert directions["Optimizer.SGD.0.forward"] == "optimizer"

    def test_calls_of_an_optimizer(self, tmp_path: Path) -> None:
        data = {"Tensor.add_.0.forward": call(), "Optimizer.SGD.0.forward": call()}
        found = Timeline(write_part(tmp_path, data, construct=dict.fromkeys(data, "optimizer")))
        assert [event.direction for event in found] == ["optimizer", "optimizer"]


class TestSlots:
    def test_of_a_forward_call(self) -> None:
        inner = tensor(2)
        record = {
            "input_args": [inner, [inner, {"type": "int", "value": 1}], None],
            "input_kwargs": {"mask": inner, "shape": {"a": {"type": "int", "value": 2}}},
            "output": [{"x": inner, "y": [inner]}],
        }
        event = _event("Torch.cat.0.forward", record)
        assert [slot for slot, _ in event.inputs()] == [
            "input.0", "input.1.0", "input.1.1", "input.2", "input.mask", "input.shape.a",
        ]  # fmt: skip
        assert [slot for slot, _ in event.outputs()] == ["output.0.x", "output.0.y.0"]

    def test_of_a_backward_call(self) -> None:
        record = {"input": [tensor(2)], "output": [tensor(2), None]}
        assert [slot for slot, _ in _event("Torch.cat.0.backward", record).outputs()] == ["output.0", "output.1"]
        record["input_grads"] = {"input.1": tensor(2), "kwargs.mask": tensor(2)}
        record["kwargs_grads"] = {"bias": tensor(2)}
        event = _event("Torch.cat.0.backward", record)
        assert [slot for slot, _ in event.inputs()] == ["input.0"]
        assert [slot for slot, _ in event.outputs()] == ["input.1", "kwargs.mask", "kwargs.bias"]

    def test_of_gradients_of_parameters(self) -> None:
        record = {"weight": [tensor(2)], "bias": [None], "msprobe": {"note": "x"}}
        event = _event("Module.fc.Linear.parameters_grad", record)
        assert event.inputs() == []
        assert event.outputs() == [("weight.0", tensor(2)), ("bias.0", None)]

    def test_of_a_module(self) -> None:
        record = {**call(), "parameters": {"weight": tensor(2)}, "buffers": {"mean": tensor(3)}}
        assert [slot for slot, _ in _event("Module.fc.Linear.forward.0", record).parameters()] == [
            "parameters.weight",
            "buffers.mean",
        ]
        assert _event("Torch.cat.0.forward", record).parameters() == []

    def test_of_a_saved_variable(self) -> None:
        event = _event("loss.0.debug", {"a": tensor(2), "b": [tensor(3)]})
        assert [slot for slot, _ in event.outputs()] == ["a", "b.0"]
        assert event.inputs() == []
        assert _event("loss.0.debug", None).record == {"output": [None]}

    def test_plain_values_are_leaves(self) -> None:
        found: list[Any] = []
        flatten("input", [1, "a", {"type": "slice", "value": [None, 2]}, {"deep": {"er": 3.0}}], found)
        assert found == [
            ("input.0", 1),
            ("input.1", "a"),
            ("input.2", {"type": "slice", "value": [None, 2]}),
            ("input.3.deep.er", 3.0),
        ]

    @pytest.mark.parametrize(
        ("leaf", "expected"), [(tensor(2), True), ({"type": "int"}, False), (None, False), (1, False)]
    )
    def test_tensors_have_a_type_of_elements(self, leaf: Any, expected: bool) -> None:
        assert is_tensor(leaf) is expected


def test_what_mindstudio_probe_does_not_write_is_none(tmp_path: Path) -> None:
    found = timeline(tmp_path, ours=False)
    assert {event.order for event in found} == {None}
    assert {event.source for event in found} == {None}
    ours = timeline(tmp_path / "ours")
    assert ours.by_name["Torch.tanh.0.forward"].source == "/home/me/train.py:10"
    assert ours.by_name["Functional.embedding.0.forward"].order == 2


def test_a_wrapped_module_has_the_key_of_the_plain_one(tmp_path: Path) -> None:
    one, other = timeline(tmp_path), timeline(tmp_path / "wrapped", prefix="module._orig_mod.")
    assert [event.key for event in one] == [event.key for event in other]


def _event(name: str, record: Any) -> Event:
    from msprobe.compare.entry_names import read_name
    from msprobe.diagnose.steps.timeline import _direction

    parts = read_name(name)
    return Event(name, parts, record, _direction(parts, record))
