"""Weights that have two names: one storage under both, or a copy that was saved beside it (a tied head)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from msprobe.environment.checkpoint.contents import Checkpoint
from msprobe.environment.checkpoint.naming import pair_up
from msprobe.environment.checkpoint.tensors import CheckpointTensor, FileTensor
from msprobe.errors import MsprobeError
from msprobe.messages import said

_NUMBER = re.compile(r"\d+")
# Values that two weights have by chance alike are few: ones of a norm, zeros of a bias.
_LEAST_DISTINCT = 3


def place_in_file(tensor: CheckpointTensor) -> tuple[Any, ...] | None:
    """Where the elements lie; two tensors at one place are one. None for those that lie in no file."""
    if not isinstance(tensor, FileTensor):
        return None
    return tensor.path, tensor.start, tensor.offset, tensor.shape, tensor.strides


def copies(weights: dict[str, CheckpointTensor], wanted: Collection[str] | None = None) -> dict[str, str]:
    """Name -> an earlier name of the same values, for those of ``wanted`` (None: all).

    A copy at another place counts where its values are not so few that any weight may have them, and where the names
    are no two numbers of one name: layers that begin alike are copies and are different weights.
    """
    twins: dict[str, str] = {}
    by_shape: dict[tuple[tuple[int, ...], str], list[str]] = defaultdict(list)
    for name, tensor in weights.items():
        others = by_shape[tensor.shape, tensor.dtype]
        if wanted is None or name in wanted:
            twin = next((other for other in others if _is_copy(other, weights[other], name, tensor)), None)
            if twin is not None:
                twins[name] = twin
        if wanted is None or name not in wanted:
            others.append(name)
    return twins


def without_copies(checkpoint: Checkpoint, other: Checkpoint) -> tuple[Checkpoint, list[str]]:
    """``checkpoint`` without the weights that ``other`` keeps once, under one of their names; and notes that say so."""
    pairs = pair_up(checkpoint.weights, other.weights)
    alone = {pair.name for pair in pairs if pair.second is None}
    if not alone or len(alone) == len(checkpoint.weights):
        return checkpoint, []
    ordered = {
        **{name: weight for name, weight in checkpoint.weights.items() if name not in alone},
        **checkpoint.weights,
    }
    twins = copies(ordered, alone)
    if not twins:
        return checkpoint, []
    slim = replace(
        checkpoint,
        weights={name: tensor for name, tensor in checkpoint.weights.items() if name not in twins},
        optimizer={
            name: tensor
            for name, tensor in checkpoint.optimizer.items()
            if (stem := name.rpartition(".")[0]) not in twins
            or f"{twins[stem]}.{name[len(stem) + 1 :]}" not in checkpoint.optimizer
        },
    )
    return slim, [said("weight-kept-twice", checkpoint.path, name, twin) for name, twin in twins.items()]


def _is_copy(name: str, first: CheckpointTensor, other_name: str, second: CheckpointTensor) -> bool:
    place = place_in_file(first)
    if place is not None and place == place_in_file(second):
        return True
    if first.numel < _LEAST_DISTINCT or _NUMBER.sub("", name) == _NUMBER.sub("", other_name):
        return False
    try:
        a, b = first.read(), second.read()
        if not np.array_equal(a.reshape(-1)[:64], b.reshape(-1)[:64]):
            return False
        return bool(np.array_equal(a, b)) and len(np.unique(a.reshape(-1)[: 1 << 16])) >= _LEAST_DISTINCT
    except (MsprobeError, MemoryError, ValueError, TypeError):
        return False
