from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checked import call, module, some, write
from support.hand_made import tensor
from unit.diagnose.comparing import compare, edited, first, told
from unit.diagnose.training import Plan

from msprobe.diagnose import compare_runs
from msprobe.diagnose.differences.records import Comparer
from msprobe.diagnose.pairing.match import pair
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.judge import judge_all
from msprobe.messages import said
from msprobe.store.reader import open_dump

INSIDE = ("Functional.linear.1.", "Torch.tanh.1.", "Functional.dropout.1.", "Tensor.__mul__.1.", "Tensor.__add__.1.")


def off(factor: float) -> Any:
    return lambda array: array * np.float32(factor)


def block_compiled(data: dict[str, Any]) -> None:
    """What a recorder sees of the second block if that is compiled: its pass, and the gradients of its parameters."""
    for name in list(data):
        if name.startswith((*INSIDE, "Module.blocks.1.fc.Linear.forward", "Module.blocks.1.fc.Linear.backward")):
            del data[name]


def all_compiled(data: dict[str, Any]) -> None:
    """The same if the module around all others is compiled: the recorder calls that ``root``, and the optimizer knows
    parameters by the word that the compiler puts in front.
    """
    first, last = data["Functional.embedding.0.forward"], data["Functional.linear.2.forward"]
    step = data["Optimizer.SGD.0.forward"]
    whole = {"input_args": first["input_args"][:1], "input_kwargs": {}, "output": last["output"], "parameters": {}}
    whole |= {"is_recompute": False, "msprobe": {"order": 0}}
    rest = {name: record for name, record in data.items() if "mse_loss" in name or "parameters_grad" in name}
    for record in (step["input_kwargs"], step["output"][0]):
        for name in list(record):
            record[f"_orig_mod.{name}"] = record.pop(name)
    step["groups"][0]["params"] = [f"_orig_mod.{name}" for name in step["groups"][0]["params"]]
    data.clear()
    data |= {"Module.root.Model.forward.0": whole, **rest, "Optimizer.SGD.0.forward": step}


@pytest.mark.parametrize("more", [{}, {"digests": False}, {"noise": 2e-7}], ids=str)
@pytest.mark.parametrize(("change", "name"), [(block_compiled, "blocks.1"), (all_compiled, "root")])
@pytest.mark.parametrize("turned", [False, True])
def test_a_compiled_run_agrees_with_one_that_is_not(
    tmp_path: Path, more: dict[str, Any], change: Any, name: str, turned: bool
) -> None:
    plans = [Plan(edit=edited(change), **more), Plan(**{**more, "noise": 0.0})]
    verdict = compare(tmp_path, *(plans[::-1] if turned else plans))
    assert (verdict.status, told(verdict)) == ("agree", [])
    side = "reference" if turned else "candidate"
    assert said("modules-compiled", side, name) in verdict.notes


def test_a_result_of_a_compiled_module_that_differs_is_told_of_the_module(tmp_path: Path) -> None:
    plan = Plan(edit=edited(block_compiled), results={"blocks.1.tanh": off(1.1)})
    found = first(compare(tmp_path, plan))
    assert (found.kind, found.entry) == ("computation", "Module.blocks.1.Block.forward.0")


def test_a_gradient_that_differs_inside_is_told_of_the_parameter(tmp_path: Path) -> None:
    plan = Plan(edit=edited(block_compiled), parameter_gradients={"blocks.1.fc.weight": off(1.1)})
    found = first(compare(tmp_path, plan))
    assert (found.kind, found.module) == ("parameter_gradient", "blocks.1.fc")


def test_a_mistake_before_a_compiled_module_goes_first(tmp_path: Path) -> None:
    plan = Plan(edit=edited(block_compiled), results={"blocks.0.tanh": off(1.1)})
    assert first(compare(tmp_path, plan)).entry == "Torch.tanh.0.forward"


def test_a_module_that_does_nothing_is_not_taken_for_compiled(tmp_path: Path) -> None:
    def skip(data: dict[str, Any]) -> None:
        block_compiled(data)
        block = data["Module.blocks.1.Block.forward.0"]
        block["output"] = data["Functional.linear.2.forward"]["input_args"][:1] = block["input_args"]

    verdict = compare(tmp_path, Plan(edit=edited(skip)))
    assert told(verdict)[0] == ("structure", "Functional.linear.1.forward")
    assert not any("compiled" in note for note in verdict.notes)


def micro_batches(folder: Path, compiled: bool, losses: tuple[float, float] = (1.0, 2.0)) -> Path:
    """Two passes of a model and what is done with them outside of it: the loss, and its backward pass."""
    weight, data, parents = some(1, 4, 4, requires_grad=True), {}, {}
    for number, loss in enumerate(losses):
        x, h = some(2 + number, 3, 4), some(4 + number, 3, 4, requires_grad=True)
        name, above = f"Functional.linear.{number}.forward", f"Module.fc.Linear.forward.{number}"
        data[name] = call([x, weight], h)
        if compiled:
            del data[name]
            name, above = f"Tensor.view_as.{number}.forward", f"Module.root.Net.forward.{number}"
            data[name] = call([weight, weight], weight)
        data[above] = module([x], h)
        parents |= {name: above, above: None}
        value = {**tensor(value=loss), "requires_grad": True, "digest": f"xxh3:{loss}"}
        data[f"Functional.mse_loss.{number}.forward"] = call([h, some(8, 3, 4)], value)
        data[f"Functional.mse_loss.{number}.backward"] = {"input": [tensor(value=1.0)], "output": [some(9, 3, 4)]}
    write(folder, data, parents=parents)
    return folder


@pytest.mark.parametrize("turned", [False, True])
def test_the_loss_of_each_micro_batch_of_a_compiled_model_is_compared(tmp_path: Path, turned: bool) -> None:
    dumps = micro_batches(tmp_path / "one", compiled=True), micro_batches(tmp_path / "other", compiled=False)
    verdict = compare_runs(*(dumps[::-1] if turned else dumps))
    assert (verdict.status, told(verdict)) == ("agree", [])
    side = "reference" if turned else "candidate"
    assert (verdict.summary["pairs"], verdict.summary[f"{side}_only"]) == (4, 2)
    for number, losses in enumerate(((1.5, 2.0), (1.0, 2.5))):
        other = micro_batches(tmp_path / str(number), compiled=False, losses=losses)
        found = compare_runs(*((other, dumps[0]) if turned else (dumps[0], other)))
        assert told(found) == [("computation", f"Functional.mse_loss.{number}.forward")]


def test_a_cast_that_does_nothing_has_the_gradients_of_all_results_of_the_compiled_model(tmp_path: Path) -> None:
    """It has no node of its own in the graph: what was recorded is that of the whole model."""

    def cast(name: str, *gradients: Any, to: Any) -> Path:
        x = some(1, 3, 4, requires_grad=True)
        data = {
            "Tensor.float.0.forward": call([x], x),
            "Functional.mse_loss.0.forward": call([x, some(2, 3, 4)], {**tensor(value=1.0), "requires_grad": True}),
            "Functional.mse_loss.0.backward": {"input": [tensor(value=1.0)], "output": [some(3, 3, 4)]},
            "Tensor.float.0.backward": {"input": [some(3, 3, 4), *gradients], "output": to},
        }
        write(tmp_path / name, data)
        return tmp_path / name

    timelines = [
        Timeline(open_dump(folder).part())
        for folder in (cast("one", some(4, 7), to=[some(5, 9, 9)]), cast("other", to=[some(3, 3, 4)]))
    ]
    candidate, reference = timelines
    judged = judge_all(pair(*timelines), Comparer(candidate.part, reference.part), Producers(candidate))
    backward = judged[candidate.by_name["Tensor.float.0.backward"]]
    assert (backward.arguments, backward.status) == ([], "same")
