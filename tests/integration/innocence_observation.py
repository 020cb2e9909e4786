"""What one training left behind, written down bit for bit, so that two runs can be compared.

An observation is a flat mapping from a path ("step1/model/weight.grad") to a comparable value. Tensors become
`TensorBits`: nothing about them that a user could notice is left out.
"""

from __future__ import annotations

import copy
import io
import pickle
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import nn

Observation = dict[str, object]

HOOK_TABLES = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_post_accumulate_grad_hooks",
)

# FSDP2 keeps its state in attributes whose names are new in every process.
RANDOM_PART = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class TensorBits:
    """All that can be seen of a tensor. `shares` is the path of the first observed tensor with the same
    storage."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    device: str
    stride: tuple[int, ...] | None
    offset: int | None
    storage_bytes: int | None
    shares: str
    requires_grad: bool
    leaf: bool
    version: int | None
    node: str | None
    flags: str
    bits: bytes


@dataclass(frozen=True)
class Difference:
    """One path at which two observations disagree, with both sides told briefly."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Observer:
    """Collects one observation; remembers storages to tell which tensors share one."""

    def __init__(self) -> None:
        self.seen: Observation = {}
        self._storages: dict[int, tuple[str, Any]] = {}

    def note(self, path: str, value: object) -> None:
        """Write down a tensor, a plain value, or a container of such."""
        if isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif isinstance(value, Mapping):
            self.seen[path] = ("keys", [str(key) for key in value])
            for key, item in value.items():
                self.note(f"{path}.{key}", item)
        elif isinstance(value, (list, tuple)) and any(
            isinstance(v, (torch.Tensor, Mapping, list, tuple)) for v in value
        ):
            self.seen[path] = (type(value).__name__, len(value))
            for index, item in enumerate(value):
                self.note(f"{path}.{index}", item)
        elif isinstance(value, np.ndarray):
            self.seen[path] = ("ndarray", str(value.dtype), value.shape, value.tobytes())
        elif isinstance(value, np.generic):
            self.seen[path] = ("number", str(value.dtype), value.tobytes())
        elif type(value) is list and all(isinstance(v, (str, bool, int, type(None))) for v in value):
            self.seen[path] = list(value)
        elif isinstance(value, float):
            self.seen[path] = value.hex()
        else:
            self.seen[path] = value if isinstance(value, (bool, int, str, type(None), bytes)) else repr(value)

    def graph(self, path: str, tensor: torch.Tensor) -> None:
        """The autograd graph behind a tensor: the names of its nodes, breadth first, and how they are
        joined."""
        if tensor.grad_fn is None:
            return
        numbers: dict[Any, int] = {tensor.grad_fn: 0}
        queue, lines = [tensor.grad_fn], []
        for node in queue:
            joined = []
            for following, _ in node.next_functions:
                if following is None:
                    joined.append(-1)
                    continue
                if following not in numbers:
                    numbers[following] = len(numbers)
                    queue.append(following)
                joined.append(numbers[following])
            lines.append(f"{node.name()} -> {joined}")
        self.seen[path] = lines

    def tracked(self, path: str, thing: object) -> None:
        """The state of a module (with gradients, buffers, what is attached), of an optimizer, of anything
        else."""
        if isinstance(thing, nn.Module):
            self._module(path, thing)
        elif isinstance(thing, torch.optim.Optimizer):
            self.note(path, thing.state_dict())
            self.seen[f"{path} attached"] = attached(thing)
        elif hasattr(thing, "state_dict"):
            self.note(path, thing.state_dict())
        else:
            self.note(path, thing)
            for index, item in enumerate(thing if isinstance(thing, (list, tuple)) else [thing]):
                if isinstance(item, torch.Tensor) and item.is_leaf:
                    self.note(f"{path}.{index}.grad", item.grad)

    def generators(self, path: str) -> None:
        """The states of the global random generators of Python, numpy and torch."""
        self.seen[f"{path} python"] = random.getstate()
        kind, keys, *rest = np.random.get_state(legacy=True)
        self.seen[f"{path} numpy"] = (kind, keys.tobytes(), rest)
        self.seen[f"{path} torch"] = torch.get_rng_state().numpy().tobytes()

    def copies(self, path: str, module: nn.Module) -> None:
        """Whether the module can be pickled, saved and deep-copied, and whether the copies hold the same
        weights."""

        def restored_by_pickle() -> nn.Module:
            data = pickle.dumps(module)
            if b"msprobe" in data:
                raise AssertionError("the pickled module names msprobe")
            return pickle.loads(data)

        def restored_by_save() -> nn.Module:
            file = io.BytesIO()
            torch.save(module, file)
            file.seek(0)
            return torch.load(file, weights_only=False)

        for name, make in (
            ("pickle", restored_by_pickle),
            ("torch.save", restored_by_save),
            ("deepcopy", lambda: copy.deepcopy(module)),
        ):
            try:
                twin = make()
                self.note(f"{path} {name}", dict(twin.state_dict()))
                self.seen[f"{path} {name} attached"] = [attached(m) for m in twin.modules()]
            except Exception as error:  # some modules cannot be copied; then that has to stay so, for the same reason
                self.seen[f"{path} {name} raised"] = f"{type(error).__name__}: {str(error)[:200]}"

    def _module(self, path: str, module: nn.Module) -> None:
        for name, parameter in module.named_parameters(remove_duplicate=False):
            self.note(f"{path}/{name}", parameter)
            self.note(f"{path}/{name}.grad", parameter.grad)
            self.seen[f"{path}/{name} attached"] = attached(parameter)
        for name, buffer in module.named_buffers(remove_duplicate=False):
            self.note(f"{path}/{name}", buffer)
        for name, inner in module.named_modules():
            self.seen[f"{path}/{name} attached"] = attached(inner)

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            self.seen[path] = self._bits(path, tensor)

    def _bits(self, path: str, tensor: torch.Tensor) -> TensorBits:
        strided = tensor.layout == torch.strided
        owns = strided and tensor.device.type == "cpu" and type(tensor).__torch_dispatch__ is _plain_dispatch
        shares = ""
        storage_bytes = None
        if owns:
            storage = tensor.untyped_storage()
            storage_bytes = storage.nbytes()
            first, _ = self._storages.setdefault(storage.data_ptr(), (path, storage))
            shares = first if storage_bytes and first != path else ""
        node = tensor.grad_fn
        return TensorBits(
            kind=type(tensor).__name__,
            dtype=str(tensor.dtype),
            shape=tuple(tensor.shape),
            layout=str(tensor.layout),
            device=str(tensor.device),
            stride=tuple(tensor.stride()) if strided else None,
            offset=tensor.storage_offset() if strided else None,
            storage_bytes=storage_bytes,
            shares=shares,
            requires_grad=tensor.requires_grad,
            leaf=tensor.is_leaf,
            version=None if tensor.is_inference() else tensor._version,
            node=None if node is None else node.name(),
            flags=f"conj={tensor.is_conj()} neg={tensor.is_neg()} hooks={len(tensor._backward_hooks or ())}",
            bits=self._values(path, tensor),
        )

    def _values(self, path: str, tensor: torch.Tensor) -> bytes:
        if tensor.device.type == "meta":
            return b""
        if hasattr(tensor, "placements"):
            local = tensor.to_local()
            self.note(f"{path}.local", local)
            return f"{tensor.placements} {tensor.device_mesh}".encode()
        if tensor.layout == torch.sparse_coo:
            self.note(f"{path}.indices", tensor._indices())
            self.note(f"{path}.values", tensor._values())
            return str(tensor.is_coalesced()).encode()
        if tensor.layout == torch.sparse_csr:
            for name in ("crow_indices", "col_indices", "values"):
                self.note(f"{path}.{name}", getattr(tensor, name)())
            return b""
        if tensor.is_quantized:
            return _grid(tensor).encode() + tensor.int_repr().contiguous().numpy().tobytes()
        plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        return plain.contiguous().flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _grid(tensor: torch.Tensor) -> str:
    """Scales and zero points of a quantised tensor."""
    if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        return f"{tensor.q_per_channel_scales().tolist()} {tensor.q_per_channel_zero_points().tolist()}"
    return f"{tensor.q_scale()} {tensor.q_zero_point()}"


_plain_dispatch = torch.Tensor.__torch_dispatch__


def attached(thing: object) -> list[str]:
    """What hangs on a module, parameter or optimizer: names in its `__dict__`, and each hook by name."""
    found = sorted(f"{type(thing).__name__}.{RANDOM_PART.sub('*', name)}" for name in getattr(thing, "__dict__", {}))
    for table in HOOK_TABLES:
        for hook in (getattr(thing, table, None) or {}).values():
            found.append(f"{table}: {getattr(hook, '__qualname__', type(hook).__name__)}")
    return found


def differences(off: Observation, on: Observation) -> list[Difference]:
    """Every path where the recorded run is not the bare one, in the order of the bare run."""
    found = []
    for path in [*off, *(p for p in on if p not in off)]:
        if path not in on:
            found.append(Difference(path, "missing in the recorded run"))
        elif path not in off:
            found.append(Difference(path, f"only in the recorded run: {_short(on[path])}"))
        elif off[path] != on[path]:
            found.append(Difference(path, _contrast(off[path], on[path])))
    return found


def _contrast(off: object, on: object) -> str:
    if isinstance(off, TensorBits) and isinstance(on, TensorBits):
        parts = []
        for field in fields(TensorBits):
            before, after = getattr(off, field.name), getattr(on, field.name)
            if before == after:
                continue
            if field.name == "bits" and len(before) == len(after):
                count = sum(a != b for a, b in zip(before, after, strict=True))
                parts.append(f"{count} of {len(before)} bytes differ")
            else:
                parts.append(f"{field.name} {_short(before)} -> {_short(after)}")
        return f"{off.dtype} {list(off.shape)}: " + "; ".join(parts)
    if isinstance(off, list) and isinstance(on, list):
        extra = [item for item in on if item not in off]
        lost = [item for item in off if item not in on]
        first = next((i for i, (a, b) in enumerate(zip(off, on, strict=False)) if a != b), min(len(off), len(on)))
        return (
            f"{len(off)} items -> {len(on)}; first change at {first}: {_short(off[first : first + 1])} -> "
            f"{_short(on[first : first + 1])}; new {_short(extra)}; gone {_short(lost)}"
        )
    return f"{_short(off)} -> {_short(on)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
