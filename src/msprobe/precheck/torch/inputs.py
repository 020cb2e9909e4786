"""The arguments of a recorded call, made anew: tensors of generated or recorded values, with the recorded strides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.precheck.arguments import Argument, ArgumentTensor, Items, Mapping, Plain
from msprobe.precheck.domains import NARROW_LABELS, domain_of
from msprobe.precheck.generate import CannotGenerateError, generator_for, values_for
from msprobe.precheck.requests import ApiCall, Requests
from msprobe.precheck.side.trees import map_tree
from msprobe.precheck.side.types import CONSTANTS, constant_of
from msprobe.precheck.standards import is_hif8
from msprobe.store.values import read_values

_MOST_ELEMENTS = 1 << 31
_NUMPY_NUMBERS = frozenset(
    f"{kind}{bits}"
    for kind, sizes in (("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)), ("float", (16, 32, 64)))
    for bits in sizes
)


class InputError(ValueError):
    """An argument of a recorded call cannot be made."""


@dataclass
class Inputs:
    """Arguments on the CPU in their recorded types; ``gradients`` are those that come back to the results."""

    args: list[Any]
    kwargs: dict[str, Any]
    gradients: list[Any] | None = None
    #: Paths of the tensors that gradients are wanted of, in order.
    wanted: list[str] = field(default_factory=list)

    def tensors(self) -> list[torch.Tensor]:
        """All tensors among the arguments."""
        return [tensor for tensor, _ in self._placed()]

    def paths(self) -> list[str]:
        """The paths of all tensors among the arguments, in order."""
        return [path for _, path in self._placed()]

    def _placed(self) -> list[tuple[torch.Tensor, str]]:
        placed: list[tuple[torch.Tensor, str]] = []
        self.map(lambda tensor, path: placed.append((tensor, path)))
        return placed

    def map(self, change: Callable[[torch.Tensor, str], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with each tensor replaced by what ``change(tensor, path)`` gives."""
        args = [map_tree(value, str(place), change) for place, value in enumerate(self.args)]
        return args, {name: map_tree(value, name, change) for name, value in self.kwargs.items()}


class InputMaker:
    """Makes the arguments of calls of one dump."""

    def __init__(self, requests: Requests, seed: int) -> None:
        self._requests = requests
        self._seed = seed

    def make(self, call: ApiCall) -> Inputs:
        """Raises InputError with the argument that cannot be made."""
        inputs = Inputs([], {})
        for place, argument in enumerate(call.args):
            inputs.args.append(self._made(argument, str(place), call, inputs.wanted))
        for name, argument in call.kwargs.items():
            inputs.kwargs[name] = self._made(argument, name, call, inputs.wanted)
        if call.api.name in ("__getitem__", "__setitem__") and len(inputs.args) > 1:
            inputs.args[1] = _as_index(inputs.args[1])
        if call.gradients is not None:
            inputs.gradients = [
                self._made(argument, f"gradient.{place}", call, []) for place, argument in enumerate(call.gradients)
            ]
        return inputs

    def values(self, call: ApiCall, arguments: Sequence[Argument]) -> list[Any]:
        """Recorded results or gradients of a call. Raises InputError."""
        return [self._made(argument, f"result.{place}", call, []) for place, argument in enumerate(arguments)]

    def _made(self, argument: Argument, path: str, call: ApiCall, wanted: list[str]) -> Any:
        if isinstance(argument, ArgumentTensor):
            try:
                tensor = self._tensor(argument, path, call)
            except (CannotGenerateError, MsprobeError, InputError) as problem:
                text = problem.message if isinstance(problem, MsprobeError) else str(problem)
                raise InputError(f"argument {path}: {text}") from None
            if argument.is_array:
                return tensor.numpy()
            if argument.requires_grad and (tensor.is_floating_point() or tensor.is_complex()):
                wanted.append(path)
            return tensor
        if isinstance(argument, Items):
            return [self._made(item, f"{path}.{place}", call, wanted) for place, item in enumerate(argument.items)]
        if isinstance(argument, Mapping):
            return {name: self._made(item, f"{path}.{name}", call, wanted) for name, item in argument.items.items()}
        return _plain(argument, path)

    def _tensor(self, info: ArgumentTensor, path: str, call: ApiCall) -> torch.Tensor:
        dtype = CONSTANTS["torch.dtype"].get(info.dtype)
        if dtype is None:
            if is_hif8(info.dtype):
                raise InputError(said("hif8-not-here"))
            raise InputError(said("torch-type-unknown", torch.__version__, info.dtype))
        if info.numel > _MOST_ELEMENTS:
            raise InputError(said("too-many-elements", info.numel))
        domain = domain_of(call, path, info)
        if info.file is not None and self._requests.has_values:
            tensor = self._recorded(info, dtype)
        else:
            random = generator_for(call.key, path, self._seed)
            values = values_for(info, random, domain)
            tensor = torch.from_numpy(np.ascontiguousarray(values)).reshape(info.shape).to(dtype)
            if call.api.name in ("conv1d", "conv2d") and dtype is torch.float32:
                tensor = _short_mantissa(tensor)
        if domain.name == "labels" and info.dtype in NARROW_LABELS:
            tensor = tensor.long()
        return with_stride(tensor, info.stride)

    def _recorded(self, info: ArgumentTensor, dtype: torch.dtype) -> torch.Tensor:
        assert info.file is not None
        values = read_values(self._requests.part.tensor_path(info.file))
        array = np.array(values.array)  # of our own: files are mapped read-only
        tensor = torch.from_numpy(array)
        if tuple(tensor.shape) != info.shape:
            raise InputError(said("file-shape-differs", info.file, list(tensor.shape), list(info.shape)))
        return tensor.to(dtype)


def _short_mantissa(tensor: torch.Tensor) -> torch.Tensor:
    """float32 values with the 11 upper bits of the mantissa, rounded: what some devices multiply in convolutions."""
    bits = tensor.view(torch.int32)
    size = (bits & 0x7FFFFFFF) + 0x800
    return ((size & ~0xFFF) | (bits & ~0x7FFFFFFF)).view(torch.float32)


def with_stride(tensor: torch.Tensor, stride: tuple[int, ...] | None) -> torch.Tensor:
    """The same values with the recorded strides; contiguous where those overlap in another way than by expanding."""
    if stride is None or tensor.numel() == 0 or any(step < 0 for step in stride):
        return tensor
    narrow = tuple(1 if step == 0 else length for step, length in zip(stride, tensor.shape, strict=True))
    kept = [(step, length) for step, length in zip(stride, narrow, strict=True) if length > 1]
    kept.sort()
    reach = 0
    for step, length in kept:
        if step <= reach:
            return tensor
        reach += step * (length - 1)
    if reach >= _MOST_ELEMENTS:
        return tensor
    base = torch.zeros(reach + 1, dtype=tensor.dtype)
    view = torch.as_strided(base, narrow, stride)
    view.copy_(tensor[tuple(slice(0, length) for length in narrow)])
    return torch.as_strided(base, tuple(tensor.shape), stride)


def _as_index(value: Any) -> Any:
    """A recorded index: several indices were a tuple, one list of whole numbers was a list."""
    if isinstance(value, list) and not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return tuple(value)
    return value


def _plain(argument: Plain, path: str) -> Any:
    kind, value = argument.kind, argument.value
    if kind in ("NoneType", "int", "bool", "str"):
        return value
    if kind == "float":
        return float(value)
    if kind == "complex":
        return complex(*value)
    if kind == "slice":
        return slice(*value)
    if kind == "ellipsis":
        return ...
    if kind == "torch.Size":
        return torch.Size(value)
    if kind in _NUMPY_NUMBERS:
        return np.dtype(kind).type(value)
    if kind in CONSTANTS:
        with contextlib.suppress(LookupError):
            return constant_of(kind, value)
    if kind == "torch.device":
        return _Device()
    raise InputError(said("value-cannot-be-made", path, kind, value))


class _Device:
    """Stands for the device of whoever runs the call."""


def for_device(value: Any, device: torch.device) -> Any:
    """A tree with the device of the executor put in."""
    return map_tree(value, "", lambda *_: device, _Device)
