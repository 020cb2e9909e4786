"""What it takes to run a module once more beside its training: its structure, its surroundings, its state."""

from __future__ import annotations

import contextlib
import copy
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from msprobe.capture.torch import private_compiler
from msprobe.capture.torch.listener_support import random_numbers_kept
from msprobe.capture.torch.precision import autocast_of
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.precheck.torch.inputs import Inputs

_DEVICES = ("cuda", "npu", "xpu")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEPEST = 8
# What a module is made of: the rest of its attributes are its own.
_STRUCTURE = frozenset(vars(nn.Module()))
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"),
)


class RandomNumbers:
    """The states of all random generators at one time: torch's, Python's and numpy's."""

    def __init__(self) -> None:
        self._generators = [torch.default_generator]
        for name in _DEVICES:
            device = getattr(torch, name, None)
            if device is not None and device.is_initialized():
                self._generators += device.default_generators
        self._states = [generator.get_state() for generator in self._generators]
        self._python_state, self._numpy_state = random.getstate(), np.random.get_state()

    def restore(self) -> None:
        """The numbers of that time from now on."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)
        random.setstate(self._python_state)
        np.random.set_state(self._numpy_state)


class RandomNumbersAndAutocast:
    """Random numbers and autocast as they are when this is made, to be had again later."""

    def __init__(self, inputs: Inputs) -> None:
        self._random = RandomNumbers()
        devices = dict.fromkeys([*(tensor.device.type for tensor in inputs.tensors()), "cpu"])
        self._autocast = next(((device, dtype) for device in devices if (dtype := autocast_of(device))), None)

    @contextlib.contextmanager
    def again(self, autocast: bool = True) -> Iterator[None]:
        """These surroundings within this block; behind it those that were there before, untouched."""
        device, dtype = self._autocast or ("cpu", torch.bfloat16)
        enabled = autocast and self._autocast is not None
        with random_numbers_kept():
            self._random.restore()
            # A weight that is cast here must not be what the training finds in the cache.
            with torch.autocast(device, dtype, enabled=enabled, cache_enabled=False):
                yield


class ModelState:
    """Parameters, buffers, gradients and random numbers of a model at one time."""

    def __init__(self, model: nn.Module) -> None:
        self._tensors = [(tensor, tensor.detach().clone()) for tensor in dict(tensors_of(model)).values()]
        # A forward may put another tensor in the place of a buffer.
        self._buffers = [(part, dict(part._buffers)) for part in model.modules()]
        self._gradients = [
            (parameter, None if parameter.grad is None else parameter.grad.detach().clone())
            for parameter in model.parameters()
        ]
        self._random = RandomNumbers()

    def restore(self) -> None:
        """Make all as it was."""
        for part, buffers in self._buffers:
            part._buffers.update(buffers)
        with torch.no_grad():
            for tensor, value in self._tensors:
                tensor.copy_(value)
        for parameter, gradient in self._gradients:
            parameter.grad = None if gradient is None else gradient.clone()
        self._random.restore()


def tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names of all parameters and buffers."""
    yield from plain(module).named_parameters()
    yield from plain(module).named_buffers()


def plain(module: nn.Module) -> nn.Module:
    """The module itself, of one that ``torch.compile`` returned."""
    if _is_wrapper(module):
        inner: nn.Module = module._orig_mod  # type: ignore[assignment]
        return inner
    return module


def structure_of(module: nn.Module) -> nn.Module:
    """A copy of a module that shares its tensors, has no hooks and is not compiled.

    Raises InvalidInputError for one that cannot be copied, as those that FSDP shards.
    """
    known: dict[int, Any] = {id(tensor): tensor for _, tensor in tensors_of(module)}
    for part in plain(module).modules():
        # Values that it keeps, as a loss of its own: they may hang in the graph of the training.
        for tensor in _held([value for name, value in vars(part).items() if name not in _STRUCTURE]):
            known.setdefault(id(tensor), tensor.detach())
        for name in _HOOKS:
            if (hooks := part.__dict__.get(name)) is not None:
                known[id(hooks)] = OrderedDict()
        for name in ("_compiled_call_impl", "forward"):
            if (function := part.__dict__.get(name)) is not None:
                known[id(function)] = function
    try:
        made = copy.deepcopy(plain(module), known)
    except Exception as problem:
        raise InvalidInputError(said("input-cannot-be-copied", problem)) from None
    for part in made.modules():
        part.__dict__["_compiled_call_impl"] = None
        # What wrappers have put in the place of a forward belongs to the other module.
        if not _is_wrapper(part):
            part.__dict__.pop("forward", None)
    return made


def copy_of(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of an object of any kind, with each tensor in it replaced.

    Raises InvalidInputError for one that cannot be copied.
    """
    try:
        return copy.deepcopy(value, {id(tensor): change(tensor.detach().clone()) for tensor in _held(value)})
    except Exception as problem:
        what = type(value).__name__
        raise InvalidInputError(said("argument-cannot-be-copied", what, problem)) from None


def state_of(module: nn.Module) -> list[dict[str, Any]]:
    """Numbers, texts and containers that a module and those in it keep as attributes, in their order.

    Raises InvalidInputError for a container that cannot be copied.
    """
    return [_kept_by(part) for part in plain(module).modules()]


def put_state(module: nn.Module, state: list[dict[str, Any]]) -> None:
    """Make them what they were."""
    for part, values in zip(module.modules(), state, strict=True):
        for name in _kept_names(part) - values.keys():
            del part.__dict__[name]
        part.__dict__.update({name: _copied(value) for name, value in values.items()})


def _kept_names(part: nn.Module) -> set[str]:
    kinds = (*_PLAIN, list, dict, set)
    return {name for name, value in vars(part).items() if name not in _STRUCTURE and isinstance(value, kinds)}


def _kept_by(part: nn.Module) -> dict[str, Any]:
    return {name: _copied(vars(part)[name]) for name in _kept_names(part)}


def _copied(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else copy_of(value, lambda tensor: tensor)


def _held(value: Any, depth: int = 0, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """The tensors in a value: in containers, and in what objects keep as attributes. Modules are left out."""
    seen = set() if seen is None else seen
    if id(value) in seen or depth > _DEEPEST or isinstance(value, (*_PLAIN, nn.Module, type)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    slots = [getattr(value, name, None) for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for item in (*inner, *getattr(value, "__dict__", {}).values(), *slots):
        yield from _held(item, depth + 1, seen)


def _is_wrapper(module: nn.Module) -> bool:
    wrapper = private_compiler.optimized_module()
    return wrapper is not None and isinstance(module, wrapper)


def bytes_of(tensor: torch.Tensor) -> int:
    """The size of the memory behind a tensor, which FSDP frees between passes; 0 where it has none of its own."""
    try:
        return tensor.untyped_storage().nbytes()
    except RuntimeError:
        return 0
