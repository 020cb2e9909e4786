"""The part of a script that says how far rounding moves each element of a result; the pre-check itself uses it, too.

Scripts have it, too. What a call does at each place is seen from
*disturbed* calls: the reference, computed again with arguments that are smaller by a unit of rounding at random places.
"""

from __future__ import annotations

import math
from typing import Any

import torch

#: Of the error of an ordinary kernel of the same type counts this part, so that eight times as much passes.
_ORDINARY_SHARE = 0.25
#: Tensors of more elements are not looked through for numbers that are taken over.
_MOST_SEARCHED = 1 << 24


class Elementwise:
    """Which results have elements that depend only on what is at the same place in the arguments.

    Where all arguments are left alone at a place, the result there stays what it was, and elsewhere it moves. Results
    of another shape do not count.
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
        moved = differing(old, new)
        if bool(alone.any()) and bool(moved.any()):
            self._stays[name] = not bool((moved & alone).any())

    @property
    def names(self) -> frozenset[str]:
        """Those results: ``output.0``, or the path of an argument for its gradient."""
        return frozenset(name for name, stays in self._stays.items() if stays)


class TakenOver:
    """Which results take numbers of the arguments over and compute none, as ``transpose``, ``where`` and ``max`` do.

    In each disturbed call every element that moves is one of the disturbed numbers, up to its sign. What does not move
    is a constant, as the zeros of ``relu``; where all arguments were disturbed everywhere, it is so for sure, as the
    border of ``pad``, and has nothing to round either.
    """

    def __init__(self) -> None:
        self._places: dict[str, torch.Tensor] = {}
        self._computed: set[str] = set()
        self._everywhere: set[str] = set()

    def see(self, name: str, old: Any, new: Any, given: list[torch.Tensor], everywhere: bool = False) -> None:
        """One result of an undisturbed and a disturbed call, whose float arguments were ``given``; ``everywhere``: all
        of their elements are disturbed.
        """
        if everywhere:
            self._everywhere.add(name)
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or old.shape != new.shape:
            return
        if not new.is_floating_point() or new.layout is not torch.strided or name in self._computed:
            return
        moved = differing(old, new)
        sizes = new.detach()[moved].abs()
        if not sizes.numel():
            return
        inputs = [tensor.detach().flatten() for tensor in given if tensor.is_floating_point() and not tensor.is_sparse]
        # Almost all calls compute, which one element shows.
        value = sizes[0]
        is_taken = sum(tensor.numel() for tensor in inputs) + new.numel() <= _MOST_SEARCHED
        is_taken = is_taken and any(bool(((tensor == value) | (tensor == -value)).any()) for tensor in inputs)
        if is_taken:
            taken = torch.isin(new.detach().abs(), torch.cat([tensor.to(sizes.dtype) for tensor in inputs]).abs())
            is_taken = not bool((moved & ~taken).any())
        if not is_taken:
            self._computed.add(name)
            return
        self._places[name] = self._places[name] & taken if name in self._places else taken

    @property
    def places(self) -> dict[str, torch.Tensor]:
        """Where each such result has numbers of the arguments or a constant, which is everywhere: ``output.0``, or the
        path of an argument.
        """
        return {name: torch.ones_like(places) for name, places in self._places.items() if name not in self._computed}


def units_taken_over(dtype: torch.dtype, is_gradient: bool) -> float:
    """By how many units of its type a number may be off that is taken over: it has nothing to round.

    A wider type may have been computed with, as by an interpolation to the same size; and a gradient that comes to the
    same may be made in two steps, as that of a product by a division.
    """
    return 2.0 if is_gradient else 1.0 if dtype in (torch.float32, torch.float64) else 0.0


def differing(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Where two tensors differ; NaN equals itself."""
    return (old != new) & ~(old.isnan() & new.isnan())


def add_distance(moved: dict[str, Any], name: str, old: Any, new: Any) -> None:
    """Note how far apart two results are at each place, the largest of all that are noted under a name."""
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


def add_ordinary_errors(
    moved: dict[str, Any], pairs: list[tuple[str, Any, Any]], given: list[torch.Tensor], eps: float
) -> None:
    """Widen what is allowed by what an ordinary kernel of the same type, that of the CPU, loses at each place.

    ``pairs``: name, the reference's result and that of the kernel; ``given``: the arguments. Rounding inside of a call
    is not seen by disturbing its inputs: where a result cancels exactly, any kernel leaves some. No more counts than
    the square root of ``eps`` at the size of results and inputs, half of the digits: a CPU kernel that is wrong does
    not excuse another.
    """
    sizes = [size_of(value) for value in (*given, *(ordinary for _, ordinary, _ in pairs))]
    limit = math.sqrt(eps) * max(sizes, default=0.0)
    for name, ours, theirs in pairs:
        if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor) or ours.numel() == 0:
            continue
        if not (ours.is_floating_point() or ours.is_complex()) or ours.layout is not torch.strided:
            continue
        lost: dict[str, Any] = {}
        add_distance(lost, name, ours, theirs.to(ours.dtype))
        if name in lost:
            error = lost[name].clamp(max=limit)
            error = torch.maximum(error, error.median()) * _ORDINARY_SHARE
            if theirs.is_floating_point():
                # At the edge of the type even an ordinary kernel gives infinity for a number that would still fit.
                near_edge = ours.abs() >= torch.finfo(theirs.dtype).max / 2
                error = error.masked_fill(theirs.double().isinf() & near_edge, math.inf)
            moved[name] = torch.maximum(moved[name], error) if name in moved else error


def size_of(value: Any) -> float:
    """The largest finite number of a tensor of float or complex numbers, by its size; 0 for all else."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.layout is not torch.strided:
        return 0.0
    if not (value.is_floating_point() or value.is_complex()):
        return 0.0
    size = value.detach().abs().double().nan_to_num(0.0, 0.0, 0.0).max()
    return float(size)


def are_labels(tensor: torch.Tensor) -> bool:
    """True for a tensor of -1, 0 and 1 alone: classes, signs and masks, which are another thing when they are off."""
    if tensor.layout is not torch.strided or tensor.is_complex():
        return False
    return bool(((tensor == 0) | (tensor.abs() == 1)).all())
