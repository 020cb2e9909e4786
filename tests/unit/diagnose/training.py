"""A small training, calculated in numpy and written down call by call: what is planted in it has its true effect.

The model: an embedding; blocks ``x + 0.5 * dropout(tanh(fc(x)))``; a head; the mean squared error. The optimizer is
plain gradient descent. A call has a *site*, a name that does not change when others come and go: ``blocks.0.tanh``,
``head.linear``, ``loss``; that of its backward call ends in ``.backward``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from unit.diagnose.dumps import Recording, Value, drawn, rounded

Change = Callable[[np.ndarray], np.ndarray]
WIDTH, WORDS, BATCH = 8, 12, 6


@dataclass(frozen=True)
class Plan:
    """What one rank of a run does; everything that is planted is planted here.

    ``results``: site (or ``site.backward``, for the gradient of the first argument) -> what becomes of the result.
    ``arguments``: site -> place -> another plain argument. ``before``: site -> what is done with the first tensor
    before the call (``step``: with each gradient before the step of the optimizer). ``left_out``: sites of calls that
    are not made. ``renamed``: site -> API. ``again``: site -> what becomes of the result when it is recomputed.
    ``weights``, ``data``, ``parameter_gradients`` (None: none comes), ``at_optimizer``, ``updated``: what becomes of a
    parameter, the batch, a gradient, a gradient on its way, a new weight. ``root``: what is done with the loss, from
    which the backward pass begins. ``called``: what becomes of the names of modules and parameters; ``around``: path of
    a module that the model stands in.
    """

    results: Mapping[str, Change] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    before: Mapping[str, Callable[[Recording, Value], Value]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    again: Mapping[str, Change] = field(default_factory=dict)
    weights: Mapping[str, Change] = field(default_factory=dict)
    data: Change | None = None
    parameter_gradients: Mapping[str, Change | None] = field(default_factory=dict)
    at_optimizer: Mapping[str, Change | None] = field(default_factory=dict)
    root: Callable[[Recording, Value], Value] | None = None
    updated: Mapping[str, Change] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, Change] | None = None
    without: frozenset[str] = frozenset()
    optimizer: str = "SGD"
    blocks: int = 2
    tied: bool = False
    recompute: bool = False
    prefix: str = ""
    wrapper: str | None = None
    called: Callable[[str], str] = str
    around: str | None = None
    dtype: str = "float32"
    noise: float = 0.0
    first_step: int = 0
    steps: int = 1
    level: str = "mix"
    digests: bool = True
    values: bool = False
    ours: bool = True
    edit: Callable[[Any], Any] | None = None


class Rank:
    """One rank of a run."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, self.number = plan, number
        shapes = {"embedding.weight": (WORDS, WIDTH), "head.weight": (WORDS, WIDTH), "head.bias": (WORDS,)}
        for block in range(plan.blocks):
            shapes |= {f"blocks.{block}.fc.weight": (WIDTH, WIDTH), f"blocks.{block}.fc.bias": (WIDTH,)}
        if plan.tied:
            del shapes["head.weight"]
        self.weights: dict[str, np.ndarray] = {}
        for name, shape in shapes.items():
            start = rounded(drawn(name, *shape) / 3, plan.dtype)
            self.weights[name] = plan.weights.get(name, np.asarray)(start)

    def begin(self, step: int) -> None:
        """Forward and backward pass of a step."""
        plan = self.plan
        self.rec = Recording(digests=plan.digests, values=plan.values, ours=plan.ours)
        self.gradients: dict[str, np.ndarray] = {}
        tokens = (np.abs(drawn(f"tokens {step} {self.number}", BATCH)) * 5).astype(np.int64) % WORDS
        if plan.data is not None and step == plan.first_step:
            tokens = plan.data(tokens)
        aim = Value(rounded(drawn(f"aim {step} {self.number}", BATCH, WORDS), plan.dtype), dtype=plan.dtype)
        with ExitStack() as model:
            if plan.around is not None:
                model.enter_context(self.rec.module(plan.around, "Net", [Value(tokens, dtype="int64")]))(aim)
            parts, y = self._forward(tokens)
        loss, mean = self._do("loss", "Functional.mse_loss", [y, aim], lambda a, b: np.square(a - b).mean())
        if plan.root is not None:
            root = plan.root(self.rec, loss)
            self.rec.call("Torch.ones_like", [root], root.of(np.ones((), np.float32)))
        self._backward(mean, y, aim, *parts, tokens)

    def _forward(self, tokens: np.ndarray) -> tuple[tuple[Any, ...], Value]:
        plan = self.plan
        passes: list[Any] = []
        weight = self._weight("embedding.weight")
        with self.rec.module(
            self._path("embedding"), "Embedding", [Value(tokens, dtype="int64")], {"weight": weight}
        ) as end:
            x, embed = self._do("embedding", "Functional.embedding", [Value(tokens, dtype="int64"), weight], _embedding)
            name_of_embedding = end(x)
        for block in range(plan.blocks):
            start = x
            x, calls, names = self._block(block, start)
            passes.append((block, start, calls, names))
        head = "embedding.weight" if plan.tied else "head.weight"
        given = [x, self._weight(head), self._weight("head.bias")]
        with self.rec.module(self._path("head"), "Linear", [x], {"weight": given[1], "bias": given[2]}) as end:
            y, linear = self._do("head.linear", "Functional.linear", given, _linear)
            name_of_head = end(y)
        return (linear, name_of_head, passes, embed, name_of_embedding), y

    def _block(self, block: int, x: Value, again: bool = False) -> tuple[Value, dict[str, Any], list[str]]:
        site = f"blocks.{block}"
        weight, bias = self._weight(f"{site}.fc.weight"), self._weight(f"{site}.fc.bias")
        with self.rec.module(self._path(site), "Block", [x], again=again) as end:
            if self.plan.wrapper == site:
                with self.rec.module(self._path(f"{site}.inner"), "Inner", [x], again=again) as inner_end:
                    y, calls, names = self._inside(site, x, weight, bias, again)
                    inner_end(y)
            else:
                y, calls, names = self._inside(site, x, weight, bias, again)
            return y, calls, [*names, end(y)]

    def _inside(self, site: str, x: Value, weight: Value, bias: Value, again: bool) -> Any:
        calls: dict[str, Any] = {}
        parameters = {"weight": weight, "bias": bias}
        with self.rec.module(self._path(f"{site}.fc"), "Linear", [x], parameters, again=again) as end:
            h, calls["linear"] = self._do(f"{site}.linear", "Functional.linear", [x, weight, bias], _linear, again)
            name = end(h)
        t, calls["tanh"] = self._do(f"{site}.tanh", "Torch.tanh", [h], np.tanh, again)
        mask = (drawn(f"mask {site}", BATCH, WIDTH) > -1).astype(np.float32)
        d, calls["dropout"] = self._do(
            f"{site}.dropout", "Functional.dropout", [t, 0.1, True], lambda a, p, on: a * mask / (1 - p), again
        )
        m, calls["mul"] = self._do(f"{site}.mul", "Tensor.__mul__", [d, 0.5], lambda a, factor: a * factor, again)
        y, calls["add"] = self._do(f"{site}.add", "Tensor.__add__", [x, m], np.add, again)
        calls["values"] = (t.array, mask)
        return y, calls, [name]

    def _backward(
        self, mean: Any, y: Value, aim: Value, linear: Any, name_of_head: str, passes: list[Any], embed: Any,
        name_of_embedding: str, tokens: np.ndarray,
    ) -> None:  # fmt: skip
        plan, rec = self.plan, self.rec
        g = self._back("loss", mean, np.ones((), np.float32), 2 * (y.array - aim.array) / y.array.size)
        g_head = g
        head = "embedding.weight" if plan.tied else "head.weight"
        g = self._back_linear("head", linear, g, head, "head.bias", linear[1])
        rec.module_backward(name_of_head, [self._value(g_head)], [self._value(g)])
        for block, start, calls, names in reversed(passes):
            site = f"blocks.{block}"
            if plan.recompute:
                _, calls, names = self._block(block, start, again=True)
            t, mask = calls["values"]
            arriving = g
            straight = self._back(f"{site}.add", calls["add"], g, g, g)
            factor = calls["mul"][1][1] if calls["mul"] else 1.0
            inner = self._back(f"{site}.mul", calls["mul"], straight, straight * np.float32(factor))
            inner = self._back(f"{site}.dropout", calls["dropout"], inner, inner * mask / np.float32(0.9))
            inner = self._back(f"{site}.tanh", calls["tanh"], inner, inner * (1 - np.square(t)))
            before = inner
            inner = self._back_linear(
                f"{site}", calls["linear"], inner, f"{site}.fc.weight", f"{site}.fc.bias", calls["linear"][1]
            )
            rec.module_backward(names[0], [self._value(before)], [self._value(inner)])
            g = self._round(straight + inner)
            rec.module_backward(names[-1], [self._value(arriving)], [self._value(g)])
        into = np.zeros((WORDS, WIDTH), np.float32)
        np.add.at(into, tokens, g)
        into = self._back("embedding", embed, g, into, slot="input.1")
        rec.module_backward(name_of_embedding, [self._value(g)], [])
        self._add_gradient("embedding.weight", into)
        for name in self.weights:
            change = plan.parameter_gradients.get(name, np.asarray)
            path, _, own = name.rpartition(".")
            gradient = None if change is None else self._value(change(self.gradients[name]))
            self.gradients[name] = None if gradient is None else gradient.array
            rec.parameter_gradient(self._path(path), "Embedding" if path == "embedding" else "Linear", own, gradient)
            if plan.tied and name == "embedding.weight":
                rec.parameter_gradient(self._path("head"), "Linear", "weight", gradient)

    def exchange(self, others: list[Rank]) -> None:
        """Add up the gradients of all ranks."""
        self.summed = dict(self.gradients)
        for name in self.gradients if len(others) > 1 else ():
            if f"reduce {name}" in self.plan.left_out:
                continue
            whole = np.sum([one.gradients[name] for one in others], axis=0, dtype=np.float32)
            whole = self.plan.results.get(f"reduce {name}", np.asarray)(whole)
            group = {"type": "torch.ProcessGroup", "group_ranks": [one.number for one in others], "group_id": "g"}
            given, out = self._value(self.gradients[name]), self._value(whole)
            self.rec.call("Distributed.all_reduce", [given], out, process_group=group)
            self.summed[name] = out.array

    def update(self) -> None:
        """The step of the optimizer."""
        plan = self.plan
        settings = {"lr": 0.1, "momentum": 0, "weight_decay": 0, **plan.settings}
        if "step" in plan.before:
            self.summed = {name: plan.before["step"](self.rec, self._value(g)).array for name, g in self.summed.items()}
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for name, weight in self.weights.items():
            if name in plan.without:
                continue
            change = plan.at_optimizer.get(name, np.asarray)
            gradient = self.summed[name]
            gradient = None if change is None or gradient is None else change(gradient)
            before[name] = {
                "weight": self._value(weight, True),
                "grad": None if gradient is None else self._value(gradient),
            }
            if plan.states is not None:
                state = plan.states.get(name, np.asarray)(weight * weight)
                before[name]["exp_avg_sq"] = self._value(state)
            step = 0 if gradient is None else np.float32(settings["lr"]) * gradient
            self.weights[name] = plan.updated.get(name, np.asarray)(rounded(weight - step, plan.dtype))
            after[name] = {"weight": self._value(self.weights[name], True)}
        named = [{plan.called(name): fields for name, fields in side.items()} for side in (before, after)]
        self.rec.optimizer(plan.optimizer, *named, settings)

    # -- one call

    def _do(self, site: str, api: str, given: list[Any], compute: Callable[..., Any], again: bool = False) -> Any:
        plan = self.plan
        if site in plan.left_out:
            return given[0], None
        if site in plan.before and not again:
            given = [plan.before[site](self.rec, given[0]), *given[1:]]
        for place, argument in plan.arguments.get(site, {}).items():
            given = [*given[:place], argument, *given[place + 1 :]]
        plain = [one.array if isinstance(one, Value) else one for one in given]
        array = self._round(compute(*plain))
        if plan.noise and api in ("Functional.linear", "Torch.tanh"):
            array = self._round(array * (1 + plan.noise * drawn(f"noise {site}", *array.shape)))
        array = plan.results.get(site, np.asarray)(array)
        array = plan.again.get(site, np.asarray)(array) if again else array
        out = Value(array, any(isinstance(one, Value) and one.grad for one in given), plan.dtype)
        stem = self.rec.call(plan.renamed.get(site, api), given, out, again=again)
        return out, (stem, given)

    def _back(self, site: str, call: Any, arriving: np.ndarray, *leaving: np.ndarray, slot: str = "input.0") -> Any:
        if call is None:
            return leaving[0]
        first = self._round(self.plan.results.get(f"{site}.backward", np.asarray)(self._round(leaving[0])))
        found = {slot: self._value(first)}
        found |= {f"input.{place}": self._value(one) for place, one in enumerate(leaving[1:], 1)}
        self.rec.backward(call[0], [self._value(arriving)], found)
        return first

    def _back_linear(self, site: str, call: Any, g: np.ndarray, weight: str, bias: str, given: list[Any]) -> np.ndarray:
        to_weight, to_bias = self._round(g.T @ given[0].array), self._round(g.sum(axis=0))
        first = self._back(f"{site}.linear", call, g, g @ given[1].array, to_weight, to_bias)
        self._add_gradient(weight, to_weight)
        self._add_gradient(bias, to_bias)
        return first

    def _add_gradient(self, name: str, gradient: np.ndarray) -> None:
        self.gradients[name] = self._round(self.gradients.get(name, 0) + gradient)

    def _weight(self, name: str) -> Value:
        return self._value(self.weights[name], True)

    def _value(self, array: np.ndarray, grad: bool = False) -> Value:
        return Value(np.asarray(array), grad, self.plan.dtype)

    def _round(self, array: Any) -> np.ndarray:
        return rounded(np.asarray(array, np.float32), self.plan.dtype)

    def _path(self, path: str) -> str:
        return self.plan.called(f"{self.plan.prefix}{path}")


def _embedding(tokens: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return weight[tokens]


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return x @ weight.T + bias


def train(folder: Path, *plans: Plan) -> Path:
    """Run a training with one rank for each plan and write its dump."""
    plans = plans or (Plan(),)
    ranks = [Rank(plan, number) for number, plan in enumerate(plans)]
    for step in range(plans[0].first_step, plans[0].first_step + plans[0].steps):
        for rank in ranks:
            rank.begin(step)
        for rank in ranks:
            rank.exchange(ranks)
        for rank in ranks:
            rank.update()
            name = f"rank{rank.number}" if len(ranks) > 1 else "rank"
            rank.rec.write(folder / f"step{step}" / name, level=rank.plan.level, edit=rank.plan.edit)
    return folder
