"""Listeners of a PyTorch training: told what the dump says; observers change nothing, changers what they name."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions, raising
from support.listening import with_listeners
from support.native_and_python import use_python
from support.recorded import Dump
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from msprobe import listeners
from msprobe.capture import native
from msprobe.listeners import Arguments, Cadence, Changer, Changes, Observer, Result, Wants
from msprobe.pytorch import Listening, PrecisionDebugger

# What is different in each recording: the process, and from which line of a test it was begun.
OF_ONE_RUN = re.compile(rb'"process": \{[^}]*\}|File [^"]*test_listeners.py, line \d+, in test_.*')
debugger = partial(with_listeners, PrecisionDebugger)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.3)
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dropout(F.gelu(self.norm(self.first(x))).mul_(1.5))
        result: torch.Tensor = self.last(torch.stack([y, y * 2]).sum(0))
        return result


class Everything(Observer):
    """Is told of everything, and computes, draws random numbers and makes a mess of the modes while it is."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def before(self, event: Any) -> None:
        self._note("before", event)

    def after(self, event: Any, result: Any) -> None:
        self._note("after", event)
        assert event.source or event.stack

    def gradient(self, event: Any) -> None:
        self._note("gradient", event)
        event.gradient.norm().item()

    def _note(self, moment: str, event: Any) -> None:
        self.told.append((moment, event.name))
        torch.rand(3)
        torch.manual_seed(7)
        torch.set_grad_enabled(True)
        for tensor in getattr(event, "args", ()):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                (tensor.detach() * 2).requires_grad_().sum().backward()  # type: ignore[no-untyped-call]


class Told(Observer):
    """Keeps what it is told of."""

    def __init__(self, wants: Wants | None = None, cadence: Cadence | None = None) -> None:
        self.wants = wants or Wants()
        self.cadence = cadence or Cadence()
        self.told: list[str] = []

    def before(self, event: Any) -> None:
        self.told.append(event.name)

    def gradient(self, event: Any) -> None:
        self.told.append(event.name)


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    PrecisionDebugger.reset()


@pytest.fixture(params=["native", "python"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the C extension, and without."""
    if request.param == "python":
        use_python(monkeypatch)
    elif not native.built:
        pytest.skip("the C extension was not built")
    return str(request.param)


def train(
    around: PrecisionDebugger | None = None,
    steps: int = 2,
    forward: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None,
    model: nn.Module | None = None,
) -> list[Any]:
    """Losses, gradients, weights, buffers and the state of the generator of a small training."""
    torch.manual_seed(0)
    model = model or Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    found: list[Any] = []
    for _ in range(steps):
        if around is not None:
            around.start(model)
        optimizer.zero_grad()
        x = torch.randn(3, 4)
        loss = ((model(x) if forward is None else forward(model, x)) ** 2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        if around is not None:
            around.stop()
            around.step()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
    return [*found, *(value.clone() for value in model.state_dict().values()), torch.get_rng_state()]


def same(ours: Sequence[Any], bare: Sequence[Any]) -> bool:
    return len(ours) == len(bare) and all(torch.equal(a, b) for a, b in zip(ours, bare, strict=True))


def dumped(place: Path) -> dict[str, bytes]:
    """The files of a dump, without what is different in each run."""
    return {
        str(file.relative_to(place)): OF_ONE_RUN.sub(b"", file.read_bytes()) for file in sorted(place.rglob("*.json"))
    }


# ---------------------------------------------------------------- (a) the dumper beside others


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_dump_is_byte_for_byte_the_same_with_an_observer_of_everything(
    tmp_path: Path, side: str, level: str
) -> None:
    bare = train()
    alone = train(debugger(tmp_path / "alone", level=level))
    everything = Everything()
    if level == "L1":
        # A module with hooks on it has frames of torch's own for them, which the stacks of calls inside show.
        everything.wants = Wants(kinds=("call", "optimizer"))
    relayed = train(debugger(tmp_path / "heard", everything, level=level))
    PrecisionDebugger.reset()
    assert same(alone, bare)
    assert same(relayed, bare)
    assert dumped(tmp_path / "alone") == dumped(tmp_path / "heard")
    assert not list(tmp_path.rglob("dump_error_info.log"))
    # What it was told is what the dump has, under the same names.
    names = set(Dump(tmp_path / "heard" / "step0" / "rank").data)
    said = {name for _, name in everything.told}
    assert names - {name for name in names if "Optimizer" in name} <= said
    assert len(everything.told) > 100


def test_without_a_listener_calls_and_passes_go_to_the_dumper_itself(tmp_path: Path) -> None:
    made = debugger(tmp_path, Told(cadence=Cadence(first=1)))
    model = Net()
    recorder = made.recorder
    with made.recording(model):
        assert recorder.mode is not None
        assert recorder.mode.target is recorder.calls
        assert recorder.mode.relayed is None
        assert recorder.targets.passes is recorder.modules
    made.start(model)
    assert recorder.mode.relayed is not None


# ---------------------------------------------------------------- (b) another cadence


class GradientNorms(Observer):
    """The norm of all gradients of parameters together, every tenth step."""

    wants = Wants(kinds=("parameter_gradient",))
    cadence = Cadence(every=10)

    def __init__(self) -> None:
        self.norms: dict[int, float] = {}

    def step_begin(self, event: listeners.Step) -> None:
        self._sum = torch.zeros(())

    def gradient(self, event: Any) -> None:
        self._sum += event.gradient.square().sum()

    def step_end(self, event: listeners.Step) -> None:
        self.norms[event.step] = self._sum.sqrt().item()


def test_gradient_norms_every_ten_steps_beside_a_dump_of_step_three(tmp_path: Path, side: str) -> None:
    norms = GradientNorms()
    made = debugger(tmp_path / "both", norms, step=[3])
    ours = train(made, steps=12)
    PrecisionDebugger.reset()
    bare = train(steps=12)
    assert same(ours, bare)
    assert [path.name for path in (tmp_path / "both").iterdir()] == ["step3"]
    train(debugger(tmp_path / "alone", step=[3]), steps=12)
    PrecisionDebugger.reset()
    assert dumped(tmp_path / "both") == dumped(tmp_path / "alone")
    # The gradients of the bare training: a loss and eight gradients a step.
    count = len(list(Net().parameters())) + 1
    expected = {step: bare[step * count + 1 : (step + 1) * count] for step in (0, 10)}
    assert norms.norms == pytest.approx(
        {step: torch.stack([g.norm() for g in found]).norm().item() for step, found in expected.items()}
    )


def test_a_cadence_is_switched_while_the_training_runs(tmp_path: Path) -> None:
    told = Told(Wants(kinds=("pass",), directions=("forward",)), Cadence(steps=(0,)))
    made = debugger(tmp_path, told, step=[9])
    train(made, steps=2)
    once = len(told.told)
    assert once > 0
    told.cadence = Cadence()
    train(made, steps=1)
    assert len(told.told) == 2 * once
    told.is_on = False
    train(made, steps=1)
    assert len(told.told) == 2 * once


# ---------------------------------------------------------------- (c) another result


class Through(torch.autograd.Function):
    """What a user would write to go on with other values."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return other.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class Replacing(Changer):
    """Puts a recorded tensor in the place of the result of one gelu."""

    wants = Wants(names=("Functional.gelu.0",), directions=("forward",))
    changes = Changes(names=("Functional.gelu.0",), results=True)

    def __init__(self, recorded: torch.Tensor) -> None:
        self.recorded = recorded

    def after(self, event: Any, result: Any) -> Result:
        return Result(self.recorded)


@pytest.mark.parametrize("level", [None, "L0", "mix"])
def test_a_replaced_result_moves_the_training_as_the_same_change_in_the_program(
    tmp_path: Path, side: str, level: str | None
) -> None:
    recorded = torch.linspace(-1, 1, 24).reshape(3, 8)
    kept = recorded.clone()

    def by_hand(model: Any, x: torch.Tensor) -> torch.Tensor:
        y = Through.apply(F.gelu(model.norm(model.first(x))), recorded).mul_(1.5)  # type: ignore[no-untyped-call]
        y = model.dropout(y)
        result: torch.Tensor = model.last(torch.stack([y, y * 2]).sum(0))
        return result

    changer = Replacing(recorded)
    made = debugger(tmp_path, changer, **({"step": [99]} if level is None else {"level": level}))
    ours = train(made)
    PrecisionDebugger.reset()
    assert same(ours, train(forward=by_hand))
    assert not same(ours, train())
    # The program writes in place to what it got; the listener's tensor is its own.
    assert torch.equal(recorded, kept)
    if level == "mix":
        output = Dump(tmp_path / "step0" / "rank").data["Functional.gelu.0.forward"]["output"][0]
        assert output["Max"] == 1.0
        assert output["Min"] == -1.0


def test_a_module_is_given_other_arguments_and_its_result_is_replaced(tmp_path: Path, side: str) -> None:
    class Doubling(Changer):
        wants = Wants(kinds=("pass",), modules=("last",), directions=("forward",))
        changes = Changes(names=("Module.last.Linear",), arguments=True, results=True)

        def before(self, event: Any) -> Arguments:
            return Arguments([event.args[0] * 2], {})

        def after(self, event: Any, result: Any) -> Result:
            return Result(result + 1)

    def by_hand(model: Any, x: torch.Tensor) -> torch.Tensor:
        y = model.dropout(F.gelu(model.norm(model.first(x))).mul_(1.5))
        y = model.last((torch.stack([y, y * 2]).sum(0) * 2).detach())
        result: torch.Tensor = Through.apply(y, (y + 1).detach())  # type: ignore[no-untyped-call]
        return result

    ours = train(debugger(tmp_path, Doubling()), steps=1)
    assert same(ours, train(forward=by_hand, steps=1))


@pytest.mark.parametrize(
    ("changes", "answer", "reason"),
    [
        (Changes(names=("Functional.linear",), results=True), Result(torch.zeros(3, 8)), "changer-does-not-name-call"),
        (Changes(names=("Functional.gelu",)), Result(torch.zeros(3, 8)), "changer-does-not-name-what"),
        (Changes(names=("Functional.gelu",), results=True), torch.zeros(3, 8), "changer-answer-of-class"),
        (Changes(names=("Functional.gelu",), results=True), Result(torch.zeros(1)), "replacement-differs"),
    ],
)
def test_a_changer_changes_what_it_names_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: Changes, answer: Any, reason: str
) -> None:
    class Greedy(Changer):
        wants = Wants(names=("Functional.gelu",))

        def after(self, event: Any, result: Any) -> Any:
            return answer

    greedy = Greedy()
    greedy.changes = changes
    assert same(train(debugger(tmp_path, greedy)), train())
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Greedy" in line]
    assert mentions(line, reason)
    assert "Functional.gelu.0.forward" in line


def test_a_result_that_is_an_argument_cannot_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class InPlace(Changer):
        wants = Wants(names=("Tensor.mul_",))
        changes = Changes(names=("Tensor.mul_",), results=True)

        def after(self, event: Any, result: Any) -> Result:
            return Result(torch.zeros(3, 8))

    assert same(train(debugger(tmp_path, InPlace())), train())
    assert mentions(capsys.readouterr().out, "result-is-argument")


# ---------------------------------------------------------------- (d) a call made twice


class Perturbing(Observer):
    """Makes a call again with an argument that is a little larger, and keeps how far the results are apart."""

    def __init__(self, *names: str) -> None:
        self.wants = Wants(names=names, directions=("forward",))
        self.apart: dict[str, float] = {}
        self._copies: Any = None

    def before(self, event: Any) -> None:
        self._copies = event.copies() if event.can_repeat else None

    def after(self, event: Any, result: Any) -> None:
        if self._copies is not None:
            args, kwargs = self._copies
            args[0] = args[0] * (1 + 2**-10)
            again = event.repeat(args, kwargs)
            self.apart[event.name] = (again.float() - result.float()).abs().max().item()


def test_a_call_is_made_again_with_perturbed_input_and_the_training_stays_bit_identical(
    tmp_path: Path, side: str
) -> None:
    perturbing = Perturbing("Functional.linear", "Functional.batch_norm", "Functional.dropout.0", "Tensor.mul_")
    alone = debugger(tmp_path / "alone")
    train(alone)
    assert same(train(debugger(tmp_path / "heard", perturbing)), train())
    PrecisionDebugger.reset()
    assert dumped(tmp_path / "heard") == dumped(tmp_path / "alone")
    names = {f"Functional.linear.{n}.forward" for n in (0, 1)} | {
        "Functional.dropout.0.forward",
        "Tensor.mul_.0.forward",
    }
    assert perturbing.apart.keys() == names | {"Functional.batch_norm.0.forward"}
    assert 0 < perturbing.apart["Functional.linear.0.forward"] < 0.1


@pytest.mark.parametrize("cached", [True, False])
def test_a_repeated_call_under_autocast_leaves_the_cache_of_cast_weights_alone(tmp_path: Path, cached: bool) -> None:
    def forward(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cached):
            # The weights are cast in the first pass, and taken from the cache in the second.
            result: torch.Tensor = model(x) + model(x)
            return result

    perturbing = Perturbing("Functional.linear")
    assert same(train(debugger(tmp_path, perturbing), forward=forward), train(forward=forward))
    assert len(perturbing.apart) == 4
    assert torch.is_autocast_cache_enabled()


# ---------------------------------------------------------------- observers, and what goes wrong


def test_what_an_observer_returns_is_not_looked_at(tmp_path: Path) -> None:
    class Answering(Observer):
        def before(self, event: Any) -> Any:
            return Arguments([], {})

        def after(self, event: Any, result: Any) -> Any:
            return Result(None)

    assert same(train(debugger(tmp_path, Answering())), train())


def test_an_observer_that_writes_to_a_tensor_is_dropped_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Writing(Observer):
        wants = Wants(names=("Functional.gelu",))

        def before(self, event: Any) -> None:
            event.args[0].add_(0)

    writing, others = Writing(), Told(Wants(names=("Functional.linear",)))
    made = debugger(tmp_path, writing, others)
    train(made, forward=lambda model, x: model(x).detach().requires_grad_())
    assert mentions(capsys.readouterr().out, "listener-wrote-tensor") == 1
    assert len(others.told) == 4


@pytest.mark.parametrize("moment", ["before", "after", "gradient", "step_begin", "step_end", "cadence"])
def test_a_listener_that_raises_is_reported_once_and_dropped_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    class Failing(Observer):
        pass

    def fail(*anything: Any) -> None:
        raise RuntimeError("not today")

    failing, others = Failing(), Told()
    if moment == "cadence":
        failing.cadence = object()  # type: ignore[assignment]
    else:
        setattr(failing, moment, fail)
    alone = debugger(tmp_path / "alone")
    train(alone)
    ours = train(debugger(tmp_path / "heard", failing, others))
    PrecisionDebugger.reset()
    assert same(ours, train())
    assert dumped(tmp_path / "heard") == dumped(tmp_path / "alone")
    lines = [line for line in capsys.readouterr().out.splitlines() if "listener Failing" in line]
    assert len(lines) == 1
    assert "[ERROR]" in lines[0]
    assert len(others.told) > 50


def test_what_raises_in_the_program_is_reported_as_a_failure_and_goes_on(tmp_path: Path) -> None:
    failures: list[tuple[str, str]] = []

    class Failures(Observer):
        def failed(self, event: listeners.Failure) -> None:
            failures.append((event.name, type(event.error).__name__))

    made = debugger(tmp_path, Failures())
    with pytest.raises(RuntimeError, match="shapes"):
        train(made, forward=lambda model, x: model(x[:, :3]))
    assert failures == [
        ("Functional.linear.0.forward", "RuntimeError"),
        ("Module.first.Linear.forward.0", "RuntimeError"),
    ]


def test_what_is_no_listener_is_refused_in_a_sentence(tmp_path: Path) -> None:
    made = debugger(tmp_path)
    with raising(listeners_error(), "listener-of-wrong-class"):
        made.add(object())
    told = Told()
    made.add(told)
    with raising(listeners_error(), "listener-already-added"):
        made.add(told)
    with raising(listeners_error(), "wants-wrong", mistakes="'calls' is no kind; 'up' is no direction"):
        Wants(kinds=("calls",), directions=("up",))  # type: ignore[arg-type]
    made.remove(told)
    train(made)
    assert not told.told


def listeners_error() -> type[Exception]:
    from msprobe.errors import InvalidInputError

    return InvalidInputError


# ---------------------------------------------------------------- optimizers, collectives


def test_an_optimizer_step_is_reported_with_weights_gradients_and_moments(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Steps(Observer):
        wants = Wants(kinds=("optimizer",))

        def before(self, event: Any) -> None:
            self.weights = {name: p.weight.detach().clone() for name, p in event.parameters.items()}
            seen.append((event.name, event.order, {name: p.gradient.norm() for name, p in event.parameters.items()}))

        def after(self, event: Any, result: Any) -> None:
            moved = [name for name, p in event.parameters.items() if not torch.equal(p.weight, self.weights[name])]
            seen.append((event.name, sorted(moved), sorted(event.parameters["first.weight"].moments)))

    # One step is dumped as well, the other not.
    made = debugger(tmp_path, Steps(), step=[1])
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        with made.recording(model):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
    PrecisionDebugger.reset()
    first, done, second, done_again = seen
    assert first[:2] == ("Optimizer.Adam.0.forward", None)
    record = Dump(tmp_path / "step1" / "rank").data["Optimizer.Adam.0.forward"]
    assert second[:2] == ("Optimizer.Adam.0.forward", record["msprobe"]["order"])
    norms = {name: entry["grad"]["Norm"] for name, entry in record["input_kwargs"].items()}
    assert {name: norm.item() for name, norm in second[2].items()} == pytest.approx(norms)
    assert done[2] == done_again[2] == ["exp_avg", "exp_avg_sq", "step"]
    assert "last.weight" in done[1]


def test_what_the_program_saves_by_hand_is_reported(tmp_path: Path) -> None:
    saved: list[Any] = []

    class Saved(Observer):
        wants = Wants(kinds=("saved",), names=("loss",))

        def after(self, event: Any, result: Any) -> None:
            saved.append((event.name, event.value, result))

    made = debugger(tmp_path, Saved(), level="debug")
    made.start()
    made.save(1.5, "loss")
    made.save(2.5, "other")
    made.stop()
    made.step()
    assert saved == [("loss.0.debug", 1.5, 1.5)]


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_collectives_are_reported_when_issued_and_when_their_buffers_are_filled(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    told: list[tuple[str, str]] = []

    class Communication(Observer):
        wants = Wants(kinds=("collective",))

        def before(self, event: Any) -> None:
            told.append(("before", event.name))

        def after(self, event: Any, result: Any) -> None:
            told.append(("after", event.name))

    try:
        calls = Told(Wants(kinds=("call",)))
        made = debugger(tmp_path / "dump", Communication(), calls, step=[9], level="L1")
        with made.recording():
            tensor = torch.ones(3)
            torch.distributed.all_reduce(tensor)
            work = torch.distributed.all_reduce(tensor, async_op=True)
            assert work is not None
            told.append(("issued", ""))
            work.wait()
    finally:
        torch.distributed.destroy_process_group()
    one, two = (f"Distributed.all_reduce.{n}.forward" for n in (0, 1))
    assert told == [("before", one), ("after", one), ("before", two), ("issued", ""), ("after", two)]
    # What a collective calls to do its work takes no number, as in a dump.
    assert calls.told == ["Torch.ones.0.forward"]
    assert not (tmp_path / "dump").exists()


# ---------------------------------------------------------------- cost


def test_a_listener_for_three_modules_watches_three_modules_and_enters_no_mode(tmp_path: Path) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(10)])
    told = Told(Wants(kinds=("pass",), modules=("1.0", "2.0", "3.0")))
    made = debugger(tmp_path, told, step=[99])
    apply = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
    made.start(model)
    assert sorted(made.recorder.module_hooks.names.values()) == [f"Module.{i}.0.Linear" for i in (1, 2, 3)]
    assert torch._C._len_torch_function_stack() == 0
    assert torch.autograd.Function.apply.__func__.__code__ is apply  # type: ignore[attr-defined]
    model(torch.ones(2, 4)).sum().backward()
    made.stop()
    made.step()
    assert [name for name in told.told if "forward" in name] == [f"Module.{i}.0.Linear.forward.0" for i in (1, 2, 3)]
    assert [name for name in told.told if "backward" in name] == [
        f"Module.{i}.0.Linear.backward.0" for i in (3, 3, 2, 2, 1, 1)
    ]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not list(tmp_path.iterdir())


def test_calls_inside_of_chosen_modules_and_chosen_numbers_are_all_that_is_reported(tmp_path: Path) -> None:
    inside = Told(Wants(kinds=("call",), modules=("last",), directions=("forward",)))
    numbered = Told(Wants(kinds=("call",), names=("Functional.linear.1", "Torch.s*"), directions=("forward",)))
    train(debugger(tmp_path, inside, numbered, level="L1"), steps=1)
    assert inside.told == ["Functional.linear.1.forward"]
    assert numbered.told == ["Torch.stack.0.forward", "Functional.linear.1.forward"]


# ---------------------------------------------------------------- threads, recomputation


def test_two_threads_are_distinguished_and_calls_of_the_other_take_no_number(tmp_path: Path) -> None:
    told, model = Told(Wants(kinds=("call", "pass"), directions=("forward",))), Net()
    made = debugger(tmp_path, told)

    def forward(given: nn.Module, x: torch.Tensor) -> torch.Tensor:
        beside = threading.Thread(target=lambda: [model.first(torch.ones(2, 4)) for _ in range(20)])
        beside.start()
        result: torch.Tensor = given(x)
        beside.join()
        return result

    assert same(train(made, forward=forward, steps=1), train(forward=forward, steps=1))
    assert [name for name in told.told if name.startswith("Functional.linear")] == [
        f"Functional.linear.{n}.forward" for n in (0, 1)
    ]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_reported_as_such_under_the_names_of_the_dump(tmp_path: Path, reentrant: bool) -> None:
    class Recomputed(Told):
        def after(self, event: Any, result: Any) -> None:
            if event.is_recompute:
                again.append(event.name)

    again: list[str] = []

    def forward(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(model, x.requires_grad_(), use_reentrant=reentrant)
        return result

    made = debugger(tmp_path, Recomputed())
    assert same(train(made, forward=forward, steps=1), train(forward=forward, steps=1))
    PrecisionDebugger.reset()
    data = Dump(tmp_path / "step0" / "rank").data
    recorded = [name for name, entry in data.items() if entry.get("is_recompute") and "output" in entry]
    ended = {name for name in recorded if "error" not in data[name] and "stopped" not in data[name]}
    assert ended
    assert set(again) == ended


# ---------------------------------------------------------------- without a debugger


def test_listeners_without_a_debugger_need_no_configuration_and_write_nothing(
    tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    norms, everything = GradientNorms(), Everything()
    model = Net()
    with Listening(norms, everything) as listening:
        for _ in range(2):
            with listening.step(model):
                model(torch.ones(3, 4)).sum().backward()
    assert norms.norms.keys() == {0}
    assert norms.norms[0] > 0
    assert ("after", "Module.last.Linear.forward.0") in everything.told
    assert torch._C._len_torch_function_stack() == 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not list(tmp_path.iterdir())
    debugger(tmp_path / "dump")
    with raising(listeners_error(), "listening-beside-debugger"):
        Listening(norms)


def test_one_text_in_the_place_of_several_is_reported() -> None:
    with raising(listeners_error(), "wants-wrong", value="pass"):
        Wants(kinds="pass")  # type: ignore[arg-type]
    with raising(listeners_error(), "changes-wrong", names="Functional.gelu"):
        Changes(names="Functional.gelu")


@pytest.mark.parametrize(
    ("wants", "message"),
    [
        (Wants(modules=["frist"]), ("listener-modules-unmet", {"field": "modules", "patterns": "frist"})),
        (Wants(names=["Module.frist.*"]), ("listener-modules-unmet", {"field": "names", "patterns": "Module.frist.*"})),
        (Wants(names=["Functional.glue"]), ("listener-names-unmet", {"names": "Functional.glue"})),
        (Wants(modules=["first"]), None),
        (Wants(modules=["first", "frist"]), None),
        (Wants(names=["Module.first.*"]), None),
        (Wants(names=["Functional.gelu.9"]), None),
        (Wants(names=["Distributed.all_reduce"]), None),
        (Wants(kinds=["collective"], modules=["nowhere"]), None),
        (Wants(kinds=["parameter_gradient"], modules=["la*"]), None),
        (Wants(kinds=["accumulated_gradient"], names=["Module.first.*"]), None),
    ],
)
def test_patterns_that_match_nothing_are_reported_once(
    capsys: pytest.CaptureFixture[str], wants: Wants, message: tuple[str, dict[str, str]] | None
) -> None:
    model = Net()
    with Listening(Told(wants)) as listening:
        for _ in range(3):
            with listening.step(model):
                model(torch.ones(3, 4)).sum().backward()
        at_the_end = message is not None and message[0] == "listener-names-unmet"
        before = capsys.readouterr().out
    lines = [line for line in (before + capsys.readouterr().out).splitlines() if "listener Told" in line]
    assert len(lines) == (message is not None), lines
    if message is not None:
        name, found = message
        assert mentions(lines[0], name, listener="Told", **found)
        assert ("listener Told" in before) != at_the_end


def test_a_listener_that_was_never_on_is_not_blamed(capsys: pytest.CaptureFixture[str]) -> None:
    model = Net()
    told = Told(Wants(modules=["frist"]), Cadence(first=100))
    other = Told(Wants(names=["Functional.glue"]), Cadence(first=100))
    with Listening(told, other) as listening, listening.step(model):
        model(torch.ones(3, 4)).sum().backward()
    assert "listener Told" not in capsys.readouterr().out
