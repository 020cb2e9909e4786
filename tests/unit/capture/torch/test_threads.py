"""Threads beside the one that records: they get no records, and change nothing in those of the training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support.recorded import Dump
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.utils.checkpoint import checkpoint

from msprobe.capture.torch.threads import RecordedThread
from msprobe.pytorch import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("group_of_one")
needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")


def run_beside(work: Callable[[], Any]) -> None:
    """Run ``work`` in a thread of its own and wait for its end; what it raises is raised here."""
    problems: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not problems, problems


def record(place: Path, work: Callable[[], Any], model: Any = None, **settings: Any) -> Dump:
    settings = {"level": "mix", "task": "statistics", **settings}
    debugger = PrecisionDebugger(dump_path=str(place), **settings)
    debugger.start(model if model is not None else nn.Sequential(nn.Identity()))
    try:
        work()
    finally:
        debugger.stop()
        debugger.step()
        PrecisionDebugger.reset()
    assert not list(place.rglob("dump_error_info.log"))
    return Dump(place / "step0" / "rank0")


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def double(x: Tensor) -> Tensor:
    return x.mul(2)


def own_step() -> None:
    """What a training beside the training does."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
    loss = (2 + Double.apply(weight)).sum() + (2 * weight).sum()
    loss.backward()
    nn.utils.clip_grad_norm_([weight], 1.0)
    optimizer.step()
    dist.all_reduce(weight.grad)
    gathered: list[Any] = [None]
    dist.all_gather_object(gathered, {"a": 1})


@needs_gloo
@pytest.mark.parametrize("level", ["L1", "mix", "L2"])
def test_a_thread_gets_no_records_and_takes_no_numbers(tmp_path: Path, level: str) -> None:
    def alone() -> None:
        own_step()
        own_step()

    def disturbed() -> None:
        run_beside(own_step)
        own_step()
        run_beside(own_step)
        own_step()
        run_beside(own_step)

    expected = record(tmp_path / "alone", alone, level=level)
    found = record(tmp_path / "disturbed", disturbed, level=level)
    assert list(found.data) == list(expected.data)
    assert found.names == expected.names
    if level != "L2":
        for name in ("Function.Double.1.forward", "Optimizer.SGD.1.forward", "Distributed.all_reduce.1.forward"):
            assert name in found.data


def test_registered_functions_are_recorded_in_the_thread_that_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    here = sys.modules[__name__]

    def work() -> None:
        PrecisionDebugger.register_custom_api(here, "double", "Mine")
        run_beside(lambda: here.double(torch.ones(2)))  # type: ignore[attr-defined]
        here.double(torch.ones(2))  # type: ignore[attr-defined]

    names = record(tmp_path, work, level="L1").names
    assert [name for name in names if name.startswith("Mine.")] == ["Mine.double.0.forward"]


def test_what_a_thread_adds_does_not_rename_what_another_adds(tmp_path: Path) -> None:
    """``reflected``: 2 + a is __radd__, a + 2 is __add__, also while another thread is inside of the other form."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inside.set()
            assert go_on.wait(10)
            return super().__torch_function__(func, types, args, kwargs or {})

    slow = torch.ones(2).as_subclass(Slow)
    a = torch.ones(2)

    def work() -> None:
        thread = threading.Thread(target=lambda: 2 + slow)
        thread.start()
        assert inside.wait(10)
        a.add(2)
        a + 2
        2 + a
        go_on.set()
        thread.join()
        a + 2
        2 + a

    names = [name for name in record(tmp_path, work, level="L1").forward() if "add" in name]
    assert names == ["Tensor.add.0", "Tensor.__add__.0", "Tensor.__radd__.0", "Tensor.__add__.1", "Tensor.__radd__.1"]


@needs_gloo
def test_a_block_of_another_thread_takes_no_collectives_of_this_one(tmp_path: Path) -> None:
    opened, done = threading.Event(), threading.Event()
    x = torch.ones(2)

    def beside() -> None:
        with c10d._coalescing_manager():
            opened.set()
            assert done.wait(10)

    def work() -> None:
        thread = threading.Thread(target=beside)
        thread.start()
        assert opened.wait(10)
        dist.broadcast(x, 0)
        done.set()
        thread.join()

    try:
        found = record(tmp_path, work, level="L1").data["Distributed.broadcast.0.forward"]
    finally:
        done.set()
    assert "coalesced" not in found
    assert found["output"][0]["Max"] == 1.0


@needs_gloo
def test_an_asynchronous_checkpoint_changes_no_record(tmp_path: Path) -> None:
    def work(save: bool) -> Callable[[], None]:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

        def run() -> None:
            saved: Any = None
            for number in range(3):
                loss = (2 + model(torch.ones(2, 4))).sum()
                if save and number == 1:
                    saved = dcp.async_save(
                        {"model": {k: v.detach().clone() for k, v in model.state_dict().items()}},
                        checkpoint_id=str(tmp_path / "checkpoint"),
                        process_group=dist.group.WORLD,
                    )
                dist.all_reduce(loss.detach())
                loss.backward()
            if saved is not None:
                saved.result()

        return run

    expected = record(tmp_path / "without", work(False), level="L1")
    found = record(tmp_path / "with", work(True), level="L1")
    # What the main thread does for it (it copies the weights) is recorded; the numbers of the collectives stay.
    for prefix in ("Distributed.", "Functional.", "Tensor.__radd__"):
        ours = [name for name in found.names if name.startswith(prefix)]
        assert ours == [name for name in expected.names if name.startswith(prefix)], prefix


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_beside_another_threads_recomputation(tmp_path: Path, reentrant: bool) -> None:
    def step(model: nn.Module) -> None:
        x = torch.ones(2, 4, requires_grad=True)
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()  # type: ignore[no-untyped-call]

    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    other = net()

    def hammered() -> None:
        stop, started = threading.Event(), threading.Event()

        def beside() -> None:
            while not stop.is_set():
                step(other)
                started.set()

        thread = threading.Thread(target=beside)
        thread.start()
        assert started.wait(30)
        try:
            for _ in range(5):
                step(model)
        finally:
            stop.set()
            thread.join()

    def alone() -> None:
        for _ in range(5):
            step(model)

    model = net()
    expected = record(tmp_path / "alone", alone, model)
    found = record(tmp_path / "hammered", hammered, model)
    assert found.names == expected.names
    assert [n for n in found.data if "tanh" in n] == [n for n in expected.data if "tanh" in n]


def test_the_engines_own_threads_belong_to_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = RecordedThread()
    answers: list[bool] = []
    assert thread.is_here()
    run_beside(lambda: answers.append(thread.is_here()))
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda g: answers.append(thread.is_here()))
    # A backward pass in a thread of the user's is the user's.
    run_beside(lambda: (x * 2).sum().backward())
    assert answers == [False, False]
    # The engine's threads are none that Python has made; here one that Python has forgotten stands for them.
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    run_beside(lambda: (x * 2).sum().backward())
    run_beside(lambda: answers.append(thread.is_here()))
    assert answers == [False, False, True, False]
