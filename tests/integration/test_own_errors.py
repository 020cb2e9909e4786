"""Errors inside the recording, threads and forks: the training stays bit for bit what it is without us."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.recorded import Dump, ModelT, loss_of
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from msprobe import log
from msprobe.capture import native
from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.torch.calls import call_records as calls
from msprobe.capture.torch.gradients import call_gradients, parameter_gradients, pass_gradients
from msprobe.capture.torch.gradients import graph_nodes as gradients
from msprobe.capture.torch.modules import module_records as modules
from msprobe.capture.torch.tensors.statistics import TensorStatistics
from msprobe.capture.torch.tensors.tensor_values import TensorKeeper
from msprobe.pytorch import PrecisionDebugger
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = ModelT()
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.last(self.body(x)[None])) * 1
        y[:, 0] += 1
        result: torch.Tensor = self.dropout(torch.stack([y, y * 2]))
        return result


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    log.forget_once()
    yield
    PrecisionDebugger.reset()
    log.forget_once()


def train(steps: int, around: Callable[[nn.Module, Callable[[], None]], None] | None = None) -> list[torch.Tensor]:
    """All that comes out of a small training: losses, gradients, weights, the state of the generator."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    found: list[torch.Tensor] = []

    def iteration() -> None:
        optimizer.zero_grad()
        loss = loss_of(model(torch.randn(3, 8)))
        loss.backward()
        found.append(loss.detach())
        found.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        found.extend(p.grad.clone() for p in model.parameters() if p.grad is not None)
        optimizer.step()

    for _ in range(steps):
        if around is None:
            iteration()
        else:
            around(model, iteration)
    return [*found, *(p.detach().clone() for p in model.parameters()), torch.get_rng_state()]


def recorded(steps: int, place: Path, **settings: Any) -> list[torch.Tensor]:
    debugger = PrecisionDebugger(dump_path=str(place), **{"task": "statistics", "level": "mix", **settings})

    def around(model: nn.Module, iteration: Callable[[], None]) -> None:
        debugger.start(model)
        iteration()
        debugger.stop()
        debugger.step()

    return train(steps, around)


@functools.cache
def bare() -> list[torch.Tensor]:
    """Two steps without us."""
    return train(2)


def same(ours: list[torch.Tensor], bare: list[torch.Tensor]) -> bool:
    return len(ours) == len(bare) and all(torch.equal(a, b) for a, b in zip(ours, bare, strict=True))


class Unlucky(Exception):
    """An error of ours."""


def break_in(patch: pytest.MonkeyPatch, holder: Any, attribute: str, fails: Callable[[], bool]) -> None:
    """From now on ``holder.attribute`` raises whenever ``fails()`` says so."""
    original = getattr(holder, attribute)

    def unlucky(*args: Any, **kwargs: Any) -> Any:
        if fails():
            raise Unlucky("not today")
        return original(*args, **kwargs)

    if (holder, attribute) != (TensorStatistics, "describe"):
        patch.setattr(holder, attribute, unlucky)
        return
    # The native one is an attribute of each object.
    begin = TensorStatistics.__init__

    def init(self: TensorStatistics, *args: Any, **kwargs: Any) -> None:
        nonlocal original
        begin(self, *args, **kwargs)
        original = self.describe
        self.describe = unlucky  # type: ignore[method-assign]

    patch.setattr(TensorStatistics, "__init__", init)


# Broken only where whole tensors are saved, where something else has failed before, or by what is not a tensor alone.
RARE = ("describing", "keeping", "tensor files", "flushing", "noting errors")
BREAKABLE: dict[str, tuple[Any, str]] = {
    "statistics": (TensorStatistics, "describe"),
    "describing": (Describer, "describe"),
    "keeping": (TensorKeeper, "keep"),
    "stacks": (CallStacks, "here"),
    "records": (DumpWriter, "put_call"),
    "definitions of stacks": (DumpWriter, "define_stack"),
    "opening": (DumpWriter, "open"),
    "publishing": (DumpWriter, "publish"),
    "noting errors": (DumpWriter, "error"),
    "tensor files": (TensorFileWriter, "save"),
    "flushing": (TensorFileWriter, "flush"),
    "boundary of calls": (call_gradients, "find_boundary"),
    "boundary of modules": (pass_gradients, "find_boundary"),
    "edges": (calls, "edge_of"),
    "edges of modules": (modules, "edge_of"),
    "gathering": (gradients.GradientGathering, "add"),
    "sums": (gradients.GradientGathering, "result"),
    "nodes of parameters": (parameter_gradients, "_node_through_view"),
    "parents": (Session, "parent"),
    "numbers": (Session, "number"),
    "records of the session": (Session, "put"),
}


SETTINGS: tuple[dict[str, Any], ...] = ({}, {"task": "tensor"}, {"list": ["linear", "Linear"]})


@pytest.mark.parametrize(
    ("name", "settings", "chance"),
    [
        *((name, settings, 1.0) for name in BREAKABLE for settings in SETTINGS),
        *((name, SETTINGS[turn % 3], 0.2) for turn, name in enumerate(BREAKABLE)),
    ],
    ids=str,
)
def test_an_error_of_ours_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    chance: float,
    settings: dict[str, Any],
) -> None:
    expected = bare()
    luck = random.Random(1)
    broken = 0

    def fails() -> bool:
        nonlocal broken
        unlucky = luck.random() < chance
        broken += unlucky
        return unlucky

    with monkeypatch.context() as patch:
        break_in(patch, *BREAKABLE[name], fails)
        ours = recorded(2, tmp_path, **settings)
        PrecisionDebugger.reset()
    if chance == 1.0 and (name not in RARE or (settings.get("task") == "tensor" and name != "noting errors")):
        assert broken, "nothing was broken"
    assert same(ours, expected)
    said = [line for line in capsys.readouterr().out.splitlines() if "[ERROR]" in line]
    if broken and name != "noting errors":
        assert said, "nobody was told"
    texts = [line.split("[ERROR] ")[1] for line in said]
    assert len(texts) == len(set(texts))
    for folder in tmp_path.glob("step*/rank"):
        if (folder / "dump.json").exists():
            json.loads((folder / "dump.json").read_text())


def test_an_error_of_ours_is_reported_in_full_beside_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    luck = random.Random(1)
    with monkeypatch.context() as patch:
        break_in(patch, TensorStatistics, "describe", lambda: luck.random() < 0.2)
        recorded(1, tmp_path)
        PrecisionDebugger.reset()
    text = (tmp_path / "step0/rank/dump_error_info.log").read_text()
    assert "Unlucky: not today" in text
    assert f"pid={os.getpid()}" in text


def test_encoding_that_fails_costs_its_record_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = native.encode
    luck = random.Random(2)

    def unlucky(*args: Any) -> Any:
        if luck.random() < 0.1:
            raise Unlucky("not today")
        return encode(*args)

    with monkeypatch.context() as patch:
        # The writer is handed the function when it is made.
        patch.setattr(native, "encode", unlucky)
        ours = recorded(2, tmp_path)
        PrecisionDebugger.reset()
    assert same(ours, bare())
    assert len(Dump(tmp_path / "step0/rank").data) > 20
    assert "Unlucky" in (tmp_path / "step0/rank/dump_error_info.log").read_text()


def test_after_an_unlucky_step_the_next_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlucky = False
    break_in(monkeypatch, TensorStatistics, "describe", lambda: unlucky)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="mix")
    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 8)
    for number in range(3):
        unlucky = number == 1
        debugger.start(model)
        loss_of(model(x)).backward()
        debugger.stop()
        debugger.step()
    first, last = Dump(tmp_path / "step0/rank"), Dump(tmp_path / "step2/rank")
    assert list(first.data) == list(last.data)
    assert first.construct == last.construct
    assert len(Dump(tmp_path / "step1/rank").data) < len(first.data)


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("error", [Exception, TimeoutError])
def test_a_timeout_of_the_program_ends_what_it_is_for(tmp_path: Path, error: type[Exception]) -> None:
    """A handler that raises does so wherever the signal arrives, which is mostly in the recorder.

    Not while the files of a step are opened: what the system refuses there has the type of a timeout.
    """

    class OverError(error):  # type: ignore[misc, valid-type]
        pass

    def over(number: int, frame: Any) -> None:
        raise OverError

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="mix")
    before = signal.signal(signal.SIGALRM, over)
    ended = 0
    # Where nothing may be raised, as when a weak reference dies, Python says so and goes on, without us, too.
    unraised: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraised.append
    try:
        for step in range(12):
            debugger.start(model)
            model(torch.randn(6, 4))
            until = time.monotonic() + 2
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.004 + 0.0013 * step)
                while time.monotonic() < until:
                    model(torch.randn(6, 4)).sum()
            except OverError:
                ended += 1
            debugger.stop()
            debugger.step()
    finally:
        sys.unraisablehook = hook
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        PrecisionDebugger.reset()
    assert ended + sum(issubclass(one.exc_type, OverError) for one in unraised) == 12
    assert ended >= 10


# ---------------------------------------------------------------- threads


def test_a_thread_of_the_user_computes_beside_the_recording(tmp_path: Path) -> None:
    """What other threads call is theirs; modules of the model are recorded wherever they run."""
    expected = train(4)
    done = threading.Event()
    found: list[torch.Tensor] = []

    def beside() -> None:
        x = torch.arange(16.0).reshape(4, 4).requires_grad_()
        while not done.is_set():
            y = torch.cholesky_inverse(x @ x.t() + torch.eye(4))
            y.sum().backward()
            found.append(y.detach())

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        ours = recorded(4, tmp_path)
    finally:
        done.set()
        thread.join()
    PrecisionDebugger.reset()
    assert same(ours, expected)
    assert all(torch.equal(y, found[0]) for y in found)
    for number in range(4):
        assert not [name for name in Dump(tmp_path / f"step{number}/rank").data if "cholesky" in name]


def test_modules_in_many_threads_at_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)])
    x = torch.randn(3, 4)
    bare = [loss_of(part(x)) for part in model]
    found: list[Any] = [None] * len(model)

    def work(number: int) -> None:
        for _ in range(20):
            loss = loss_of(model[number](x))
            loss.backward()
            found[number] = loss

    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="tensor", level="L0")
    debugger.start(model)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(model))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    assert all(torch.equal(a, b) for a, b in zip(found, bare, strict=True))
    dump = Dump(tmp_path / "step0/rank")
    for number in range(len(model)):
        for k in range(20):
            inner = f"Module.{number}.0.Linear.forward.{k}"
            assert dump.construct[inner] == f"Module.{number}.Sequential.forward.{k}"
            assert f"Module.{number}.0.Linear.backward.{k}" in dump.data
        assert f"Module.{number}.0.Linear.forward.20" not in dump.data
    assert not list(tmp_path.rglob("dump_error_info.log"))


def test_starting_and_stopping_in_two_threads(tmp_path: Path) -> None:
    """Whatever the threads do to the one debugger: nothing hangs, nothing raises, nothing is left."""
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="mix")
    models = [Net(), Net()]
    problems: list[BaseException] = []

    def work(model: nn.Module) -> None:
        try:
            for _ in range(10):
                debugger.start(model)
                loss_of(model(torch.ones(3, 8))).backward()
                debugger.stop()
                debugger.step()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(model,), daemon=True) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a deadlock"
    debugger.stop()
    PrecisionDebugger.reset()
    assert problems == []
    for model in models:
        assert all(not module._forward_hooks for module in model.modules())
    for file in tmp_path.rglob("dump.json"):
        json.loads(file.read_text())


def test_stopping_in_another_thread_than_starting(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    debugger.start()
    torch.relu(torch.ones(2))
    thread = threading.Thread(target=debugger.stop)
    thread.start()
    thread.join()
    torch.tanh(torch.ones(2))
    debugger.step()
    debugger.start()
    torch.exp(torch.ones(2))
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    assert Dump(tmp_path / "step0/rank").forward() == ["Torch.ones.0", "Torch.relu.0"]
    assert Dump(tmp_path / "step1/rank").forward() == ["Torch.ones.0", "Torch.exp.0"]
    assert _get_current_function_mode_stack() == []


# ---------------------------------------------------------------- processes


def forked(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked child; its exit status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@needs_fork
@forking
@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_child_of_a_recorded_process_records_nothing(tmp_path: Path, level: str, task: str) -> None:
    """The child runs forward only: torch's own autograd may not be used in both."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(3, 8)
    expected = model(x)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task=task, level=level)
    debugger.start(model)
    model(x)

    def work() -> None:
        assert torch.equal(model(x), expected)
        torch.cholesky_inverse(torch.eye(2))
        debugger.stop()
        debugger.step()
        debugger.start(model)
        model(x)
        debugger.stop()
        debugger.step()
        PrecisionDebugger.reset()

    assert forked(work) == 0
    loss_of(model(x)).backward()
    debugger.stop()
    debugger.step()
    debugger.start(model)
    model(x)
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    assert sorted(path.name for path in tmp_path.glob("*")) == ["step0", "step1"]
    data = Dump(tmp_path / "step0/rank").data
    assert not [name for name in data if "cholesky" in name]
    if level in ("L0", "mix"):
        assert "Module.dropout.Dropout.forward.1" in data
    assert len(data) > 10
    assert not list(tmp_path.rglob("dump_error_info.log"))


@needs_fork
def test_a_child_that_ends_as_programs_do_leaves_the_dump_alone(tmp_path: Path) -> None:
    """Also what runs at exit in the child must not touch the parent's files."""
    program = f"""
import os, sys, torch
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path={str(tmp_path / "dump")!r}, task="tensor", level="L1")
debugger.start()
torch.relu(torch.ones(2))
if os.fork() == 0:
    torch.exp(torch.ones(2))
    sys.exit(0)
os.wait()
torch.tanh(torch.ones(2))
debugger.stop()
debugger.step()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    dump = Dump(tmp_path / "dump/step0/rank")
    assert [n for n in dump.forward() if "ones" not in n] == ["Torch.relu.0", "Torch.tanh.0"]
    assert "Torch.relu.0.forward.output.0.pt" in dump.files
    assert "Torch.tanh.0.forward.output.0.pt" in dump.files


def square(value: float) -> float:
    return float(torch.tensor(value).square())


@needs_fork
@forking
def test_a_pool_of_processes_made_while_recording(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1")
    debugger.start()
    torch.relu(torch.ones(2))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(square, [1.0, 2.0, 3.0]).get(60) == [1.0, 4.0, 9.0]
    torch.tanh(torch.ones(2))
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    names = Dump(tmp_path / "step0/rank").forward()
    assert [n for n in names if "ones" not in n] == ["Torch.relu.0", "Torch.tanh.0"]
