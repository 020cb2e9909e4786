"""Writes and exchanges that one side alone makes, to what no later call of the step takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from unit.diagnose.comparing import agrees, compare, first, told
from unit.diagnose.dumps import Recording, Value, drawn
from unit.diagnose.real_pairs import Training, compare_trainings
from unit.diagnose.training import WIDTH, Plan

from msprobe.messages import arguments_of, said


def writing(api: str, *shape: int, count: int = 1) -> Any:
    """For :attr:`Plan.before`: a write to a tensor that nothing else takes."""

    def before(rec: Recording, x: Value) -> Value:
        target = drawn("target", *shape)
        for number in range(count):
            rec.call(api, [Value(target + np.float32(number)), 0.9], Value(target + np.float32(number + 1)))
        return x

    return before


@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_a_write_to_what_outlives_the_step(tmp_path: Path, side: str) -> None:
    plans = [Plan(before={"loss": writing("Tensor.mul_", WIDTH)}), Plan()]
    verdict = compare(tmp_path, *(plans if side == "candidate" else plans[::-1]))
    found = first(verdict)
    assert told(verdict) == [("structure", "Tensor.mul_.0.forward")]
    assert found.evidence["calls"] == ["Tensor.mul_.0.forward"]
    assert found.evidence.get("side", "candidate") == side
    assert said("change-kept-state") in found.message


def test_several_writes_are_told_as_one(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(before={"loss": writing("Tensor.mul_", WIDTH, count=3)}))
    assert told(verdict) == [("structure", "Tensor.mul_.0.forward")]
    assert first(verdict).evidence["calls"][-1] == "Tensor.mul_.2.forward"


def test_an_exchange_of_what_is_shaped_like_a_gradient(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Plan(before={"loss": writing("Distributed.all_reduce", WIDTH, WIDTH)}))
    assert told(verdict) == [("structure", "Distributed.all_reduce.0.forward")]
    assert said("exchange-kept-state") in first(verdict).message


@pytest.mark.parametrize(
    "api", ["Tensor.zero_", "Tensor.fill_", "Tensor.normal_", "Tensor.requires_grad_", "Tensor.mul"]
)
def test_what_begins_anew_or_writes_nothing_is_none(tmp_path: Path, api: str) -> None:
    assert agrees(compare(tmp_path, Plan(before={"loss": writing(api, WIDTH)})))


def test_a_single_number_is_none(tmp_path: Path) -> None:
    assert agrees(compare(tmp_path, Plan(before={"loss": writing("Tensor.add_", 1)})))


def test_the_same_done_in_another_way_needs_an_effect(tmp_path: Path) -> None:
    plans = [Plan(before={"loss": writing(api, WIDTH)}) for api in ("Tensor.lerp_", "Torch.lerp")]
    assert agrees(compare(tmp_path, *plans))


def test_what_a_later_call_takes_is_told_by_that(tmp_path: Path) -> None:
    def write(rec: Recording, x: Value) -> Value:
        out = x.of(x.array * np.float32(0.9))
        rec.call("Tensor.mul_", [x, 0.9], out)
        return out

    verdict = compare(tmp_path, Plan(before={"blocks.1.tanh": write}))
    assert told(verdict) == [("mutation", "Tensor.mul_.0.forward")]


@pytest.mark.parametrize(("factor", "status"), [(-1.0, "diverged"), (1.0, "agree")])
def test_another_write_to_the_same_tensor(tmp_path: Path, factor: float, status: str) -> None:
    """An average that is pushed away from the weights; and one that is drawn to them in another way."""

    def averaging(api: str, sign: float) -> Any:
        def before(rec: Recording, x: Value) -> Value:
            for number in range(3):
                kept, gap = drawn(f"kept {number}", WIDTH, WIDTH), drawn(f"gap {number}", WIDTH, WIDTH)
                rec.call(api, [Value(kept), Value(gap)], Value(kept + np.float32(0.01 * sign) * gap))
            return x

        return before

    plans = [Plan(before={"loss": averaging(*one)}) for one in (("Tensor.sub_", -1.0), ("Tensor.add_", -factor))]
    verdict = compare(tmp_path, *plans)
    assert verdict.status == status, told(verdict)
    if status == "diverged":
        assert told(verdict) == [("structure", "Tensor.sub_.0.forward")]
        message = first(verdict).message
        assert mentions(message, "replaced-write", other_call="Tensor.add_.0.forward")
        assert " 2 " in arguments_of(message)["more"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_write_to_a_gradient_names_the_parameter_and_the_optimizer_that_takes_it(
    tmp_path: Path, turned: bool
) -> None:
    def build(writes: bool) -> Training:
        model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def step(number: int) -> None:
            optimizer.zero_grad()
            model(torch.randn(6, 8, generator=torch.Generator().manual_seed(number))).pow(2).mean().backward()
            gradient = model[0].weight.grad
            if writes and gradient is not None:
                gradient.mul_(0)
            optimizer.step()

        return model, step

    pair = [lambda: build(True), lambda: build(False)]
    verdict = compare_trainings(tmp_path, *(pair[::-1] if turned else pair))
    found = next(one for one in verdict.findings if one.entry == "Tensor.mul_.0.forward")
    assert "0.weight" in found.message
    assert "Optimizer.SGD.0.forward" in found.message
    assert found.evidence["parameters"] == ["0.weight"]
