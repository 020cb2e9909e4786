"""Tensors of PyTorch beside recorded values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from msprobe import log
from msprobe.capture.torch.replacing import in_place_of, local_part
from msprobe.guard import pass_on


class TorchValues:
    """See :class:`msprobe.lockstep.pairing.Values`."""

    def shape(self, tensor: Any) -> tuple[int, ...]:
        return tuple(tensor.shape)

    def unit(self, tensor: Any) -> float:
        dtype = local_part(tensor).dtype
        return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0

    def is_floating(self, tensor: Any) -> bool:
        return bool(tensor.is_floating_point() or tensor.is_complex())

    def equals(self, tensor: Any, array: Any) -> bool:
        """NaN is equal to NaN."""
        own = local_part(tensor).detach()
        if tuple(own.shape) != tuple(array.shape):
            return False
        other = self.like(own, array)
        return bool(torch.equal(own, other)) or (
            (own.is_floating_point() or own.is_complex())
            and bool(torch.equal(own.isnan(), other.isnan()))
            and bool(torch.equal(own.nan_to_num(), other.nan_to_num()))
            # An infinity is no largest number, which `nan_to_num` takes it for.
            and bool(torch.equal(own.isinf(), other.isinf()))
        )

    def like(self, tensor: Any, array: Any) -> torch.Tensor:
        own = local_part(tensor)
        # A copy: the array may be a file that is mapped, which nobody can write to.
        like = torch.from_numpy(np.array(array, order="C", copy=True))
        other = like.to(own.device, own.dtype)
        if own.is_floating_point() and like.element_size() > own.element_size():
            # The largest numbers of a wider type, as masks have them, stay the largest.
            largest = torch.finfo(own.dtype).max
            beyond = other.isinf() & like.to(own.device).isfinite()
            other = torch.where(beyond, other.clamp(-largest, largest), other)
        return other

    def apart(self, tensor: Any, other: Any) -> float:
        own = local_part(tensor).detach()
        if not (own.is_floating_point() or own.is_complex()):
            return 0.0 if torch.equal(own, other) else math.inf
        finite = torch.isfinite(other)
        if not bool(finite.all()):
            if not torch.equal(own[~finite].nan_to_num(0.5), other[~finite].nan_to_num(0.5)):
                return math.inf
            own, other = own[finite], other[finite]
        wide = torch.complex128 if own.is_complex() else torch.float64
        own, other = own.to(wide), other.to(wide)
        apart, size = float((own - other).norm()), float(other.norm())
        if not math.isfinite(apart):
            return math.inf
        return apart / size if size else (math.inf if apart else 0.0)

    def size(self, tensor: Any) -> float:
        own = local_part(tensor).detach()
        return float(own.double().norm()) / math.sqrt(max(1, own.numel()))

    def fits(self, tensor: Any, other: Any) -> bool:
        return bool(local_part(tensor).shape == other.shape)

    def arguments(self, args: Sequence[Any], kwargs: Any) -> list[tuple[str, Any]]:
        arguments: list[tuple[str, Any]] = []
        for number, value in enumerate(args):
            _collect(value, f"input.{number}", arguments)
        for word, value in kwargs.items():
            _collect(value, f"kwargs.{word}", arguments)
        return arguments

    def results(self, result: Any) -> list[tuple[str, Any]]:
        results: list[tuple[str, Any]] = []
        _collect(result, "output" if isinstance(result, tuple) else "output.0", results)
        return results

    def replaced(self, value: Any, path: str, given: Mapping[str, Any]) -> Any:
        return _mapped(value, path, lambda tensor, place: given.get(place))

    def linked(self, tensor: Any, other: Any) -> Any:
        with torch.enable_grad():
            return in_place_of(tensor, other)

    def put(self, value: Any, path: str, given: Mapping[str, Any]) -> Any:
        return _mapped(value, path, lambda tensor, place: given.get(place, tensor))

    def made_again(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, given: Mapping[str, Any], writes: bool
    ) -> dict[str, Any] | None:

        def taken(tensor: torch.Tensor, path: str) -> torch.Tensor:
            own: torch.Tensor = given.get(path, tensor)
            # What needs no gradient may be written to, as running averages are.
            return own.clone() if writes or not own.requires_grad else own

        if writes and any(argument._is_view() for _, argument in self.arguments(args, kwargs)):
            return None  # what it is a view of would stay as it is
        try:
            # The hooks of a checkpoint count what is saved.
            with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, _as_it_is):
                own_args = [_mapped(argument, f"input.{n}", taken) for n, argument in enumerate(args)]
                own_kwargs = {word: _mapped(argument, f"kwargs.{word}", taken) for word, argument in kwargs.items()}
                return dict(self.results(function(*own_args, **own_kwargs)))
        except Exception as error:
            pass_on(error)
            log.debug(f"lockstep: a call could not be made on its own values: {type(error).__name__}: {error}")
            return None


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _mapped(value: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value, path)
    if isinstance(value, (list, tuple)):
        items = [_mapped(element, f"{path}.{n}", change) for n, element in enumerate(value)]
        if type(value) in (list, tuple):
            return type(value)(items)
        return type(value)(*items) if hasattr(value, "_fields") else items
    if type(value) is dict:
        return {key: _mapped(element, f"{path}.{key}", change) for key, element in value.items()}
    return value


def _collect(value: Any, path: str, tensors: list[tuple[str, Any]]) -> None:
    if isinstance(value, torch.Tensor):
        tensors.append((path, value))
    elif isinstance(value, (list, tuple)):
        for number, element in enumerate(value):
            _collect(element, f"{path}.{number}", tensors)
    elif isinstance(value, dict):
        for key, element in value.items():
            _collect(element, f"{path}.{key}", tensors)
