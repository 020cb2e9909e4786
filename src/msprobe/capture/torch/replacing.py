"""Other values in the place of a tensor that the program goes on with: what is differentiated stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from msprobe.capture.listener_support import check_is_alike
from msprobe.messages import said


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


def written(own: Any, given: Any, kept: Sequence[torch.Tensor], forget: Callable[[torch.Tensor], None]) -> Any:
    """The result ``own`` with the values of ``given``: written into its memory, or in its place where that is the
    memory of one of ``kept``; where ``given`` is None it stays as it is. Raises ValueError for another shape.
    """
    if given is None:
        return own
    if isinstance(own, torch.Tensor) and isinstance(given, torch.Tensor):
        if _is_own_memory(own, kept):
            write(own, given, forget)
            return own
        _check_shape(own, given)
        return _tensor_in_place_of(own, given.to(own.device, own.dtype).detach())
    if isinstance(own, (list, tuple)) and isinstance(given, (list, tuple)) and len(own) == len(given):
        items = [written(mine, other, kept, forget) for mine, other in zip(own, given, strict=True)]
        if all(item is other for item, other in zip(items, own, strict=True)):
            return own
        return type(own)(*items) if hasattr(own, "_fields") else type(own)(items)
    if isinstance(own, dict) and isinstance(given, dict) and own.keys() == given.keys():
        changed = {key: written(own[key], other, kept, forget) for key, other in given.items()}
        return own if all(changed[key] is own[key] for key in own) else changed
    raise ValueError(said("replaced-result-of-type", type(own).__name__, type(given).__name__))


def write(own: Any, given: torch.Tensor, forget: Callable[[torch.Tensor], None]) -> None:
    """Write the values of ``given`` into a tensor, of a distributed one into this rank's share. The version of the
    tensor stays: what nodes of the graph have saved of it is theirs all the same. Raises ValueError for another shape.
    """
    local = local_part(own)
    _check_shape(local, given)
    with torch.no_grad():
        # Not `detach()`, whose writes are counted.
        local.data.copy_(given)
    forget(local)


def local_part(tensor: Any) -> Any:
    """This rank's share of a distributed tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def _check_shape(own: Any, given: Any) -> None:
    if not isinstance(own, torch.Tensor) or own.shape != given.shape:
        shape = list(own.shape) if isinstance(own, torch.Tensor) else type(own).__name__
        raise ValueError(said("written-shape-differs", list(given.shape), shape))


def _is_own_memory(own: torch.Tensor, kept: Sequence[torch.Tensor]) -> bool:
    """Whether the elements of ``own`` are no elements of ``kept``, and each of them lies by itself."""
    own, kept = local_part(own), [local_part(tensor) for tensor in kept]
    if own.layout is not torch.strided or any(
        step == 0 and size > 1 for step, size in zip(own.stride(), own.shape, strict=True)
    ):
        return False
    place = own.untyped_storage().data_ptr()
    return not any(
        local.layout is torch.strided and local.untyped_storage().data_ptr() == place != 0
        for local in kept
        if local.numel()
    )


def gradient_in_place_of(own: torch.Tensor, given: Any) -> torch.Tensor:
    """``given`` in the place of a gradient on its way back: copied, as the engine adds to what it has in place, with
    the strides of the own one. Raises ValueError for what is no tensor of its shape, type and device.
    """
    check_is_alike(own, given, torch.Tensor, "gradient")
    if type(given) is not torch.Tensor or given.layout is not torch.strided:
        raise ValueError(said("replaced-gradient-not-plain"))
    if given.device != own.device:
        raise ValueError(said("replaced-gradient-device", own.device, given.device))
    if given.requires_grad or own.requires_grad:
        # Of a backward pass that is to be differentiated.
        return _tensor_in_place_of(own, given)
    return torch.empty_like(own).copy_(given)


def _tensor_in_place_of(own: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    if given.requires_grad:
        return given
    tensor: torch.Tensor = _InPlaceOf.apply(own, given) if own.requires_grad else given.clone()  # type: ignore[no-untyped-call]
    return tensor
