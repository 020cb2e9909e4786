"""The numbers that a candidate computes with, where it was asked to round its arguments first.

``+dtype=bf16`` and ``+autocast=bf16`` round arguments: that is the request, and no fault of a kernel. The reference is
computed from the rounded numbers, and what comes back in a finer type than it was computed in is judged in units of the
coarser one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.capture.torch.private import DispatchMode
from msprobe.precheck.side.trees import leaves_of
from msprobe.precheck.side.types import dtype_of
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import Machine, Outcome, copy_with_strides, run_call
from msprobe.precheck.torch.reference import eps_of

#: What half types round, as shares of a result: more than single precision, and no other computation.
_LEAST_ROUNDED, _MOST_ROUNDED = 2.0**-16, 2.0**-4
_COPIES = frozenset(("aten::_to_copy", "aten::to", "aten::copy_"))


@dataclass(frozen=True)
class Given:
    """What a candidate was given. ``typed``: in the types in which it gets them, ``inputs``: the same numbers in the
    types of the call. ``casts``: to which coarser type each argument was rounded inside, by its path.
    """

    inputs: Inputs
    typed: Inputs
    casts: dict[str, torch.dtype] = field(default_factory=dict)

    @property
    def coarsest(self) -> torch.dtype | None:
        """The coarsest type that arguments were rounded to inside of the call; None for none."""
        return max(self.casts.values(), key=eps_of, default=None)

    def computed_in(self, result: torch.Tensor) -> torch.dtype | None:
        """The type in which a result was computed, where that is coarser than its own."""
        coarse = self.coarsest
        return coarse if coarse is not None and eps_of(result.dtype) < eps_of(coarse) else None


def given_to(
    machine: Machine, function: Callable[..., Any], inputs: Inputs, device: Outcome, autocast: torch.dtype | None
) -> Given:
    """What a machine was given in a call that has given ``device``; ``autocast``: the type in which the call was."""
    executor = machine.executor
    typed = inputs
    if executor.dtype is not None:
        wanted = dtype_of(executor.dtype)
        typed = _changed(
            inputs, lambda tensor, path: _to(tensor, wanted), lambda gradient, place: _to(gradient, wanted)
        )
    casts = {}
    if autocast is not None or executor.autocast is not None:
        casts = casts_of(machine, function, typed, autocast)
    gives = [output.dtype for output in device.outputs if isinstance(output, torch.Tensor)]
    # The input is converted to the type of its result before it goes through the call.
    rounds = bool(casts) or typed is not inputs
    if not rounds:
        return Given(inputs, inputs)

    def rounded(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        own = tensor.dtype
        if executor.dtype is not None:
            tensor = _to(tensor, dtype_of(executor.dtype))
        return _to(tensor if dtype is None else _to(tensor, dtype), own)

    def value(tensor: torch.Tensor, path: str) -> torch.Tensor:
        return rounded(tensor, casts.get(path))

    def gradient(tensor: torch.Tensor, place: int) -> torch.Tensor:
        return rounded(tensor, gives[place] if place < len(gives) else None)

    return Given(_changed(inputs, value, gradient), typed, casts)


def casts_of(
    machine: Machine, function: Callable[..., Any], inputs: Inputs, autocast: torch.dtype | None
) -> dict[str, torch.dtype]:
    """The arguments that autocast rounds to a coarser type inside of a call, by their paths; none if it cannot run.

    Kernels that call others below the dispatcher show no such copies. Those of a CPU are known by what they give: then
    all arguments of single precision count as rounded.
    """
    places: dict[int, str] = {}

    def own(tensor: torch.Tensor, path: str) -> torch.Tensor:
        copy = copy_with_strides(tensor.detach(), machine.device)
        if copy.is_floating_point() and copy.layout is torch.strided and copy.numel():
            places[copy.untyped_storage().data_ptr()] = path
        return copy

    args, kwargs = inputs.map(own)
    watch = _Casts(places)
    with contextlib.suppress(Exception), torch.no_grad(), machine.switched(autocast), watch:
        function(*args, **kwargs)
    asked = autocast if machine.executor.autocast is None else dtype_of(machine.executor.autocast)
    plain = machine.device.type == "cpu" and machine.executor.fault is None
    if watch.types or not plain or asked is None or not _rounds_inside(function, inputs, asked):
        return watch.types
    pairs = zip(inputs.paths(), inputs.tensors(), strict=True)
    return {path: asked for path, tensor in pairs if tensor.dtype is torch.float32}


def _rounds_inside(function: Callable[..., Any], inputs: Inputs, autocast: torch.dtype) -> bool:
    """True if the CPU gives other results under autocast than without it, by as much as its type rounds."""
    given = {tensor.dtype for tensor in inputs.tensors() if tensor.is_floating_point()}
    if given != {torch.float32}:
        return False
    alone = Inputs(inputs.args, inputs.kwargs)
    with contextlib.suppress(Exception):
        exact = run_call(function, alone, False).outputs
        with torch.autocast("cpu", dtype=autocast):
            rounded = run_call(function, alone, False).outputs
        pairs = [
            pair
            for pair in zip(exact, rounded, strict=True)
            if all(isinstance(tensor, torch.Tensor) for tensor in pair)
        ]
        size = sum(float(first.double().abs().nan_to_num(0.0).sum()) for first, _ in pairs)
        apart = sum(float((first.double() - other.double()).abs().nan_to_num(0.0).sum()) for first, other in pairs)
        return _LEAST_ROUNDED * size < apart < _MOST_ROUNDED * size
    return False


class _Casts(DispatchMode):  # type: ignore[misc]
    """Sees copies of arguments in coarser types. ``places``: memory of an argument -> its path."""

    def __init__(self, places: dict[int, str]) -> None:
        super().__init__()
        self._places = places
        self.types: dict[str, torch.dtype] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _COPIES and isinstance(result, torch.Tensor):
            source = args[1] if func._schema.name == "aten::copy_" else args[0]
            path = _place(source, self._places)
            if path is not None and eps_of(result.dtype) > eps_of(source.dtype):
                self.types[path] = result.dtype
        return result


def _place(source: Any, places: dict[int, str]) -> str | None:
    if not isinstance(source, torch.Tensor) or source.layout is not torch.strided:
        return None
    return places.get(source.untyped_storage().data_ptr())


def _to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() and dtype.is_floating_point else tensor


def _changed(
    inputs: Inputs,
    change: Callable[[torch.Tensor, str], torch.Tensor],
    change_gradient: Callable[[torch.Tensor, int], torch.Tensor],
) -> Inputs:
    """The same arguments with other numbers, as gradients that come in, which are counted over all results."""
    args, kwargs = inputs.map(change)
    if inputs.gradients is None:
        return Inputs(args, kwargs, None, inputs.wanted)
    count = iter(range(len(leaves_of(inputs.gradients))))

    def next_one(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [next_one(inner) for inner in value]
        place = next(count)
        return change_gradient(value, place) if isinstance(value, torch.Tensor) else value

    return Inputs(args, kwargs, [next_one(gradient) for gradient in inputs.gradients], inputs.wanted)
