"""What tensors have to do with each other whose values both sides wrote to files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe.diagnose.differences.tensor_pass import ComparedTensors, compare_tensors, digest_of, dot, values_difference
from msprobe.store.part import DumpPart

if TYPE_CHECKING:
    from msprobe.store.values import Room

__all__ = ["TensorFiles", "dot", "values_difference"]

#: A file by its device and number there: equal tensors of a dump are one file with several names.
_Place = tuple[int, int]


class TensorFiles:
    """Reads the tensor files of two parts; each pair once."""

    def __init__(self, candidate: DumpPart, reference: DumpPart) -> None:
        self._parts = candidate, reference
        self._rooms: tuple[Room, Room] | None = None
        self._measured: dict[tuple[str, str], ComparedTensors | None] = {}
        self._compared: dict[tuple[_Place, _Place], ComparedTensors | None] = {}

    def measured(self, left: str, right: str) -> ComparedTensors | None:
        """What the values in two files are to each other; None where one cannot be read."""
        key = left, right
        if key not in self._measured:
            self._measured[key] = self._measure(left, right)
        return self._measured[key]

    def delta(self, left: str, right: str) -> float | None:
        """The relative distance of the values in two files; None where one cannot be read or has other elements."""
        measured = self.measured(left, right)
        return None if measured is None else measured.delta

    def values(self, left: str, right: str) -> tuple[Any, Any] | None:
        """The values of two tensors, flat; None where one cannot be read."""
        first, other = self._parts[0].array(left), self._parts[1].array(right)
        return None if first is None or other is None else (first.ravel(), other.ravel())

    def _measure(self, left: str, right: str) -> ComparedTensors | None:
        first, other = self._parts[0].tensor_place(left), self._parts[1].tensor_place(right)
        if first is None or other is None:
            self.values(left, right)  # which notes that they could not be read
            return None
        if (first, other) not in self._compared:
            self._compared[first, other] = self._pass_over(left, right)
        return self._compared[first, other]

    def _pass_over(self, left: str, right: str) -> ComparedTensors | None:
        if self._rooms is None:
            from msprobe.store.values import Room  # numpy, see below

            self._rooms = Room(), Room()
        pair = [
            part.array(name, room) for part, name, room in zip(self._parts, (left, right), self._rooms, strict=True)
        ]
        return None if any(place is None for place in pair) else compare_tensors(*map(flat, pair))


def flat(array: Any) -> Any:
    """The elements of an array in C order, contiguous and aligned, as no file need have them, without the class of a
    mapped file, whose pieces cost more than what is done with them.
    """
    import numpy as np  # a dump without tensor files is compared without it, which takes a third of the start

    return np.asarray(np.require(array, requirements=("C", "ALIGNED"))).reshape(-1)


def digest_of_file(part: DumpPart, name: str, room: Room) -> tuple[str, int] | None:
    """The digest of the values in a file, and how many there are; None where it cannot be read. ``room``: for its
    bytes.
    """
    array = part.array(name, room)
    return None if array is None else (digest_of(flat(array)), array.size)
