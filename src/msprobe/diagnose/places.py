"""Places that are reported in a row: the first of them, and how many there are besides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msprobe.messages import joined, said

_SHOWN = 5
_SHOWN_RUNS = 8


def ranks_in_words(ranks: Iterable[int | str]) -> str:
    """``0-4, 6, 7``, with as many parts as fit in a line.

    >>> ranks_in_words([0, 1, 2, 3, 4, 6, 7])
    '0-4, 6, 7'
    """
    runs: list[list[int | str]] = []
    for rank in ranks:
        last = runs[-1][-1] if runs else None
        if isinstance(rank, int) and isinstance(last, int) and rank == last + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs[:_SHOWN_RUNS]]
    more = sum(map(len, runs[_SHOWN_RUNS:]))
    listed = ", ".join(shown)
    return said("named-and-more", listed, more) if more else listed


@dataclass
class Places:
    """The first of many places in words, and how many they are."""

    first: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, place: str) -> None:
        """One place more."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(place)

    def __str__(self) -> str:
        more = self.count - len(self.first)
        return joined("; ", self.first) + (said("and-more", more) if more else "")
