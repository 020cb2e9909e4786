"""Listeners of a MindSpore program in the dynamic graph: told what the dump says, beside it and without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions
from support.listening import with_listeners

mindspore = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402

from msprobe.listeners import Changer, Changes, NewGradient, Observer, Result, Wants  # noqa: E402
from msprobe.mindspore import Listening, Memory, PrecisionDebugger  # noqa: E402

OF_ONE_RUN = re.compile(rb'"process": \{[^}]*\}|File [^"]*test_listeners.py, line \d+, in test_.*')
Told = list[tuple[str, str]]
debugger = partial(with_listeners, PrecisionDebugger)


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(4, 8)
        self.last = nn.Dense(8, 2)

    def construct(self, x: Any) -> Any:
        return self.last(ops.gelu(self.first(x)))


class Everything(Observer):
    """Is told of everything, and computes and draws random numbers while it is."""

    def __init__(self, wants: Wants | None = None) -> None:
        self.wants = wants or Wants()
        self.told: Told = []

    def before(self, event: Any) -> None:
        self._note("before", event)

    def after(self, event: Any, result: Any) -> None:
        self._note("after", event)

    def gradient(self, event: Any) -> None:
        self._note("gradient", event)
        (event.gradient * 2).sum()

    def _note(self, moment: str, event: Any) -> None:
        self.told.append((moment, event.name))
        np.random.rand()


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    yield
    PrecisionDebugger.reset()


def train(around: PrecisionDebugger | None = None, forward: Callable[[Any, Any], Any] | None = None) -> list[Any]:
    """Losses, gradients, weights and what the generators give next, of two steps."""
    mindspore.set_seed(0)
    np.random.seed(0)
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def loss_of(x: Any) -> Any:
        return ((net(x) if forward is None else forward(net, x)) ** 2).sum()

    step = mindspore.value_and_grad(loss_of, None, net.trainable_params())
    found: list[Any] = []
    for _ in range(2):
        x = mindspore.Tensor(np.random.randn(3, 4).astype(np.float32))
        if around is not None:
            around.start(net)
        loss, gradients = step(x)
        if around is not None:
            around.stop()
            around.step()
        optimizer(gradients)
        found += [loss.asnumpy(), *(gradient.asnumpy() for gradient in gradients)]
    found += [parameter.asnumpy() for parameter in net.trainable_params()]
    return [*found, np.random.rand(2)]


def same(ours: list[Any], bare: list[Any]) -> bool:
    return len(ours) == len(bare) and all(np.array_equal(a, b) for a, b in zip(ours, bare, strict=True))


def dumped(place: Path) -> dict[str, bytes]:
    return {str(f.relative_to(place)): OF_ONE_RUN.sub(b"", f.read_bytes()) for f in sorted(place.rglob("*.json"))}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_dump_is_byte_for_byte_the_same_with_an_observer_of_everything(tmp_path: Path, level: str) -> None:
    wants = Wants(kinds=("call",)) if level == "L1" else Wants()
    everything = Everything(wants)
    heard = train(debugger(tmp_path / "heard", everything, level=level))
    assert same(heard, train())
    train(debugger(tmp_path / "alone", level=level))
    PrecisionDebugger.reset()
    assert dumped(tmp_path / "heard") == dumped(tmp_path / "alone")
    assert not list(tmp_path.rglob("dump_error_info.log"))
    text = (tmp_path / "heard" / "step0" / "rank" / "dump.json").read_text()
    names = set(re.findall(r'^  "([^"]+)": \{', text, re.MULTILINE)) - {"process"}
    told = {name for _, name in everything.told}
    assert {name for name in names if name.startswith(("Cell.", "Functional.", "Tensor.", "Primitive."))} <= told
    assert len(told) > 10


def test_a_listener_for_one_cell_hooks_one_cell_and_replaces_no_function(tmp_path: Path) -> None:
    everything = Everything(Wants(kinds=("pass", "parameter_gradient"), modules=("last",)))
    made = debugger(tmp_path, everything, step=[9])
    original = ops.gelu
    net = Net()
    with made.recording(net):
        assert ops.gelu is original
    assert same(train(made), train())
    assert set(everything.told) == {
        ("before", "Cell.last.Dense.forward.0"),
        ("after", "Cell.last.Dense.forward.0"),
        ("gradient", "Cell.last.Dense.backward.0"),
        ("gradient", "Cell.last.Dense.parameters_grad"),
    }
    assert not list(tmp_path.iterdir())


class Through(nn.Cell):
    """What a user would write to go on with other values."""

    def construct(self, own: Any, other: Any) -> Any:
        return other * 1

    def bprop(self, own: Any, other: Any, out: Any, gradient: Any) -> Any:
        return gradient, ops.zeros_like(other)


def test_a_replaced_result_moves_the_training_as_the_same_change_in_the_program(tmp_path: Path) -> None:
    recorded = mindspore.Tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8))

    class Replacing(Changer):
        wants = Wants(names=("Functional.gelu",), directions=("forward",))
        changes = Changes(names=("Functional.gelu",), results=True)

        def after(self, event: Any, result: Any) -> Result:
            return Result(recorded)

    def by_hand(net: Any, x: Any) -> Any:
        return net.last(Through()(ops.gelu(net.first(x)), recorded))

    ours = train(debugger(tmp_path, Replacing()))
    PrecisionDebugger.reset()
    assert same(ours, train(forward=by_hand))
    assert not same(ours, train())


def test_a_gradient_cannot_be_replaced_which_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Replacing(Changer):
        wants = Wants(kinds=("call",), names=("Functional.gelu",), directions=("backward",))
        changes = Changes(names=("Functional.gelu",), gradients=True)

        def gradient(self, event: Any) -> NewGradient:
            assert not event.can_be_replaced
            return NewGradient(event.gradient * 2)

    assert same(train(debugger(tmp_path, Replacing())), train())
    assert mentions(capsys.readouterr().out, "changer-gradient-fixed")


def test_a_call_is_made_again_with_perturbed_input_and_the_training_stays_bit_identical(tmp_path: Path) -> None:
    apart: dict[str, float] = {}

    class Perturbing(Observer):
        wants = Wants(names=("Functional.gelu",), directions=("forward",))

        def before(self, event: Any) -> None:
            self.copies = event.copies()

        def after(self, event: Any, result: Any) -> None:
            args, kwargs = self.copies
            args[0] = args[0] * 1.01
            apart[event.name] = float((event.repeat(args, kwargs) - result).abs().max().asnumpy())

    assert same(train(debugger(tmp_path, Perturbing())), train())
    assert list(apart) == ["Functional.gelu.0.forward"]
    assert 0 < apart["Functional.gelu.0.forward"] < 0.1


def test_listeners_without_a_debugger_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    everything, net = Everything(), Net()
    with Listening(everything) as listening, listening.step(net):
        mindspore.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(mindspore.ops.ones((3, 4)))
    assert ("after", "Functional.gelu.0.forward") in everything.told
    assert ("gradient", "Cell.first.Dense.parameters_grad") in everything.told
    assert not list(tmp_path.iterdir())


def test_memory_has_what_reading_the_dump_gives(tmp_path: Path) -> None:
    memory = Memory()
    for into in (None, memory):
        made = debugger(tmp_path / ("memory" if into else "folder"))
        net = Net()
        mindspore.set_seed(0)
        step = mindspore.value_and_grad(lambda x, net=net: net(x).sum(), None, net.trainable_params())
        with made.recording(net, into=into):
            step(mindspore.Tensor(np.ones((3, 4), np.float32)))
    PrecisionDebugger.reset()
    data = json.loads((tmp_path / "folder" / "step0" / "rank" / "dump.json").read_text())["data"]
    assert list(memory[0]) == list(data)
    assert {name: list(record.data) for name, record in memory[0].items()} == {n: list(d) for n, d in data.items()}
    assert not (tmp_path / "memory").exists()
