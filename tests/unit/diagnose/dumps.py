"""One step of one rank, written down call by call as the recorder would have (docs/dump.md).

Arrays become descriptions with true statistics and, where asked for, digests and files of values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

Record = dict[str, Any]


@dataclass(frozen=True)
class Value:
    """A tensor while it is calculated with. ``more`` are further keys of its description (``stride``, ...)."""

    array: np.ndarray
    grad: bool = False
    dtype: str = "float32"
    more: Mapping[str, Any] = field(default_factory=dict)

    def of(self, array: np.ndarray) -> Value:
        """The same kind of tensor with other values."""
        return replace(self, array=np.asarray(array))


def drawn(name: str, *shape: int) -> np.ndarray:
    """Normal random numbers that depend on the name alone."""
    return np.random.default_rng(list(name.encode())).normal(size=shape).astype(np.float32)


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """What is left of an array in a type; numpy has no bfloat16, so that stays a float32 with a short mantissa."""
    if dtype == "bfloat16":
        bits = np.asarray(array, np.float32).reshape(-1).view(np.uint32)
        short = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
        return short.astype(np.uint32).view(np.float32).reshape(np.shape(array))
    return np.asarray(array).astype(dtype)


class Recording:
    """The records of one step of one rank.

    ``digests``: each tensor has one (integers always do, as with the recorder). ``values``: files of values. ``ours``:
    false for what mindstudio-probe writes, without order, sources, digests and gradients by argument.
    """

    def __init__(self, *, digests: bool = True, values: bool = False, ours: bool = True) -> None:
        self.digests, self.values, self.ours = digests and ours, values, ours
        self.data: dict[str, Record] = {}
        self.parents: dict[str, Any] = {}
        self.stacks: dict[str, list[str]] = {}
        self.files: dict[str, np.ndarray] = {}
        self.inside: list[str] = []
        self._count: Counter[str] = Counter()
        self._order = 0

    # -- calls

    def call(
        self, api: str, given: list[Any], out: Any, *, keywords: Mapping[str, Any] | None = None, again: bool = False,
        **more: Any,
    ) -> str:  # fmt: skip
        """Record a forward call of an API; ``again``: it is recomputed. Returns its name without direction."""
        stem = f"{api}.{self._next(api)}"
        name = f"{stem}.forward"
        results = out if isinstance(out, list) else [out]
        record: Record = {
            "input_args": [self.leaf(one, f"{name}.input.{place}") for place, one in enumerate(given)],
            "input_kwargs": {key: self.leaf(one, f"{name}.input.{key}") for key, one in (keywords or {}).items()},
            "is_recompute": again,
            "output": [self.leaf(one, f"{name}.output.{place}") for place, one in enumerate(results)],
            **more,
        }
        self._add(name, record, source="/home/me/train.py:10")
        self.stacks[name] = ["File /home/me/train.py, line 10, in forward, \n y = x"]
        return stem

    def backward(self, stem: str, arriving: list[Any], leaving: Mapping[str, Any]) -> None:
        """Record the backward call of ``stem`` with gradients by argument (``input.0``)."""
        name = f"{stem}.backward"
        record: Record = {
            "input": [self.leaf(one, f"{name}.input.{place}") for place, one in enumerate(arriving)],
            "output": [self.leaf(one, f"{name}.output.{place}") for place, one in enumerate(leaving.values())],
        }
        if self.ours:
            record["input_grads"] = {key: self.leaf(one) for key, one in leaving.items()}
        self._add(name, record)
        self.parents[name] = _backward_of(self.parents.get(f"{stem}.forward"))

    @contextmanager
    def module(
        self,
        path: str,
        owner: str,
        given: list[Any],
        parameters: Mapping[str, Value] | None = None,
        again: bool = False,
    ) -> Iterator[Callable[[Any], str]]:
        """Record the forward pass of a module; the function that is given must be told its result."""
        stem = f"Module.{path}.{owner}"
        name = f"{stem}.forward.{self._next(stem)}"
        begun = self._tick()
        told: list[Any] = []
        self.parents[name] = self.inside[-1] if self.inside else None
        self.inside.append(name)
        try:
            yield lambda result: (told.append(result), name)[1]
        finally:
            self.inside.pop()
        record = {
            "input_args": [self.leaf(one, f"{name}.input.{place}") for place, one in enumerate(given)],
            "input_kwargs": {},
            "output": [self.leaf(one, f"{name}.output.{place}") for place, one in enumerate(told)],
            "parameters": {key: self.leaf(one, f"{name}.parameters.{key}") for key, one in (parameters or {}).items()},
            "is_recompute": again,
        }
        self._add(name, record, order=begun)
        if parameters and f"{stem}.parameters_grad" not in self.data:
            self.data[f"{stem}.parameters_grad"] = {key: [None] for key in parameters}
            self.parents[f"{stem}.parameters_grad"] = None

    def module_backward(self, forward: str, arriving: list[Any], leaving: list[Any]) -> None:
        """Record the backward pass of the module pass ``forward``."""
        name = forward.replace(".forward.", ".backward.")
        record = {"input": [self.leaf(one) for one in arriving], "output": [self.leaf(one) for one in leaving]}
        self._add(name, record)
        self.parents[name] = _backward_of(self.parents.get(forward))

    def parameter_gradient(self, path: str, owner: str, name: str, gradient: Value | None) -> None:
        """Fill in the gradient of a parameter."""
        entry = f"Module.{path}.{owner}.parameters_grad"
        self.data[entry][name] = [None if gradient is None else self.leaf(gradient, f"{entry}.{name}")]

    def optimizer(
        self, owner: str, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]],
        settings: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Record the step of an optimizer of one parameter group."""
        stem = f"Optimizer.{owner}"
        name = f"{stem}.{self._next(stem)}.forward"

        def leaves(tensors: Mapping[str, Mapping[str, Any]]) -> Record:
            return {name: {key: self.leaf(one) for key, one in fields.items()} for name, fields in tensors.items()}

        record = {"input_args": [], "input_kwargs": leaves(before), "output": [leaves(after)]}
        if self.ours:
            hyper = {key: self.leaf(value) for key, value in settings.items()}
            record |= {"groups": [{"params": list(before), **hyper}], "class": f"torch.optim.{owner}"}
        self._add(name, record)
        self.parents[name] = "optimizer"

    # -- descriptions

    def leaf(self, value: Any, name: str | None = None) -> Any:
        """The description of a value."""
        if isinstance(value, list):
            return [self.leaf(one) for one in value]
        if not isinstance(value, Value):
            return None if value is None else {"type": type(value).__name__, "value": value}
        array, whole = value.array, value.array.dtype.kind in "biu"
        found: Record = {"type": "torch.Tensor", "dtype": f"torch.{value.dtype}", "shape": list(array.shape)}
        found |= statistics(array) | {"requires_grad": value.grad} | dict(value.more)
        if self.digests or (whole and self.ours):
            found["digest"] = f"xxh3:{xxhash.xxh3_64_hexdigest(np.ascontiguousarray(array).tobytes())}"
        if self.values and name is not None:
            found["data_name"] = f"{name}.npy"
            self.files[found["data_name"]] = array
        return found

    # -- the files

    def write(self, folder: Path, *, level: str = "mix", edit: Callable[[Any], Any] | None = None) -> Path:
        """Write the three files (and values) of a step; ``edit`` may change the records before."""
        folder.mkdir(parents=True)
        data = {name: record for name, record in self.data.items() if _at(level, name)}
        data = edit(data) or data if edit is not None else data
        header: Record = {"task": "tensor" if self.values else "statistics", "level": level, "framework": "pytorch"}
        whole: Record = {**header, "dump_data_dir": None, "data": data}
        if self.ours:
            whole["msprobe"] = {"version": "0.1.0", "format": 1, "records": len(data), "complete": True}
        (folder / "dump.json").write_text(json.dumps(whole))
        groups = {str(n): [[name], frames] for n, (name, frames) in enumerate(self.stacks.items()) if name in data}
        (folder / "stack.json").write_text(json.dumps(groups))
        if level != "L1":
            (folder / "construct.json").write_text(json.dumps({name: self.parents.get(name) for name in data}))
        if self.files:
            (folder / "dump_tensor_data").mkdir()
            for name, array in self.files.items():
                np.save(folder / "dump_tensor_data" / name, array)
        return folder

    def _next(self, stem: str) -> int:
        self._count[stem] += 1
        return self._count[stem] - 1

    def _tick(self) -> int:
        self._order += 1
        return self._order

    def _add(self, name: str, record: Record, order: int | None = None, **more: Any) -> None:
        if self.ours:
            record["msprobe"] = {"order": self._tick() if order is None else order, **more}
        self.data[name] = record
        self.parents.setdefault(name, self.inside[-1] if self.inside else None)


def statistics(array: np.ndarray) -> Record:
    """The four numbers of a tensor."""
    if not array.size:
        return dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    if array.dtype.kind == "b":
        return {"Max": bool(array.any()), "Min": bool(array.all()), "Mean": None, "Norm": None}
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        numbers = (wide.max(), wide.min(), wide.mean(), float(np.linalg.norm(wide)))
        kind = int if array.dtype.kind in "iu" else float
        short = [kind(one) if place < 2 else float(np.float32(one)) for place, one in enumerate(numbers)]
    return dict(zip(("Max", "Min", "Mean", "Norm"), short, strict=True))


def _backward_of(module: str | None) -> str | None:
    """The backward pass of a module pass: what backward calls run in."""
    return module and module.replace(".forward.", ".backward.")


def _at(level: str, name: str) -> bool:
    """True if a level records an entry."""
    module = name.startswith("Module.")
    return level == "mix" or name.startswith("Optimizer.") or module == (level == "L0")
