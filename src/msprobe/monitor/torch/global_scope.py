"""Statistics of whole sharded tensors, from those of the shards: one reduction for each step and group of ranks.

Over the ranks that have parts of a tensor: norm is the root of the sum of squares, mean and share of zeros are weighted
by the number of elements, nans is the sum. All ranks of a group have to monitor the same tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.operators import Value
from msprobe.monitor.torch.flat_parameters import WholeParameter


class Shards:
    """The sharded tensors of a step."""

    def __init__(self, pieces: Mapping[int, WholeParameter]) -> None:
        # id(parameter) -> where it is whole, of those that are no DTensors.
        self._pieces = pieces
        # What holds the numbers of this rank's shard, what shall hold those of the whole, elements here.
        self._noted: dict[tuple[Any, ...], list[tuple[TensorCells, TensorCells, int]]] = {}

    def note(self, parameter: Any, tensor: torch.Tensor | None, cells: TensorCells | None) -> TensorCells | None:
        """The cells of the whole tensor that ``tensor``, of ``parameter``, is a shard of; those given where it is
        whole. Called for all that is sharded, also where this rank has nothing of it (None): so all ranks have the same
        to reduce.
        """
        piece = self._pieces.get(id(parameter))
        if piece is not None:
            groups, shape = piece.groups, piece.shape
        else:
            groups, shape = _groups_of(parameter if tensor is None else tensor), tuple(parameter.shape)
        if not groups:
            return cells
        whole = TensorCells(None, shape, str((parameter if tensor is None else tensor).dtype))
        here = TensorCells((), (0,), None) if cells is None else cells
        self._noted.setdefault(groups, []).append((here, whole, math.prod(here.shape or ())))
        return whole

    @property
    def is_empty(self) -> bool:
        """True if no tensor of this step is sharded."""
        return not self._noted

    def reduce(self, ops: Sequence[str], device: torch.device) -> None:
        """Fill in the numbers of the whole tensors; those of the shards have to be there. Every rank calls it."""
        noted, self._noted = self._noted, {}
        for groups, noted_shards in noted.items():
            sums = torch.tensor(
                [_sums(ops, shard.values or (), count) for shard, _, count in noted_shards], device=device
            )
            tops = torch.tensor(
                [_tops(ops, shard.values or (), count) for shard, _, count in noted_shards], device=device
            )
            for group in groups:
                torch.distributed.all_reduce(sums, group=group)
                torch.distributed.all_reduce(tops, op=torch.distributed.ReduceOp.MAX, group=group)
            for (_, whole, _), summed, top in zip(noted_shards, sums.tolist(), tops.tolist(), strict=True):
                if summed[-1]:
                    whole.values = tuple(_whole(op, summed[i], top[i], summed[-1]) for i, op in enumerate(ops))


def _groups_of(tensor: Any) -> tuple[Any, ...]:
    """The groups over which a DTensor is sharded; none of what is no DTensor."""
    placements, mesh = getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)
    if placements is None or mesh is None:
        return ()
    return tuple(mesh.get_group(place) for place, placement in enumerate(placements) if placement.is_shard())


def _sums(ops: Sequence[str], values: Sequence[Value], count: int) -> list[float]:
    if not values:
        return [0.0] * (len(ops) + 1)
    numbers: list[float] = []
    for op, value in zip(ops, values, strict=True):
        number = 0.0 if value is None or not count else float(value)
        numbers.append(number * number if op == "norm" else number * count if op in ("mean", "zeros") else number)
    return [*numbers, float(count)]


def _tops(ops: Sequence[str], values: Sequence[Value], count: int) -> list[float]:
    if not values:
        return [-math.inf] * len(ops)
    return [
        -math.inf if value is None or not count else -float(value) if op == "min" else float(value)
        for op, value in zip(ops, values, strict=True)
    ]


def _whole(op: str, summed: float, top: float, count: float) -> Value:
    if op == "norm":
        return math.sqrt(summed)
    if op in ("mean", "zeros"):
        return summed / count if count else math.nan
    if op == "projection":
        # Each shard has the signs from the beginning on.
        return math.nan
    if op == "nans":
        return int(summed)
    if math.isnan(summed):
        return math.nan
    return -top if op == "min" else top
