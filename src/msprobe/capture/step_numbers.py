"""A set of step numbers that stays small however long the training is."""

from __future__ import annotations

from collections.abc import Iterator


class StepNumbers:
    """Numbers that mostly come in order and evenly spaced: each such stretch takes the room of one number."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        # No number is in two of them.
        self._stretches: list[range] = []

    def add(self, number: int) -> None:
        """Add the number, if it is not there yet."""
        if number in self:
            return
        if self._stretches:
            last = self._stretches[-1]
            distance = number - last[-1]
            if distance == last.step or (distance > 0 and len(last) == 1):
                self._stretches[-1] = range(last[0], number + 1, distance)
                return
        self._stretches.append(range(number, number + 1))

    def __contains__(self, number: object) -> bool:
        # The last first: a training goes on where it was.
        return any(number in stretch for stretch in reversed(self._stretches))

    def __len__(self) -> int:
        return sum(map(len, self._stretches))

    def __iter__(self) -> Iterator[int]:
        """Stretch by stretch, which need not be in ascending order."""
        for stretch in self._stretches:
            yield from stretch
