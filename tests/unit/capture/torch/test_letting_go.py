"""After ``stop`` nothing of ours keeps the model, its optimizer, its tensors or its graph alive."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import PrecisionDebugger


@pytest.fixture(scope="module", autouse=True)
def _first_use() -> Iterator[None]:
    """What torch sets up when something is used first, and leaves to the collector."""
    train("plain", lambda model: None, lambda: None)
    gc.collect()
    gc.freeze()  # what is older than these tests is not looked through before each of them
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What is let go of must go at once, as it does without us: the collector may come much later."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    PrecisionDebugger.reset()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Net(nn.Module):
    """``kind``: what is special about it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.tied = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.first(x)
        if self.kind.startswith("checkpoint"):
            h = checkpoint(self.block, h, use_reentrant=self.kind == "checkpoint, reentrant")
        else:
            h = self.block(h)
        h = h.clone()
        h[:, 0] *= 2
        if self.kind == "raises":
            raise ValueError("in the middle of a step")
        return Square.apply(h)  # type: ignore[no-any-return]


def train(kind: str, begin: Callable[[nn.Module], None], end: Callable[[], None]) -> dict[str, Any]:
    """One step. What there was of it, weakly."""
    model = Net(kind)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    run: Any = model
    if kind == "ddp":
        run = nn.parallel.DistributedDataParallel(model)
    elif kind == "compile":
        run = torch.compile(model, backend="eager")
    references: dict[str, Any] = {}
    begin(run)
    try:
        result = run(torch.ones(3, 4))
        loss = result.sum()
        references.update(result=weakref.ref(result), loss=weakref.ref(loss))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        references["moment"] = weakref.ref(optimizer.state[model.first.weight]["exp_avg"])
        references["gradient"] = weakref.ref(model.first.weight.grad)
    except ValueError:
        pass
    end()
    references.update(
        model=weakref.ref(model),
        run=weakref.ref(run),
        module=weakref.ref(model.block[1]),
        parameter=weakref.ref(model.first.weight),
        bias=weakref.ref(model.block[0].bias),
        optimizer=weakref.ref(optimizer),
    )
    return references


def alive(references: dict[str, Any]) -> list[str]:
    return [name for name, reference in references.items() if reference() is not None]


def dump_of(place: Path, step: int) -> str:
    # "rank0" where the process group of another test is there already.
    (file,) = place.glob(f"step{step}/*/dump.json")
    return file.read_text()


@pytest.mark.parametrize("with_step", [False, True], ids=["stop", "step"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
@pytest.mark.parametrize("kind", ["plain", "raises"])
def test_all_is_let_go_of_at_every_level(tmp_path: Path, kind: str, level: str, task: str, with_step: bool) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level=level, task=task)

    def end() -> None:
        debugger.stop()
        if with_step:
            debugger.step()

    assert alive(train(kind, debugger.start, end)) == []


@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("kind", ["checkpoint", "checkpoint, reentrant", "ddp", "compile"])
@pytest.mark.usefixtures("group_of_one")
def test_all_is_let_go_of_however_the_model_runs(tmp_path: Path, kind: str) -> None:
    train(kind, lambda model: None, lambda: None)
    gc.collect()
    before = alive(train(kind, lambda model: None, lambda: None))
    gc.collect()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix", task="statistics")
    found = train(kind, debugger.start, debugger.stop)
    assert alive(found) == before
    gc.collect()
    assert alive(found) == []


def test_a_model_that_follows_another_is_recorded_and_the_first_is_gone(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix", task="statistics")

    def end() -> None:
        debugger.stop()
        debugger.step()

    for _ in range(3):
        assert alive(train("plain", debugger.start, end)) == []
    for step in range(3):
        assert '"Module.first.Linear.parameters_grad"' in dump_of(tmp_path, step)


def test_a_parameter_that_is_replaced_after_stop_is_gone(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    debugger.start(model)
    model(torch.ones(1, 2)).sum().backward()
    debugger.stop()
    old = weakref.ref(model[0].weight)
    model[0].weight = nn.Parameter(torch.zeros(2, 2))
    assert old() is None


def test_a_model_of_a_step_that_is_not_wanted_is_not_kept(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix", task="statistics", step=[5])
    model = Net("plain")
    debugger.start(model)
    gone = weakref.ref(model)
    del model
    assert gone() is None


def test_a_model_that_a_data_loader_drives_is_not_kept(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics", enable_dataloader=True)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    debugger.start(model)
    for batch in torch.utils.data.DataLoader(list(torch.ones(2, 2))):
        model(batch)
    gone = weakref.ref(model)
    del model
    assert gone() is None
    assert "Module.0.Linear.forward.0" in dump_of(tmp_path, 1)


def test_a_pass_that_runs_in_another_thread_while_recording_stops_keeps_nothing(tmp_path: Path) -> None:
    class Waits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inside.set()
            assert stopped.wait(10)
            return x

    inside, stopped, finish = (threading.Event() for _ in range(3))

    def work(models: list[nn.Module]) -> None:
        models.pop()(torch.ones(1))
        assert finish.wait(10)

    model = nn.Sequential(Waits())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", task="statistics")
    debugger.start(model)
    thread = threading.Thread(target=work, args=([model],))
    thread.start()
    assert inside.wait(10)
    debugger.stop()
    gone = weakref.ref(model[0])
    del model
    stopped.set()
    try:
        for _ in range(1000):
            if gone() is None:
                break
            stopped.wait(0)
            threading.Event().wait(0.01)
        assert gone() is None
    finally:
        finish.set()
        thread.join()
