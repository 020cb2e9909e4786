"""The second run of a call leaves the program as it was: writes in place, out=, random numbers, hooks, memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.benchmarked import details, run, summary
from support.coded_texts import mentions
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

MODES = ["no_change", "add_noise", "bit_noise", "improve_precision", "change_value"]


def writes() -> list[torch.Tensor]:
    a = torch.ones(4, 8, dtype=torch.bfloat16)
    a.add_(1)
    a.mul_(3)
    a += 2
    a.index_add_(0, torch.tensor([1, 1]), torch.ones(2, 8, dtype=torch.bfloat16))
    a.view(-1).sub_(0.5)
    a[0].clamp_(max=3)
    out = torch.empty(4, 8, dtype=torch.bfloat16)
    torch.add(a, a, out=out)
    torch.mul(out, 2, out=out)
    F.relu(out, inplace=True)
    F.dropout(out, 0.5, training=True, inplace=True)
    mean, variance = torch.zeros(8, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16)
    F.batch_norm(a, mean, variance, training=True)
    embedded = F.embedding(torch.tensor([0, 1]), weight := torch.ones(3, 8), max_norm=1.0)
    return [a, out, mean, variance, embedded, weight, F.dropout(a, 0.3), torch.bernoulli(torch.full((9,), 0.5))]


@pytest.mark.parametrize("mode", MODES)
def test_what_writes_is_not_written_twice_and_random_numbers_stay(tmp_path: Path, mode: str) -> None:
    torch.manual_seed(3)
    expected, state = writes(), torch.get_rng_state()
    torch.manual_seed(3)
    found = run(tmp_path, writes, pert_mode=mode)
    assert all(map(torch.equal, found, expected))
    assert torch.equal(torch.get_rng_state(), state)
    if mode == "no_change":
        assert not details(tmp_path)
        checked = {name for name, row in summary(tmp_path).items() if row["checked"] != "0"}
        assert {"Tensor.add_", "Tensor.__iadd__", "Tensor.index_add_", "Torch.add", "Functional.dropout"} <= checked
        assert {"Functional.batch_norm", "Functional.embedding"} <= checked


def test_a_call_that_writes_though_its_name_does_not_say_so_is_copied_from_then_on(tmp_path: Path) -> None:
    class Kernels:
        @staticmethod
        def update(x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2).clone()

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="no_change")
    debugger.register_custom_api(Kernels, "update")
    x = torch.ones(3)
    debugger.start()
    for _ in range(3):
        Kernels.update(x)
    debugger.stop()
    PrecisionDebugger.reset()
    assert x.tolist() == [8, 8, 8]
    assert summary(tmp_path)["Kernels.update"]["checked"] == "2"
    assert not details(tmp_path)


def net() -> tuple[torch.nn.Module, Callable[[], torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    )

    def step() -> torch.Tensor:
        model.zero_grad()
        x = torch.randn(8, 16)
        loss = (model(x) + model(x).softmax(-1)).square().mean()
        loss.backward()
        return loss

    return model, step


def test_no_hook_and_no_tensor_is_kept_in_backward(tmp_path: Path) -> None:
    model, _ = net()
    alive: list[Any] = []

    def program() -> None:
        x = torch.randn(8, 16)
        alive.append(weakref.ref(x))
        model(x).sum().backward()

    run(tmp_path, program, steps=5, pert_mode="bit_noise", fuzz_stage="backward")
    gc.collect()
    assert all(reference() is None for reference in alive)
    assert all(not parameter._backward_hooks for parameter in model.parameters())
    assert not [module for module in model.modules() if module._forward_hooks or module._backward_hooks]
    assert int(summary(tmp_path)["Functional.linear"]["checked"]) == 10


def test_twenty_steps_of_backward_leave_no_more_hooks_and_tensors_than_three(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    counts: list[tuple[int, int]] = []

    def program() -> None:
        model.zero_grad()
        model(torch.ones(2, 4)).softmax(-1).square().sum().backward()
        if len(steps) in (3, 20):
            gc.collect()
            hooks = [len(one._backward_hooks or ()) for one in model.parameters()]
            hooks += [len(one._forward_hooks) + len(one._backward_hooks) for one in model.modules()]
            alive = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
            counts.append((sum(hooks), len(alive)))
        steps.append(None)

    steps: list[None] = []
    run(tmp_path, program, steps=21, pert_mode="bit_noise", fuzz_stage="backward", list=["linear", "softmax"])
    assert int(summary(tmp_path)["Functional.linear"]["checked"]) == 21
    assert counts[0] == counts[1]


@pytest.mark.parametrize("offload", [False, True])
def test_inputs_on_the_host_are_those_of_the_call_though_the_program_has_written_to_its_own(
    tmp_path: Path, offload: bool
) -> None:
    class Kernels:
        seen: list[float] = []

        @classmethod
        def shifted(cls, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            cls.seen.append(float(x.detach()[0]))
            return x + weight

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(
        task="free_benchmark",
        dump_path=str(tmp_path),
        pert_mode="no_change",
        fuzz_stage="backward",
        offload=offload,
        list=["shifted"],
    )
    debugger.register_custom_api(Kernels, "shifted")
    x, weight = torch.ones(4), torch.ones(4, requires_grad=True)
    debugger.start()
    loss = Kernels.shifted(x, weight).sum()
    x.mul_(2)
    loss.backward()
    debugger.stop()
    PrecisionDebugger.reset()
    # Plainly, and changed: on inputs as they were, or not at all.
    assert Kernels.seen == ([1, 1, 1] if offload else [1])
    found = summary(tmp_path)["Kernels.shifted"]
    assert found["checked"] == str(int(offload))
    assert bool(mentions(found["notes"], "arguments-written-before-gradients")) is not offload


def test_inputs_whose_gradients_never_come_are_let_go_of_when_the_step_is_over(tmp_path: Path) -> None:
    alive: list[weakref.ref[Any]] = []

    def program() -> None:
        if alive:
            gc.collect()
            kept.append(alive[-1]() is not None)
        memory = torch.ones(4)
        alive.append(weakref.ref(memory.untyped_storage()))
        torch.add(memory, torch.ones(4, requires_grad=True))

    kept: list[bool] = []
    run(tmp_path, program, steps=3, pert_mode="no_change", fuzz_stage="backward", list=["add"])
    assert kept == [False, False]


def test_memory_is_let_go_of_while_it_runs(tmp_path: Path) -> None:
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="no_change", if_preheat=True)
    try:
        for _ in range(3):
            with debugger.recording():
                x = torch.ones(100)
                reference = weakref.ref(x)
                x.relu()
                del x
                assert reference() is None
    finally:
        PrecisionDebugger.reset()


def test_a_tensor_that_two_calls_use_is_no_false_alarm_in_backward(tmp_path: Path) -> None:
    _, step = net()
    run(tmp_path, step, steps=2, pert_mode="no_change", fuzz_stage="backward")
    assert not details(tmp_path)
    assert int(summary(tmp_path)["Functional.linear"]["checked"]) == 8


@pytest.mark.parametrize("offload", [False, True])
def test_arguments_that_were_written_to_before_backward_are_not_used(tmp_path: Path, offload: bool) -> None:
    weight = torch.ones(4, 4, requires_grad=True)

    def program() -> None:
        x = torch.ones(4)
        loss = (x * weight).sum()
        x.data.mul_(2)
        loss.backward()

    run(tmp_path, program, pert_mode="no_change", fuzz_stage="backward", offload=offload)
    assert not [row for row in details(tmp_path) if row["verdict"] == "risk"]


def test_a_gradient_that_is_wrong_in_low_precision_is_found(tmp_path: Path) -> None:
    class Kernels:
        @staticmethod
        def scaled(x: torch.Tensor) -> torch.Tensor:
            # Its gradient is a sum of 4096 terms in the type of the input.
            total = x.new_zeros(())
            for part in x.unbind(0):
                total = total + part.square()
            return total.sqrt()

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(
        task="free_benchmark", dump_path=str(tmp_path), pert_mode="improve_precision", fuzz_stage="backward"
    )
    debugger.register_custom_api(Kernels, "scaled")
    x = (torch.rand(3000, generator=torch.Generator().manual_seed(1)) + 0.5).half().requires_grad_(True)
    debugger.start()
    Kernels.scaled(x).backward()
    debugger.stop()
    PrecisionDebugger.reset()
    assert [row["api_name"] for row in details(tmp_path) if row["verdict"] == "risk"] == ["Kernels.scaled.0.backward"]
