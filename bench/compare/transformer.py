"""Write pairs of dumps of any depth, as msprobe leaves them of a training step of a transformer.

    python bench/compare/transformer.py FOLDER [--layers 1562] [--steps 1] [--planted]

Level mix, statistics: modules, calls and gradients of parameters, forward and backward, 64 records a layer. What one
call makes is what the next takes. The sides differ by what rounding does in float32, as runs with other kernels do;
with ``--planted`` the candidate has another activation in the layer in the middle, and what follows is apart by it.
Nothing of msprobe is used.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RECORDS_OF_A_LAYER = 64
SIDES = ("candidate", "reference")
_UNIT = 2.0**-23
# How far apart the sides are, in units of rounding: by rounding alone, and behind another activation.
_HEALTHY, _PLANTED = 8.0, 2.0**17
_BATCH, _LENGTH, _WIDTH, _HEADS, _WORDS = 2, 16, 32, 4, 128
_HIDDEN = [_BATCH, _LENGTH, _WIDTH]
_HEAD = [_BATCH, _HEADS, _LENGTH, _WIDTH // _HEADS]

Tensor = dict[str, Any]


class Side:
    """One side of a step while it is written down."""

    def __init__(self, candidate: bool, seed: int) -> None:
        self.candidate = candidate
        self.apart = 1.0
        self.records: dict[str, Any] = {}
        self.parents: dict[str, str | None] = {}
        self.stacks: dict[str, tuple[list[str], list[str]]] = {}
        # The one gives both sides the same numbers, the other what rounding does to those of the candidate.
        self._same, self._own = random.Random(seed), random.Random(seed + 1)
        self._numbers: dict[str, int] = {}
        self._modules: list[str] = []
        # What ran forward: a call with its gradients' shapes, or where a module ended and began.
        self._ran: list[tuple[str, str, str | None, list[list[int]], dict[str, Tensor]]] = []

    def tensor(self, shape: list[int], size: float = 1.0, grad: bool = True, exact: bool = False) -> Tensor:
        """A tensor with values of about ``size``; the same on both sides if ``exact``."""
        same, count = self._same, math.prod(shape)
        largest, least = size * (1.0 + 3.0 * same.random()), -size * (1.0 + 3.0 * same.random())
        mean, norm = size * same.gauss(0.0, count**-0.5), size * (0.5 + same.random()) * count**0.5
        if self.candidate and not exact:
            by = [self.apart * _UNIT * self._own.uniform(-1.0, 1.0) for _ in range(4)]
            largest, least = largest * (1 + by[0]), least * (1 + by[1])
            mean, norm = mean + size * by[2], norm * (1 + by[3])
        numbers = {"Max": largest, "Min": least, "Mean": mean, "Norm": norm}
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, **numbers, "requires_grad": grad}

    def call(
        self, stem: str, taken: list[Any], made: list[Tensor], parameters: dict[str, Tensor] | None = None
    ) -> Tensor:
        """A forward call and, later, its backward call; ``parameters``: their gradients by argument."""
        number = self._numbers.get(stem, 0)
        self._numbers[stem] = number + 1
        name = f"{stem}.{number}"
        self._write(f"{name}.forward", {"input_args": taken, "input_kwargs": {}, "is_recompute": False, "output": made})
        self._ran.append(("call", name, self._inside(), [taken[0]["shape"], made[0]["shape"]], parameters or {}))
        return made[0]

    def moved(self, stem: str, tensor: Tensor, shape: list[int], *words: Any) -> Tensor:
        """A call that gives the same values another shape."""
        return self.call(stem, [tensor, *map(_plain, words)], [{**tensor, "shape": shape}])

    @contextmanager
    def module(self, path: str, kind: str, taken: Tensor, parameters: dict[str, Tensor]) -> Iterator[list[Tensor]]:
        """The pass of a module; what it gives is put into the list."""
        stem, made = f"Module.{path}.{kind}", list[Tensor]()
        above = self._inside()
        self._ran.append(("begin", stem, above, [], {}))
        self._modules.append(f"{stem}.forward.0")
        yield made
        self._modules.pop()
        self._ran.append(("end", stem, above, [], {}))
        record: dict[str, Any] = {"input_args": [taken], "input_kwargs": {}, "output": made}
        if parameters:
            record["parameters"] = parameters
        self._write(f"{stem}.forward.0", {**record, "is_recompute": False})

    def layer(
        self,
        path: str,
        kind: str,
        stem: str,
        taken: Tensor,
        parameters: dict[str, Tensor],
        shape: list[int],
        *words: Any,
    ) -> Tensor:
        """A module that makes one call with its parameters, and their gradients."""
        gradients = {name: self.tensor(one["shape"], 1e-3, False) for name, one in parameters.items()}
        with self.module(path, kind, taken, parameters) as made:
            arguments = [taken, *parameters.values(), *map(_plain, words)]
            by_argument = {f"input.{number}": one for number, one in enumerate(gradients.values(), 1)}
            made.append(self.call(stem, arguments, [self.tensor(shape)], by_argument))
        if parameters:
            self.records[f"Module.{path}.{kind}.parameters_grad"] = {name: [one] for name, one in gradients.items()}
        return made[0]

    def backward(self) -> None:
        """All backward calls, of the last forward call first."""
        gradient, arrived = self.tensor([], 1.0, False, exact=True), list[Tensor]()
        for what, name, above, shapes, parameters in reversed(self._ran):
            parent = above and above.replace(".forward.", ".backward.")
            if what == "end":
                arrived.append(gradient)
            elif what == "begin":
                self._write(f"{name}.backward.0", {"input": [arrived.pop()], "output": [gradient]}, parent)
            elif name.rpartition(".")[0] in _MOVE:
                taken, gradient = {**gradient, "shape": shapes[1]}, {**gradient, "shape": shapes[0]}
                self._write(f"{name}.backward", {"input": [taken], "output": [gradient]}, parent)
            else:
                taken, gradient = {**gradient, "shape": shapes[1]}, self.tensor(shapes[0], 1e-3, False)
                record: dict[str, Any] = {"input": [taken], "output": [gradient]}
                if parameters:
                    record["input_grads"] = {"input.0": gradient, **parameters}
                self._write(f"{name}.backward", record, parent)

    def publish(self, folder: Path) -> None:
        """Write the three files."""
        folder.mkdir(parents=True)
        head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
        ours = {"version": "0.1.0", "format": 1, "records": len(self.records), "complete": True}
        content = {**head, "data": self.records, "msprobe": ours}
        (folder / "dump.json").write_text(json.dumps(content, indent=1))
        (folder / "construct.json").write_text(json.dumps(self.parents, indent=1))
        stacks = {str(number): found for number, found in enumerate(self.stacks.values())}
        (folder / "stack.json").write_text(json.dumps(stacks, indent=1))

    def _inside(self) -> str | None:
        return self._modules[-1] if self._modules else None

    def _write(self, name: str, record: dict[str, Any], *parent: str | None) -> None:
        ours: dict[str, Any] = {"order": len(self.records) + 1}
        if not parent:
            # One line of the program for each call of a layer, whatever its number.
            words = [word for word in name.split(".") if not word.isdigit()]
            line = sum(map(ord, "".join(words))) % 400
            ours["source"] = f"/home/user/model.py:{line}"
            frames = [f"File /home/user/model.py, line {line - deep}, in forward, \n y = f(x)" for deep in range(8)]
            self.stacks.setdefault(".".join(words), ([], frames))[0].append(name)
        self.records[name] = {**record, "msprobe": ours}
        self.parents[name] = parent[0] if parent else self._inside()


# What moves values only.
_MOVE = {"Tensor.view", "Tensor.transpose", "Tensor.reshape", "Functional.dropout"}


def write_step(folder: Path, side: str, layers: int, seed: int = 0, planted: bool = False) -> int:
    """Write a side of a step into ``folder``; gives how many records it has."""
    one = Side(side == "candidate", seed)
    tokens = one.tensor([_BATCH, _LENGTH, _WIDTH], exact=True)
    found = one.call("Tensor.__add__", [tokens, one.tensor([_LENGTH, _WIDTH], exact=True)], [one.tensor(_HIDDEN)])
    one.apart = _HEALTHY
    for number in range(layers):
        found = _block(one, number, found, planted and number == layers // 2)
    found = one.layer(
        "head", "Linear", "Functional.linear", found, _linear(one, _WIDTH, _WORDS), [_BATCH * _LENGTH, _WORDS]
    )
    target = one.tensor([_BATCH * _LENGTH], 50.0, False, exact=True) | {"dtype": "torch.int64"}
    one.call("Functional.cross_entropy", [found, target], [one.tensor([])])
    one.backward()
    one.publish(folder)
    return len(one.records)


def _block(one: Side, number: int, taken: Tensor, planted: bool) -> Tensor:
    path = f"blocks.{number}"
    with one.module(path, "Block", taken, {}) as made:
        normed = one.layer(f"{path}.norm1", "LayerNorm", "Functional.layer_norm", taken, _norm(one), _HIDDEN, 1e-5)
        with one.module(f"{path}.attention", "Attention", normed, {}) as attended:
            three = _linear(one, _WIDTH, 3 * _WIDTH)
            wide = [_BATCH, _LENGTH, 3 * _WIDTH]
            found = one.layer(f"{path}.attention.qkv", "Linear", "Functional.linear", normed, three, wide)
            thirds = [one.tensor(_HIDDEN) for _ in range(3)]
            one.call("Tensor.split", [found, _plain(_WIDTH)], thirds)
            heads = []
            for third in thirds:
                found = one.moved("Tensor.view", third, [_BATCH, _LENGTH, _HEADS, _WIDTH // _HEADS], _BATCH, _LENGTH)
                heads.append(one.moved("Tensor.transpose", found, _HEAD, 1, 2))
            found = one.call("Functional.scaled_dot_product_attention", heads, [one.tensor(_HEAD)])
            found = one.moved("Tensor.transpose", found, [_BATCH, _LENGTH, _HEADS, _WIDTH // _HEADS], 1, 2)
            found = one.moved("Tensor.reshape", found, _HIDDEN, *_HIDDEN)
            square = _linear(one, _WIDTH, _WIDTH)
            attended.append(one.layer(f"{path}.attention.proj", "Linear", "Functional.linear", found, square, _HIDDEN))
        with one.module(f"{path}.dropout", "Dropout", attended[0], {}) as dropped:
            dropped.append(one.moved("Functional.dropout", attended[0], _HIDDEN, 0.0, True, False))
        taken = one.call("Tensor.__add__", [taken, dropped[0]], [one.tensor(_HIDDEN)])
        normed = one.layer(f"{path}.norm2", "LayerNorm", "Functional.layer_norm", taken, _norm(one), _HIDDEN, 1e-5)
        wide = [_BATCH, _LENGTH, 4 * _WIDTH]
        found = one.layer(f"{path}.up", "Linear", "Functional.linear", normed, _linear(one, _WIDTH, wide[2]), wide)
        other = planted and one.candidate
        if planted:
            one.apart = _PLANTED
        word = _plain("tanh" if other else "none")
        found = one.call("Functional.gelu", [found, word], [one.tensor(wide)])
        found = one.layer(f"{path}.down", "Linear", "Functional.linear", found, _linear(one, wide[2], _WIDTH), _HIDDEN)
        made.append(one.call("Tensor.__add__", [taken, found], [one.tensor(_HIDDEN)]))
    return made[0]


def _linear(one: Side, taken: int, made: int) -> dict[str, Tensor]:
    return {"weight": one.tensor([made, taken], 0.02, exact=True), "bias": one.tensor([made], 0.02, exact=True)}


def _norm(one: Side) -> dict[str, Tensor]:
    return {name: one.tensor([_WIDTH], exact=True) for name in ("weight", "bias")}


def _plain(value: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


def write_pair(folder: Path, layers: int, steps: int = 1, planted: bool = False) -> tuple[Path, Path]:
    """Write both sides into ``folder``; every step has the same calls and other numbers."""
    for side in SIDES:
        for step in range(steps):
            write_step(folder / side / f"step{step}" / "rank0", side, layers, 2 * step, planted)
    return folder / SIDES[0], folder / SIDES[1]


def records_of(side: Path) -> int:
    """How many records the first step of a side has."""
    found = json.loads((side / "step0" / "rank0" / "dump.json").read_text())
    return len(found["data"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=100_000 // RECORDS_OF_A_LAYER)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--planted", action="store_true", help="another activation in the layer in the middle")
    options = parser.parse_args()
    print(*write_pair(options.folder, options.layers, options.steps, options.planted))


if __name__ == "__main__":
    main()
