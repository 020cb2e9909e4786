"""Steps of MindSpore's optimizers as listeners are told of them: weights, gradients and moments, before and after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mindspore = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import mint, nn, ops  # noqa: E402

from msprobe.listeners import Observer, Wants  # noqa: E402
from msprobe.mindspore import Listening, PrecisionDebugger  # noqa: E402


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Dense(3, 4, has_bias=False)
        self.head = nn.Dense(4, 2, has_bias=False)

    def construct(self, x: Any) -> Any:
        return self.head(ops.tanh(self.body(x)))


class Steps(Observer):
    """Keeps copies of what an optimizer has before and after its steps; computes, and draws random numbers."""

    wants = Wants(kinds=("optimizer",))

    def __init__(self) -> None:
        self.moments: list[tuple[str, str]] = []
        self.before_it: list[dict[str, Any]] = []
        self.after_it: list[dict[str, Any]] = []
        self.orders: list[int | None] = []

    def before(self, event: Any) -> None:
        self.orders.append(event.order)
        self.moments.append(("before", event.name))
        self.before_it.append(copied(event))

    def after(self, event: Any, result: Any) -> None:
        assert "test_relayed_steps.py:" in event.source
        self.moments.append(("after", event.name))
        self.after_it.append(copied(event))

    def failed(self, event: Any) -> None:
        self.moments.append(("failed", f"{event.event.name}: {event.error}"))


def copied(event: Any) -> dict[str, Any]:
    np.random.rand()
    found: dict[str, Any] = {}
    for name, one in event.parameters.items():
        (one.gradient * one.weight).sum()
        found[name] = {
            "weight": one.weight.asnumpy().copy(),
            "gradient": one.gradient.asnumpy().copy(),
            **{word: value.asnumpy().copy() for word, value in one.moments.items()},
        }
    return found


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    yield
    PrecisionDebugger.reset()


def adam(weights: Any) -> Any:
    return nn.Adam(weights, learning_rate=0.01)


def momentum(weights: Any) -> Any:
    return nn.SGD(weights, learning_rate=0.1, momentum=0.9)


def mint_sgd(weights: Any) -> Any:
    return mint.optim.SGD(weights, lr=0.1, momentum=0.9)


def mint_adam(weights: Any) -> Any:
    return mint.optim.Adam(weights, lr=0.01)


def experimental_adam(weights: Any) -> Any:
    return mindspore.experimental.optim.Adam(weights, lr=0.01)


def train(make: Callable[[Any], Any], around: Any = None, steps: int = 2) -> tuple[list[Any], list[Any]]:
    """What must be the same with a listener: losses and weights; and the gradients of each step."""
    mindspore.set_seed(3)
    np.random.seed(3)
    model = Model()
    optimizer = make(model.trainable_params())
    gradients = mindspore.value_and_grad(lambda x: ops.square(model(x) - 1).sum(), None, model.trainable_params())
    found: list[Any] = [[p.asnumpy().copy() for p in model.trainable_params()]]
    seen: list[Any] = []
    for number in range(steps):
        if around is not None:
            around.start(model)
        _, grads = gradients(mindspore.Tensor(np.full((2, 3), 1.0 + number, np.float32)))
        optimizer(grads)
        if around is not None:
            around.stop()
            (around.next_step if isinstance(around, Listening) else around.step)()
        found.append([p.asnumpy().copy() for p in model.trainable_params()])
        seen.append([gradient.asnumpy() for gradient in grads])
    return found, seen


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize(
    ("make", "name", "moments"),
    [
        (adam, "Adam", {"moment1", "moment2"}),
        (momentum, "SGD", {"accum", "stat"}),
        (mint_sgd, "SGD", {"momentum_buf"}),
        (mint_adam, "Adam", {"exp_avg", "exp_avg_sq"}),
        (experimental_adam, "Adam", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    ],
    ids=["nn.Adam", "nn.SGD", "mint.optim.SGD", "mint.optim.Adam", "experimental.optim.Adam"],
)
def test_what_is_reported_is_what_the_step_works_on(make: Any, name: str, moments: set[str]) -> None:
    steps = Steps()
    weights, gradients = train(make, Listening(steps))
    assert same(weights, train(make)[0])
    assert steps.moments == [
        (moment, f"Optimizer.{name}.0.forward") for _ in range(2) for moment in ("before", "after")
    ]
    assert steps.orders == [None, None]
    for step in range(2):
        before, after = steps.before_it[step], steps.after_it[step]
        assert list(before) == list(after) == ["body.weight", "head.weight"]
        assert same([[one["weight"] for one in before.values()]], [weights[step]])
        assert same([[one["weight"] for one in after.values()]], [weights[step + 1]])
        assert same([[one["gradient"] for one in before.values()]], [gradients[step]])
        for parameter, one in before.items():
            assert set(one) == {"weight", "gradient", *moments}
            assert any(not np.array_equal(one[word], after[parameter][word]) for word in moments)


def test_beside_a_dump_the_listener_gets_what_the_dump_says(tmp_path: Path) -> None:
    for folder, listener in (("heard", Steps()), ("alone", None)):
        PrecisionDebugger.reset()
        made = PrecisionDebugger(dump_path=str(tmp_path / folder), task="statistics", level="mix")
        if listener is not None:
            made.add(listener)
        train(adam, made)
        PrecisionDebugger.reset()
        if listener is None:
            continue
        for step in range(2):
            data = json.loads((tmp_path / folder / f"step{step}" / "rank" / "dump.json").read_text())["data"]
            record = data["Optimizer.Adam.0.forward"]
            assert listener.orders[step] == record["msprobe"]["order"]
            for name, one in listener.before_it[step].items():
                assert record["input_kwargs"][name]["grad"]["Max"] == one["gradient"].max()
                assert record["input_kwargs"][name]["moment1"]["Max"] == one["moment1"].max()
            for name, one in listener.after_it[step].items():
                assert record["output"][0][name]["weight"]["Max"] == one["weight"].max()
    for name in ("dump.json", "construct.json"):
        heard, alone = (
            json.loads((tmp_path / folder / "step1" / "rank" / name).read_text()) for folder in ("heard", "alone")
        )
        heard.pop("process", None), alone.pop("process", None)
        assert heard == alone


@pytest.mark.parametrize("settings", [{"optimizer": False}, {"data_mode": ["backward"]}, {"step": [9]}])
def test_steps_that_are_not_dumped_are_reported_all_the_same(tmp_path: Path, settings: dict[str, Any]) -> None:
    steps = Steps()
    made = PrecisionDebugger(dump_path=str(tmp_path), task="statistics", level="L1", **settings)
    made.add(steps)
    train(adam, made, steps=1)
    PrecisionDebugger.reset()
    assert steps.moments == [("before", "Optimizer.Adam.0.forward"), ("after", "Optimizer.Adam.0.forward")]
    assert not any("Optimizer.Adam" in file.read_text() for file in tmp_path.rglob("dump.json"))


def test_each_of_several_optimizers_says_its_own_parameters_and_what_raises_is_reported() -> None:
    class Failing(nn.Adam):
        def construct(self, gradients: Any) -> Any:
            raise ArithmeticError("not today")

    model, steps = Model(), Steps()
    first = nn.SGD(model.body.trainable_params(), 0.1)
    second = nn.Adam(model.head.trainable_params(), 0.1)
    third = Failing(model.head.trainable_params(), 0.1)
    gradients = mindspore.value_and_grad(lambda x: model(x).sum(), None, model.trainable_params())
    with Listening(steps) as listening, listening.step(model):
        _, (of_body, of_head) = gradients(mindspore.Tensor(np.ones((2, 3), np.float32)))
        first((of_body,))
        second((of_head,))
        with pytest.raises(ArithmeticError):
            third((of_head,))
        first((of_body,))
    names = [name for moment, name in steps.moments if moment == "before"]
    assert names == [f"Optimizer.{one}.forward" for one in ("SGD.0", "Adam.0", "Failing.0", "SGD.1")]
    assert ("failed", "Optimizer.Failing.0.forward: not today") in steps.moments
    assert [list(found) for found in steps.after_it] == [["body.weight"], ["head.weight"], ["body.weight"]]


def test_optimizers_are_as_they_were_where_nobody_wants_their_steps() -> None:
    call = nn.Optimizer.__call__
    for wants, is_replaced in ((Wants(kinds=("pass",)), False), (Wants(kinds=("optimizer",)), True)):
        steps = Steps()
        steps.wants = wants
        with Listening(steps) as listening:
            listening.start(Model())
            assert (nn.Optimizer.__call__ is not call) == is_replaced
            listening.stop()
            assert nn.Optimizer.__call__ is call
