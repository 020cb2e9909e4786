"""Where the steps of a program begin and end that knows nothing of msprobe, and what its model is."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.torch_dumps import Dump, Recorder, Toy, record, toy_loss
from torch import nn

from msprobe.launcher import script_steps
from msprobe.launcher.script_steps import ScriptSteps

__all__ = ["record"]

optimizer_module = importlib.import_module("torch.optim.optimizer")


class Followed:
    """A recording that follows the program."""

    def __init__(self, record: Recorder) -> None:
        self.record = record
        self.steps: ScriptSteps | None = None

    def __call__(self, **settings: Any) -> None:
        self.steps = ScriptSteps(self.record(**settings))
        self.steps.attach()

    def end(self) -> Dump:
        if self.steps is not None:
            self.steps.detach()
        self.steps = None
        return self.record.end()


@pytest.fixture
def follow(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    # A program has its own optimizers only; those that other tests have left alive are not waited for.
    others = list(script_steps.all_optimizers())  # held, so that no new one takes the place of one of them
    known = {id(one) for one in others}
    every = script_steps.all_optimizers
    monkeypatch.setattr(script_steps, "all_optimizers", lambda: (one for one in every() if id(one) not in known))
    before = nn.Module.__call__
    followed = Followed(record)
    yield followed
    followed.end()
    assert nn.Module.__call__ is before
    assert not optimizer_module._global_optimizer_pre_hooks
    assert not optimizer_module._global_optimizer_post_hooks


def modules(dump: Dump, step: int) -> list[str]:
    return [n for n in dump.names(step, "Module.") if ".forward." in n]


TOY = ["Module.l1.Linear.forward.0", "Module.n.LayerNorm.forward.0", "Module.l2.Linear.forward.0"]


def test_a_step_ends_with_the_optimizer(follow: Followed) -> None:
    follow(level="mix")
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for seed in range(3):
        torch.tanh(torch.ones(2))  # before the model is called: not part of the step
        toy_loss(model, seed).backward()
        optimizer.step()
        optimizer.zero_grad()
    dump = follow.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        assert modules(dump, step) == TOY
        names = dump.names(step)
        assert "Module.l1.Linear.backward.0" in names
        assert [n for n in names if n.startswith("Optimizer.SGD")]
        assert not [n for n in names if "tanh" in n]


def test_accumulated_gradients_make_one_step(follow: Followed) -> None:
    follow(level="L0")
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for seed in range(4):
        toy_loss(model, seed).backward()
        if seed % 2:
            optimizer.step()
    dump = follow.end()
    assert dump.steps() == ["step0", "step1"]
    assert "Module.l1.Linear.forward.1" in dump.names(1)


def test_evaluation_begins_no_step(follow: Followed) -> None:
    follow(level="L1")
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.no_grad():
        toy_loss(model)
    toy_loss(model).backward()
    optimizer.step()
    with torch.inference_mode():
        toy_loss(model)
    dump = follow.end()
    assert dump.steps() == ["step0"]
    assert len(dump.names(0, "linear")) == 4


def test_a_transformation_of_the_data_is_no_model(follow: Followed) -> None:
    follow(level="L0")
    model, flatten = Toy(), nn.Flatten()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    flatten(torch.ones(2, 2))
    toy_loss(model).backward()
    optimizer.step()
    dump = follow.end()
    assert modules(dump, 0) == TOY


def test_models_that_join_later_are_watched_under_names_of_their_own(follow: Followed) -> None:
    follow(level="L0")
    model, other, loss_of = Toy(), nn.Sequential(nn.Linear(4, 2)), nn.MSELoss()
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
    for _ in range(2):
        loss_of(other(model(torch.ones(2, 8))), torch.zeros(2, 2)).backward()
        optimizer.step()
    dump = follow.end()
    assert modules(dump, 0) == modules(dump, 1)
    assert modules(dump, 0) == [
        *TOY,
        "Module.Sequential_1.0.Linear.forward.0",
        "Module.Sequential_1.root.Sequential.forward.0",
        "Module.MSELoss_2.root.MSELoss.forward.0",
    ]
    assert "Module.Sequential_1.0.Linear.parameters_grad" in dump.names(0)
    assert "Module.l1.Linear.backward.0" in dump.names(0)


def test_an_optimizer_that_never_steps_is_not_waited_for(follow: Followed) -> None:
    follow(level="L0")
    model, idle = Toy(), nn.Linear(2, 2)
    used = torch.optim.SGD(model.parameters(), 0.1)
    unused = torch.optim.SGD(idle.parameters(), 0.1)
    for seed in range(4):
        toy_loss(model, seed).backward()
        used.step()
    dump = follow.end()
    assert unused is not None
    assert dump.steps() == ["step0", "step1", "step2"]
    assert "Module.l1.Linear.forward.1" in dump.names(0)
    assert "Module.l1.Linear.forward.1" not in dump.names(1)


@pytest.mark.parametrize(("kind", "more"), [(torch.optim.LBFGS, {"max_iter": 4}), (torch.optim.AdamW, {})])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_step_with_a_closure_is_recorded_whole(
    follow: Followed, kind: Any, more: dict[str, Any], by_name: bool
) -> None:
    """As Lightning steps: forward and backward run inside of the optimizer's step."""

    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Toy()
        optimizer = kind(model.parameters(), lr=0.1, **more)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = toy_loss(model)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure=closure) if by_name else optimizer.step(closure)
        return [p.detach().clone() for p in model.parameters()]

    bare = train()
    follow(level="mix")
    followed = train()
    dump = follow.end()
    assert all(torch.equal(a, b) for a, b in zip(bare, followed, strict=True))
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        entry = f"Optimizer.{kind.__name__}.0.forward"
        record = dump.data(step)[entry]
        assert [n for n in dump.names(step) if n.startswith("Optimizer.")] == [entry]
        assert record["closure"] is True
        weight = record["input_kwargs"]["l1.weight"]
        assert weight["grad"]["Norm"] > 0
        # Before the step is what the first forward pass of the step used, and what the step before has left.
        first = dump.data(step)["Functional.linear.0.forward"]
        assert weight["weight"]["Norm"] == first["input_args"][1]["Norm"]
        if step:
            before = dump.data(step - 1)[entry]["output"][0]["l1.weight"]["weight"]
            assert before["Norm"] == weight["weight"]["Norm"]
        parents = dump.file(step, "construct.json")
        # The loss is the training's, the update the optimizer's.
        assert parents["Tensor.sum.0.forward"] is None
        assert parents[entry] == "optimizer"
        assert "optimizer" in [parents[n] for n in parents if n != entry]
        stacks = [lines for entries, lines in dump.file(step, "stack.json").values() if entry in entries]
        assert not [line for line in stacks[0] if "capture/torch/script_steps" in line]


def test_a_step_that_the_scaler_skips_counts(follow: Followed) -> None:
    follow(level="L0")
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for i in range(3):
        loss = toy_loss(model) * (float("inf") if i == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    dump = follow.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        assert modules(dump, step) == TOY


def passes_of(dump: Dump) -> list[int]:
    """How many passes of the optimizers' models each step has."""
    return [len([n for n in modules(dump, i) if "Linear" in n]) for i in range(len(dump.steps()))]


class AcceleratedLike(torch.optim.Optimizer):
    """Passes everything on to another optimizer and is never initialised, so torch does not hook its steps."""

    def __init__(self, inner: torch.optim.Optimizer, with_copies: bool) -> None:
        self.optimizer = inner
        self.copies = [nn.Parameter(torch.zeros(2))] if with_copies else None

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.optimizer.param_groups if self.copies is None else [{"params": self.copies}]

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


@pytest.mark.parametrize("with_copies", [False, True])
def test_a_wrapped_optimizer_counts_once_from_the_first_step_on(follow: Followed, with_copies: bool) -> None:
    follow(level="L0")
    model = nn.Linear(2, 2)
    optimizer = AcceleratedLike(torch.optim.SGD(model.parameters(), 0.1), with_copies)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert passes_of(follow.end()) == [1, 1, 1]


def test_a_second_optimizer_of_the_same_parameters_is_not_waited_for(follow: Followed) -> None:
    """As where a training begins with Adam and goes on with LBFGS."""
    follow(level="L0")
    model = nn.Linear(2, 2)
    first, second = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    frozen = torch.optim.SGD([torch.zeros(2)], 0.1)
    for optimizer in (first, first, first, second, second, first):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert frozen is not None
    assert passes_of(follow.end()) == [1] * 6


def test_one_training_after_the_other(follow: Followed) -> None:
    """The first model and its optimizer are still there, and not waited for."""
    follow(level="L0")
    kept = []
    for _ in range(2):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kept.append((model, optimizer))
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    dump = follow.end()
    assert passes_of(dump) == [1] * 6


def test_an_optimizer_that_steps_no_more_is_not_waited_for(follow: Followed) -> None:
    follow(level="L0")
    models = [nn.Linear(2, 2) for _ in range(2)]
    both = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    for i in range(6):
        models[1](models[0](torch.ones(1, 2))).sum().backward()
        for optimizer in both if i < 2 else both[:1]:
            optimizer.step()
    dump = follow.end()
    # One overtakes the other once; then each of its steps ends one.
    assert passes_of(dump) == [2, 2, 4, 2, 2]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_an_evaluation_before_the_training_is_no_step_of_it(follow: Followed, task: str) -> None:
    """The optimizer is made later, as Trainers do."""

    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Toy()
        with torch.no_grad():
            torch.tanh(toy_loss(model))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for seed in range(2):
            toy_loss(model, seed).backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in model.parameters()]

    bare = train()
    follow(level="mix", task=task)
    followed = train()
    dump = follow.end()
    assert all(torch.equal(a, b) for a, b in zip(bare, followed, strict=True))
    assert dump.steps() == ["step0", "step1"]
    for step in range(2):
        assert modules(dump, step) == TOY
        assert not [n for n in dump.names(step) if "tanh" in n]
        assert dump.file(step)["msprobe"]["complete"] is True
    folder = dump.folder / "step0" / "rank"
    assert not list(folder.rglob("*tanh*"))
    assert bool([*folder.rglob("*.pt")]) is (task == "tensor")


def test_a_model_that_is_evaluated_before_it_is_wrapped_has_the_names_of_the_training(follow: Followed) -> None:
    follow(level="L0")
    model = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model(torch.ones(1, 2))
    wrapped = nn.Sequential(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
    wrapped(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert modules(follow.end(), 0) == ["Module.0.0.Linear.forward.0", "Module.0.Sequential.forward.0"]


@pytest.mark.parametrize("kind", ["whole", "in place", "function"])
def test_compiled_programs(follow: Followed, kind: str) -> None:
    import torch._dynamo
    from torch._dynamo.utils import counters

    def run() -> tuple[dict[str, int], list[torch.Tensor]]:
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        model = Toy()
        called: Any = model
        if kind == "whole":
            called = torch.compile(model, backend="eager")
        elif kind == "in place":
            model.compile(backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def loss_of(seed: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = called(torch.ones(2, 8) * seed).square().sum()
            return result

        if kind == "function":
            loss_of = torch.compile(loss_of, backend="eager")
        for seed in range(3):
            loss_of(torch.tensor(float(seed))).backward()
            optimizer.step()
            optimizer.zero_grad()
        return dict(counters["stats"]), [p.detach() for p in model.parameters()]

    bare = run()
    follow(level="mix")
    followed = run()
    dump = follow.end()
    assert bare[0] == followed[0]
    assert all(torch.equal(a, b) for a, b in zip(bare[1], followed[1], strict=True))
    assert dump.steps() == ["step0", "step1", "step2"]
    name = "Compiled.loss_of.0.forward" if kind == "function" else "Module.root.Toy.forward.0"
    for step in range(3):
        assert name in dump.names(step)
