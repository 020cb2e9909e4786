"""What tensors have to do with each other whose values both sides wrote to files."""

from __future__ import annotations

import os
from typing import Any

from msprobe.diagnose.differences.tensor_pass import Measured, TensorPass, digest_of, dot, values_difference
from msprobe.errors import MsprobeError
from msprobe.store.part import DumpPart

__all__ = ["TensorFiles", "dot", "values_difference"]

#: A file by its device and number there: equal tensors of a dump are one file with several names.
_Place = tuple[int, int]


class TensorFiles:
    """Reads the tensor files of two parts; each pair once."""

    def __init__(self, candidate: DumpPart, reference: DumpPart) -> None:
        self._parts = candidate, reference
        self._pass = TensorPass()
        self._measured: dict[tuple[str, str], Measured | None] = {}
        self._of_places: dict[tuple[_Place, _Place], Measured | None] = {}

    def measured(self, left: str, right: str) -> Measured | None:
        """What the values in two files are to each other; None where one cannot be read."""
        key = left, right
        if key not in self._measured:
            self._measured[key] = self._measure(left, right)
        return self._measured[key]

    def delta(self, left: str, right: str) -> float | None:
        """The relative distance of the values in two files; None where one cannot be read or has other elements."""
        found = self.measured(left, right)
        return None if found is None else found.delta

    def values(self, left: str, right: str) -> tuple[Any, Any] | None:
        """The values of two tensors, flat; None where one cannot be read."""
        one, other = self._parts[0].array(left), self._parts[1].array(right)
        return None if one is None or other is None else (one.ravel(), other.ravel())

    def _measure(self, left: str, right: str) -> Measured | None:
        places = _place(self._parts[0], left), _place(self._parts[1], right)
        one, other = places
        if one is None or other is None:
            self.values(left, right)  # which notes that they could not be read
            return None
        if (one, other) not in self._of_places:
            pair = self.values(left, right)
            self._of_places[one, other] = None if pair is None else self._pass.over(*map(flat, pair))
        return self._of_places[one, other]


def flat(array: Any) -> Any:
    """The elements of an array in C order, contiguous, without the class of a mapped file, whose pieces cost more than
    what is done with them.
    """
    import numpy as np  # a dump without tensor files is compared without it, which takes a third of the start

    return np.asarray(np.ascontiguousarray(array)).reshape(-1)


def digest_of_file(part: DumpPart, name: str) -> tuple[str, int] | None:
    """The digest of the values in a file, and how many there are; None where it cannot be read."""
    array = part.array(name)
    return None if array is None else (digest_of(flat(array)), array.size)


def _place(part: DumpPart, name: str) -> _Place | None:
    try:
        found = os.stat(part.tensor_path(name))
    except (MsprobeError, OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
