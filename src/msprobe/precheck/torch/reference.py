"""The trusted side: the same arguments in higher precision on the CPU, and how far rounding of them reaches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.precheck.generate import generator_for
from msprobe.precheck.side.places import (
    Elementwise,
    TakenOver,
    add_distance,
    add_ordinary_errors,
    are_labels,
)
from msprobe.precheck.side.trees import leaves_of, map_tree
from msprobe.precheck.side.types import CONSTANTS
from msprobe.precheck.torch.inputs import Inputs, for_device
from msprobe.precheck.torch.machine import Outcome, run_call

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
    types = float_types(inputs)
    halves = [dtype for dtype in types if dtype is not torch.float32]
    if len(types) > 1:
        return halves[0]
    if len(types) == 1 and recorded:
        first = CONSTANTS["torch.dtype"].get(recorded[0])
        if first in (torch.float16, torch.bfloat16) and first is not types[0]:
            return first  # type: ignore[no-any-return]
        if first is torch.float32 and halves:
            return halves[0]
    return None


def promoted(inputs: Inputs, api: str, double: bool) -> Inputs:
    """The arguments of the reference: in double precision, or as 8.1.1 promotes them."""
    types = float_types(inputs)

    def target(dtype: torch.dtype) -> torch.dtype:
        if double:
            return torch.float64 if dtype.is_floating_point else _UP.get(dtype, dtype)
        if dtype is torch.float32 and api in _FP32_STAYS:
            return dtype
        if len(types) > 1 and dtype in _COUNTED:
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

    gradients = (
        None if inputs.gradients is None else [map_tree(gradient, "", up_gradient) for gradient in inputs.gradients]
    )
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


@dataclass
class MeasuredMovement:
    """What disturbed calls show of each result of the reference, by ``output.0`` and the paths of gradients.

    ``moved``: how far each element moves. ``elementwise``: results whose elements depend only on what is at the same
    place in the arguments. ``taken``: where a result that computes nothing has numbers of the arguments.
    """

    moved: dict[str, Any] = field(default_factory=dict)
    elementwise: frozenset[str] = frozenset()
    taken: dict[str, torch.Tensor] = field(default_factory=dict)
    #: What an ordinary kernel of the same type gave that is not the candidate's, by the same names.
    ordinary: dict[str, Any] = field(default_factory=dict)


def by_name(outcome: Outcome) -> dict[str, Any]:
    """Results and gradients of a call by the names of :class:`MeasuredMovement`."""
    return {**{f"output.{place}": output for place, output in enumerate(outcome.outputs)}, **outcome.gradients}


def disturbed(
    function: Callable[..., Any], inputs: Inputs, reference: Outcome, eps: float, key: str, seed: int
) -> MeasuredMovement:
    """How far each element of the reference moves when its inputs are off by up to ``eps`` of their size, and what
    else that reports the results.

    The largest of a few draws. Inputs are made smaller only, so that they stay in their domain (a probability stays
    below 1). Nothing where the disturbed call fails.
    """
    moved: dict[str, Any] = {}
    elementwise, taken_over = Elementwise(), TakenOver()
    for draw in range(_DRAWS + 1):
        # What moves numbers has them move everywhere, so that a constant is known by not moving.
        everywhere = draw == _DRAWS
        if everywhere and not taken_over.places:
            break
        random = torch.Generator().manual_seed(int(generator_for(key, f"disturb {draw}", seed).integers(1 << 62)))
        touched: list[torch.Tensor] = []
        given: list[torch.Tensor] = []

        def off(
            tensor: torch.Tensor,
            path: str,
            random: torch.Generator = random,
            touched: list[torch.Tensor] = touched,
            given: list[torch.Tensor] = given,
            least: int = int(everywhere),
        ) -> torch.Tensor:
            if not (tensor.is_floating_point() or tensor.is_complex()):
                return tensor
            share = torch.randint(least, 2, tensor.shape, generator=random, dtype=torch.int8)
            if are_labels(tensor):
                share.zero_()
            touched.append(share)
            given.append(tensor * (1 - eps * share))
            return given[-1]

        args, kwargs = inputs.map(off)
        gradients = None if inputs.gradients is None else [map_tree(gradient, "", off) for gradient in inputs.gradients]
        with contextlib.suppress(Exception):
            again = run_call(function, Inputs(args, kwargs, gradients, inputs.wanted), bool(reference.gradients))
            pairs = [
                (f"output.{place}", *both)
                for place, both in enumerate(zip(reference.outputs, again.outputs, strict=True))
            ]
            pairs += [(path, old, again.gradients.get(path)) for path, old in reference.gradients.items()]
            for name, old, new in pairs:
                taken_over.see(name, old, new, given, everywhere)
                if not everywhere:
                    add_distance(moved, name, old, new)
                    elementwise.see(name, old, new, touched)
    return MeasuredMovement(moved, elementwise.names, taken_over.places)


def add_distances(moved: dict[str, Any], reference: Outcome, again: Outcome) -> None:
    """Widen how far each element moves by another run of the reference, whose draws are off by a unit of rounding."""
    others = by_name(again)
    for name, value in by_name(reference).items():
        add_distance(moved, name, value, others.get(name))


def add_errors_of(ordinary: Outcome, moved: dict[str, Any], reference: Outcome, inputs: Inputs, eps: float) -> None:
    """Widen what is allowed by what an ordinary kernel of the same type loses (:func:`add_ordinary_errors`)."""
    pairs = [(f"output.{n}", *both) for n, both in enumerate(zip(reference.outputs, ordinary.outputs, strict=False))]
    pairs += [(path, value, ordinary.gradients.get(path)) for path, value in reference.gradients.items()]
    add_ordinary_errors(moved, pairs, [*inputs.tensors(), *leaves_of(inputs.gradients or [])], eps)


def units_at(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance from each number (in double precision) to the next of a float type."""
    eps = eps_of(dtype) or eps_of(torch.float32)
    least = float(torch.finfo(dtype).tiny) if dtype.is_floating_point else 0.0
    size = values.abs().nan_to_num(0.0, 0.0, 0.0).clamp(min=least or 2.0**-1022)
    return torch.exp2(torch.floor(torch.log2(size))) * eps
