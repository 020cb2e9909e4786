"""Tensors of ranks, made of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from unit.diagnose.dumps import statistics

from msprobe.diagnose.layout.blocks import TensorBlock


def block(array: np.ndarray, rank: int = 0, values: bool = True) -> TensorBlock:
    found = statistics(array)
    numbers = (found["Max"], found["Min"], found["Mean"], found["Norm"])
    leaf = {"dtype": f"torch.{array.dtype}", "shape": list(array.shape), **found}
    return TensorBlock((rank,), leaf["dtype"], array.shape, numbers, leaf, lambda: array if values else None)


def blocks(arrays: Sequence[np.ndarray], values: bool = True) -> list[TensorBlock]:
    return [block(array, rank, values) for rank, array in enumerate(arrays)]
