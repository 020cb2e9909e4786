"""How alike two directions are: the share of elements that point the same way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.errors import InvalidInputError
from msprobe.messages import said

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Similarity:
    """Of ``count`` elements ``equal`` point the same way; ``moving`` of them are not zero on one side or the other, of
    which ``moving_equal`` do. The latter two are None where the files do not distinguish zeros from negative elements.
    """

    equal: int
    count: int
    moving_equal: int | None = None
    moving: int | None = None

    @property
    def value(self) -> float | None:
        """``equal / count``; None of nothing."""
        return self.equal / self.count if self.count else None

    @property
    def moving_value(self) -> float | None:
        """The same of the elements that are not zero on both sides."""
        return self.moving_equal / self.moving if self.moving and self.moving_equal is not None else None


def compare_directions(first_direction: Array, other: Array, shape: tuple[int, ...] | None) -> Similarity:
    """Compare two directions, of whatever form. ``shape``: of the gradient, which packed ones do not know.

    Raises InvalidInputError if they do not have the same shape.
    """
    if first_direction.dtype == other.dtype == np.int8:
        _check_shapes(first_direction.shape, other.shape)
        moving = (first_direction != 0) | (other != 0)
        same = first_direction == other
        return Similarity(
            int(np.count_nonzero(same)),
            first_direction.size,
            *map(int, (np.count_nonzero(same & moving), moving.sum())),
        )
    left, right = _positive(first_direction, shape), _positive(other, shape)
    if first_direction.dtype == np.uint8 or other.dtype == np.uint8:
        left, right = left.reshape(-1), right.reshape(-1)
    _check_shapes(left.shape, right.shape)
    return Similarity(int(np.count_nonzero(left == right)), left.size)


def _positive(direction: Array, shape: tuple[int, ...] | None) -> Array:
    """Which elements are positive."""
    if direction.dtype == np.uint8:
        if shape is None:
            raise InvalidInputError(said("direction-needs-shape"))
        count = math.prod(shape)
        if direction.ndim != 1 or direction.size != (count + 7) // 8:
            raise InvalidInputError(said("direction-shape-wrong", direction.size, list(shape)))
        return np.unpackbits(direction, count=count).view(np.bool_)
    if direction.dtype == np.int8:
        return np.equal(direction, 1)
    return direction


def _check_shapes(first_shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    if first_shape != other:
        raise InvalidInputError(said("direction-shapes-differ", list(first_shape), list(other)))
