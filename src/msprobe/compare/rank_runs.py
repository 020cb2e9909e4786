"""The ranks of a group as text: a list of all of them in each cell would cost the square of their number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

#: So many ranks are written one by one, as viewers show them in a menu; of more, all are named together.
MOST_LISTED = 32


def group_text(ranks: Any) -> Any:
    """The ranks of a process group as a cell has them: as they are, or in runs where they are many and ascending."""
    if not isinstance(ranks, list) or len(ranks) <= MOST_LISTED + 1:
        return ranks
    if set(map(type, ranks)) != {int}:
        return ranks
    text = _text_of(tuple(ranks))
    return ranks if text is None else text


@lru_cache(64)
def _text_of(ranks: tuple[int, ...]) -> str | None:
    """The runs of a group, which each of its calls on each rank asks for; None if its ranks do not ascend."""
    return in_runs(ranks) if all(rank < other for rank, other in pairwise(ranks)) else None


def in_runs(ranks: Sequence[int]) -> str:
    """Ranks as text, those in equal distances as one run: ``0-1023``, or ``0-1016/8`` for each eighth.

    >>> in_runs([0, 1, 2, 3, 9]), in_runs([0, 8, 16, 24]), in_runs([5])
    ('0-3, 9', '0-24/8', '5')
    """
    numbers = sorted(ranks)
    words: list[str] = []
    at = 0
    while at < len(numbers):
        end = at + 1
        step = numbers[end] - numbers[at] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if end - at < 3:
            end = at + 1  # two ranks are no run
        distance = "" if step == 1 else f"/{step}"
        words.append(str(numbers[at]) if end == at + 1 else f"{numbers[at]}-{numbers[end - 1]}{distance}")
        at = end
    return ", ".join(words)
