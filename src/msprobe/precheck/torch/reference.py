"""The trusted side: the same arguments in higher precision on the CPU, and how far rounding of them reaches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.precheck.generate import generator_for
from msprobe.precheck.torch.inputs import Inputs, for_device, map_tree
from msprobe.precheck.torch.machine import Outcome, flat_outputs, run_call

_COUNTED = (torch.float16, torch.bfloat16, torch.float32)
_LEGACY = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
_UP = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
_NO_PROMOTION = frozenset(("type_as",))
_FP32_STAYS = frozenset(("conv1d", "conv2d"))
_DRAWS = 2


def eps_of(dtype: torch.dtype) -> float:
    """The unit of rounding of a float or complex type; 0 for others."""
    if dtype.is_floating_point or dtype.is_complex:
        return float(torch.finfo(dtype).eps)
    return 0.0


def float_types(inputs: Inputs) -> list[torch.dtype]:
    """The types fp16, bf16 and fp32 among the arguments, each once."""
    return list(dict.fromkeys(tensor.dtype for tensor in inputs.tensors() if tensor.dtype in _COUNTED))


def autocast_of(inputs: Inputs, recorded: list[str]) -> torch.dtype | None:
    """The type in which the recorded call was autocast; None for none.

    A call of several float types, or whose results have another type than its arguments, ran under autocast: losses
    and norms give single precision of half types there, which without it they do not.
    """
    found = float_types(inputs)
    halves = [dtype for dtype in found if dtype is not torch.float32]
    if len(found) > 1:
        return halves[0]
    if len(found) == 1 and recorded:
        first = getattr(torch, recorded[0], None)
        if first in (torch.float16, torch.bfloat16) and first is not found[0]:
            return first  # type: ignore[no-any-return]
        if first is torch.float32 and halves:
            return halves[0]
    return None


def promoted(inputs: Inputs, api: str, double: bool) -> Inputs:
    """The arguments of the reference: in double precision, or as 8.1.1 promotes them."""
    found = float_types(inputs)

    def target(dtype: torch.dtype) -> torch.dtype:
        if double:
            return torch.float64 if dtype.is_floating_point else _UP.get(dtype, dtype)
        if dtype is torch.float32 and api in _FP32_STAYS:
            return dtype
        if len(found) > 1 and dtype in _COUNTED:
            return torch.float32
        return _LEGACY.get(dtype, dtype)

    def up(tensor: torch.Tensor, path: str) -> torch.Tensor:
        return tensor.to(target(tensor.dtype))

    if api in _NO_PROMOTION and not double:
        args, kwargs = inputs.args, inputs.kwargs
    else:
        args, kwargs = inputs.map(up)
    if double:
        args, kwargs = _wide_types(args), _wide_types(kwargs)

    def up_gradient(tensor: torch.Tensor, path: str) -> torch.Tensor:
        if double:
            return tensor.to(torch.float64 if tensor.is_floating_point() else _UP.get(tensor.dtype, tensor.dtype))
        return tensor.to(_LEGACY.get(tensor.dtype, tensor.dtype))

    gradients = None if inputs.gradients is None else [map_tree(one, "", up_gradient) for one in inputs.gradients]
    device = torch.device("cpu")
    return Inputs(for_device(args, device), for_device(kwargs, device), gradients, inputs.wanted)


def _wide_types(value: Any) -> Any:
    """Types among the arguments (``dtype=torch.float32``) would round the reference: float64 in their place."""
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else _UP.get(value, value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(_wide_types(item) for item in value)
    if isinstance(value, dict):
        return {name: _wide_types(item) for name, item in value.items()}
    return value


class Elementwise:
    """Which results have elements that depend only on what is at the same place in the arguments.

    Seen from disturbed calls: where all arguments are left alone at a place, the result there stays what it was, and
    elsewhere it moves. Results of another shape do not count.
    """

    def __init__(self) -> None:
        self._stays: dict[str, bool] = {}

    def see(self, name: str, old: Any, new: Any, touched: list[torch.Tensor]) -> None:
        """One result of an undisturbed and a disturbed call; ``touched`` says where each argument was disturbed."""
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or old.shape != new.shape:
            return
        if old.layout is not torch.strided or self._stays.get(name) is False:
            return
        alone = torch.ones(old.shape, dtype=torch.bool)
        for share in touched:
            if share.dim() > old.dim() or any(n not in (1, m) for n, m in zip(share.shape[::-1], old.shape[::-1])):  # noqa: B905
                self._stays[name] = False
                return
            alone &= share == 0
        moved = (old != new) & ~(old.isnan() & new.isnan())
        if bool(alone.any()) and bool(moved.any()):
            self._stays[name] = not bool((moved & alone).any())

    @property
    def names(self) -> frozenset[str]:
        """Those results: ``output.0``, or the path of an argument for its gradient."""
        return frozenset(name for name, stays in self._stays.items() if stays)


@dataclass
class Movement:
    """How far each result of the reference moves, by ``output.0`` and the paths of gradients."""

    moved: dict[str, Any] = field(default_factory=dict)
    elementwise: frozenset[str] = frozenset()


def disturbed(
    function: Callable[..., Any], inputs: Inputs, reference: Outcome, eps: float, key: str, seed: int
) -> Movement:
    """How far each element of the reference moves when its inputs are off by up to ``eps`` of their size.

    The largest of a few draws. Inputs are made smaller only, so that they stay in their domain (a probability stays
    below 1). Nothing where the disturbed call fails.
    """
    moved: dict[str, Any] = {}
    elementwise = Elementwise()
    for draw in range(_DRAWS):
        random = torch.Generator().manual_seed(int(generator_for(key, f"disturb {draw}", seed).integers(1 << 62)))
        touched: list[torch.Tensor] = []

        def off(
            tensor: torch.Tensor,
            path: str,
            random: torch.Generator = random,
            touched: list[torch.Tensor] = touched,
        ) -> torch.Tensor:
            if not (tensor.is_floating_point() or tensor.is_complex()):
                return tensor
            share = torch.randint(0, 2, tensor.shape, generator=random, dtype=torch.int8)
            if _are_labels(tensor):
                share.zero_()
            touched.append(share)
            return tensor * (1 - eps * share)

        args, kwargs = inputs.map(off)
        gradients = None if inputs.gradients is None else [map_tree(one, "", off) for one in inputs.gradients]
        with contextlib.suppress(Exception):
            again = run_call(function, Inputs(args, kwargs, gradients, inputs.wanted), bool(reference.gradients))
            pairs = [
                (f"output.{place}", *both)
                for place, both in enumerate(zip(reference.outputs, again.outputs, strict=True))
            ]
            pairs += [(path, old, again.gradients.get(path)) for path, old in reference.gradients.items()]
            for name, old, new in pairs:
                _note(moved, name, old, new)
                elementwise.see(name, old, new, touched)
    return Movement(moved, elementwise.names)


def _are_labels(tensor: torch.Tensor) -> bool:
    """True for a tensor of -1, 0 and 1 alone: classes, signs and masks, which are another thing when they are off."""
    if tensor.layout is not torch.strided or tensor.is_complex():
        return False
    return bool(((tensor == 0) | (tensor.abs() == 1)).all())


#: Of the error of an ordinary kernel of the same type counts this part, so that eight times as much passes.
_ORDINARY_SHARE = 0.25


def add_ordinary_errors(
    moved: dict[str, Any], reference: Outcome, ordinary: Outcome, inputs: Inputs, eps: float
) -> None:
    """Widen what is allowed by what an ordinary kernel of the same type, that of the CPU, loses at each place.

    Rounding inside of a call is not seen by disturbing its inputs: where a result cancels exactly, any kernel leaves
    some. No more counts than the square root of ``eps`` at the size of results and inputs, half of the digits: a CPU
    kernel that is wrong does not excuse another.
    """
    sizes = [_size_of(value) for value in (*inputs.tensors(), *reference.outputs, *reference.gradients.values())]
    sizes += [_size_of(value) for value in flat_outputs(inputs.gradients or [])]
    limit = math.sqrt(eps) * max(sizes, default=0.0)
    pairs = [(f"output.{n}", *both) for n, both in enumerate(zip(reference.outputs, ordinary.outputs, strict=False))]
    pairs += [(path, value, ordinary.gradients.get(path)) for path, value in reference.gradients.items()]
    for name, ours, theirs in pairs:
        if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor) or ours.numel() == 0:
            continue
        if not (ours.is_floating_point() or ours.is_complex()) or ours.layout is not torch.strided:
            continue
        lost: dict[str, Any] = {}
        _note(lost, name, ours, theirs.to(ours.dtype))
        if name in lost:
            error = lost[name].clamp(max=limit)
            error = torch.maximum(error, error.median()) * _ORDINARY_SHARE
            if theirs.is_floating_point():
                # At the edge of the type even an ordinary kernel gives infinity for a number that would still fit.
                near_edge = ours.abs() >= torch.finfo(theirs.dtype).max / 2
                error = error.masked_fill(theirs.double().isinf() & near_edge, math.inf)
            moved[name] = torch.maximum(moved[name], error) if name in moved else error


def _size_of(value: Any) -> float:
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.layout is not torch.strided:
        return 0.0
    if not (value.is_floating_point() or value.is_complex()):
        return 0.0
    size = value.detach().abs().double().nan_to_num(0.0, 0.0, 0.0).max()
    return float(size)


def _note(moved: dict[str, Any], name: str, old: Any, new: Any) -> None:
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        old, new = torch.tensor(float(old)), torch.tensor(float(new))
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or old.shape != new.shape:
        return
    if old.is_complex():
        old, new = torch.view_as_real(old.resolve_conj()), torch.view_as_real(new.resolve_conj())
    if not old.is_floating_point():
        distance = (old != new).to(torch.float64)
    else:
        distance = torch.nan_to_num((old.double() - new.double()).abs(), nan=0.0, posinf=0.0)
    moved[name] = torch.maximum(moved[name], distance) if name in moved else distance
