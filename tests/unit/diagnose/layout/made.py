"""Tensors of ranks, made of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from unit.diagnose.dumps import statistics

from msprobe.diagnose.layout.blocks import Block


def block(array: np.ndarray, rank: int = 0, values: bool = True) -> Block:
    found = statistics(array)
    numbers = (found["Max"], found["Min"], found["Mean"], found["Norm"])
    leaf = {"dtype": f"torch.{array.dtype}", "shape": list(array.shape), **found}
    return Block((rank,), leaf["dtype"], array.shape, numbers, leaf, lambda: array if values else None)


def blocks(arrays: Sequence[np.ndarray], values: bool = True) -> list[Block]:
    return [block(array, rank, values) for rank, array in enumerate(arrays)]
