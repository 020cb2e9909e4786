"""What a program drops in the middle of a step is gone, as it is without us; a step may stay open for long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.torch_dumps import Dump, Recorder, record
from torch import Tensor, nn

from msprobe.capture.step_on import StepOn
from msprobe.capture.torch.modules.module_calls import watch_module
from msprobe.launcher.script_steps import ScriptSteps
from msprobe.pytorch import PrecisionDebugger

__all__ = ["record"]


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What is dropped must go at once: the collector may come much later."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    PrecisionDebugger.reset()


class Net(nn.Module):
    """Its ``==`` raises; it has parameters and buffers of its own and inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.zeros(4))

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = object.__hash__

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.scale + self.shift  # type: ignore[no-any-return]


References = dict[str, Any]


def forward(references: References) -> None:
    net = Net()
    y = net(torch.ones(3, 4))
    references.update(net=weakref.ref(net), y=weakref.ref(y), inside=weakref.ref(net.inner[0]))
    references.update(
        weight=weakref.ref(net.inner[0].weight), own=weakref.ref(net.scale), buffer=weakref.ref(net.shift)
    )


def backward(references: References) -> None:
    net = Net()
    net(torch.ones(3, 4)).sum().backward()
    references.update(net=weakref.ref(net), weight=weakref.ref(net.inner[0].weight), own=weakref.ref(net.scale))


def evaluation(references: References) -> None:
    net = Net()
    references.update(net=weakref.ref(net), weight=weakref.ref(net.inner[0].weight))
    with torch.no_grad():
        net(torch.ones(3, 4))


def raises(references: References) -> None:
    net = Net()
    references.update(net=weakref.ref(net), weight=weakref.ref(net.inner[0].weight))
    with pytest.raises(RuntimeError):
        net(torch.ones(3, 5))


def hooked(references: References) -> None:
    net = Net()
    net.register_forward_pre_hook(lambda module, args: None)
    net.inner.register_full_backward_hook(lambda *given: None)
    net(torch.ones(3, 4, requires_grad=True)).sum().backward()
    references.update(net=weakref.ref(net), weight=weakref.ref(net.inner[0].weight))


def direct(references: References) -> None:
    net = Net()
    net.forward(torch.ones(3, 4)).sum().backward()
    references.update(net=weakref.ref(net), weight=weakref.ref(net.inner[0].weight))


def compiled(references: References) -> None:
    net = Net()
    run: Any = torch.compile(net, backend="eager")
    run(torch.ones(3, 4)).sum().backward()
    references.update(net=weakref.ref(net), run=weakref.ref(run), weight=weakref.ref(net.inner[0].weight))


def compiled_in_place(references: References) -> None:
    net = Net()
    net.compile(backend="eager")
    net(torch.ones(3, 4)).sum().backward()
    references.update(net=weakref.ref(net), weight=weakref.ref(net.inner[0].weight))


def optimized(references: References) -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    references.update(net=weakref.ref(net), optimizer=weakref.ref(optimizer), scheduler=weakref.ref(scheduler))


def with_closure(references: References) -> None:
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(torch.ones(3, 4)).sum()
        loss.backward()
        return loss

    references.update(net=weakref.ref(net), optimizer=weakref.ref(optimizer), closure=weakref.ref(closure))
    optimizer.step(closure)


def scaled(references: References) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(net(torch.ones(3, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    references.update(net=weakref.ref(net), optimizer=weakref.ref(optimizer), scaler=weakref.ref(scaler))


def loaded(references: References) -> None:
    loader = torch.utils.data.DataLoader(list(torch.ones(6, 4)), batch_size=3)
    net = Net()
    for batch in loader:
        net(batch)
        references["batch"] = weakref.ref(batch)
    references.update(net=weakref.ref(net), loader=weakref.ref(loader))


USES = (
    *(forward, backward, evaluation, raises, hooked, direct),
    *(optimized, with_closure, scaled, loaded),
)


def kept(use: Callable[[References], None]) -> list[str]:
    references: References = {}
    use(references)
    return [name for name, reference in references.items() if reference() is not None]


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "L2"])
def test_a_script_drops_what_it_has_made_in_an_open_step(record: Recorder, level: str) -> None:
    for use in USES:
        kept(use)  # what torch sets up when something is used first
    steps = ScriptSteps(record(level=level), step_on=StepOn.parse("optimizer:99"))
    steps.attach()
    try:
        nn.Linear(4, 4)(torch.ones(3, 4)).sum().backward()
        found = {use.__name__: kept(use) for use in USES}
    finally:
        steps.detach()
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_compiled_models_are_dropped_as_without_us(record: Recorder, level: str) -> None:
    def kept_after(use: Callable[[References], None]) -> list[str]:
        references: References = {}
        use(references)
        gc.collect()  # torch.compile's own cycles
        return [name for name, reference in references.items() if reference() is not None]

    steps = ScriptSteps(record(level=level), step_on=StepOn.parse("optimizer:99"))
    steps.attach()
    try:
        nn.Linear(4, 4)(torch.ones(3, 4)).sum().backward()
        assert [kept_after(compiled), kept_after(compiled_in_place)] == [[], []]
    finally:
        steps.detach()


def test_of_the_models_given_to_start_one_may_go_and_the_others_keep_their_names(record: Recorder) -> None:
    debugger = record(level="mix")
    models = [nn.Sequential(nn.Linear(4, 4)) for _ in range(3)]
    debugger.start(models)
    for model in models:
        model(torch.ones(2, 4)).sum().backward()
    gone = weakref.ref(models.pop(1))
    del model
    assert gone() is None
    # The step ends while recording goes on.
    debugger.step()
    optimizer = torch.optim.SGD(models[1].parameters(), lr=0.1)
    models[1](torch.ones(2, 4)).sum().backward()
    optimizer.step()
    debugger.stop()
    dump: Dump = record.end()
    names = dump.names(1)
    assert "Module.2.0.Linear.forward.0" in names
    (step,) = [name for name in names if name.startswith("Optimizer.")]
    assert set(dump.data(1)[step]["input_kwargs"]) == {"2.0.weight", "2.0.bias"}


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_gradients_of_a_model_that_is_gone_before_its_backward_pass_are_recorded(record: Recorder, level: str) -> None:
    debugger = record(level=level)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    debugger.start(model)
    loss = model(torch.ones(2, 4)).sum()
    gone = weakref.ref(model)
    del model
    assert gone() is None
    loss.backward()
    debugger.stop()
    entry = record.end().data()["Module.0.Linear.parameters_grad"]
    assert [gradient["shape"] for (gradient,) in entry.values()] == [[4, 4], [4]]


@pytest.mark.parametrize("drops", ["first", "second"])
def test_a_parameter_of_two_modules_is_followed_until_both_are_gone(record: Recorder, drops: str) -> None:
    debugger = record(level="L0")
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = nn.ModuleDict({"first": first, "second": second})
    debugger.start(model)
    for layer in (first, second):
        layer(torch.ones(2, 4)).sum().backward()
    weight = weakref.ref(first.weight)
    remains = second if drops == "first" else first
    del model[drops], layer, first, second
    remains(torch.ones(2, 4)).sum().backward()
    assert weight() is not None
    del remains, model
    assert weight() is None
    debugger.stop()
    data = record.end().data()
    name = "second" if drops == "first" else "first"
    passes = [entry for entry in data if entry.startswith(f"Module.{name}.Linear.parameters_grad.")]
    assert passes == [f"Module.{name}.Linear.parameters_grad.{n}" for n in range(2 if drops == "first" else 3)]


class Seen:
    def __init__(self) -> None:
        self.entered: list[str] = []

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.entered.append(type(module).__name__)

    def leave(self, module: nn.Module, result: Any, error: BaseException | None) -> None:
        pass


def test_who_gets_the_id_of_a_module_that_is_gone_is_not_watched() -> None:
    seen, before = Seen(), nn.Module.__dict__["_call_impl"].__code__
    watched = []
    for _ in range(20):
        module: nn.Module = nn.Identity()
        watched.append(watch_module(module, seen))
        del module
        other = nn.ReLU()
        other(torch.ones(1))
    assert seen.entered == []
    kept_alive = nn.Tanh()
    watched.append(watch_module(kept_alive, seen))
    kept_alive(torch.ones(1))
    for one in watched:
        one.remove()
    kept_alive(torch.ones(1))
    assert seen.entered == ["Tanh"]
    assert nn.Module.__dict__["_call_impl"].__code__ is before
