"""Other values in the place of a tensor that the program goes on with: what is differentiated stays the same."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.capture.surroundings import check_is_alike


class _InPlaceOf(torch.autograd.Function):
    """Other values in the place of a tensor, whose gradient goes on to what computed it."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        """A copy of ``given``."""
        return given.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """All of it is of the tensor that was replaced."""
        return gradient, None


def in_place_of(own: Any, given: Any) -> Any:
    """``given`` in the place of a result: each tensor in it is copied, as the program may write to what it gets. Raises
    ValueError for a tensor of another shape or type.
    """
    if isinstance(given, torch.Tensor):
        check_is_alike(own, given, torch.Tensor, "result")
        return _tensor_in_place_of(own, given)
    if isinstance(given, (list, tuple)) and type(given) is type(own) and len(given) == len(own):
        items = [in_place_of(mine, other) for mine, other in zip(own, given, strict=True)]
        return type(given)(*items) if hasattr(given, "_fields") else type(given)(items)
    if isinstance(given, dict) and isinstance(own, dict) and given.keys() == own.keys():
        return {key: in_place_of(own[key], other) for key, other in given.items()}
    return given


def gradient_in_place_of(own: torch.Tensor, given: Any) -> torch.Tensor:
    """``given`` in the place of a gradient on its way back: copied, as the engine adds to what it has in place, with
    the strides of the own one. Raises ValueError for what is no tensor of its shape, type and device.
    """
    check_is_alike(own, given, torch.Tensor, "gradient")
    if type(given) is not torch.Tensor or given.layout is not torch.strided:
        raise ValueError("what was given for the gradient is no plain tensor")
    if given.device != own.device:
        raise ValueError(f"the gradient is on {own.device}, and what was given for it on {given.device}")
    if given.requires_grad or own.requires_grad:
        # Of a backward pass that is to be differentiated.
        return _tensor_in_place_of(own, given)
    return torch.empty_like(own).copy_(given)


def _tensor_in_place_of(own: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    if given.requires_grad:
        return given
    found: torch.Tensor = _InPlaceOf.apply(own, given) if own.requires_grad else given.clone()  # type: ignore[no-untyped-call]
    return found
