"""The ranks that a collective exchanges data between."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msprobe.diagnose.steps.timeline import Event


def ranks_of_group(event: Event) -> tuple[int, ...]:
    """The ranks that take part in a collective; none where the record does not say."""
    for described in (event.record.get("process_group"), (event.record.get("input_kwargs") or {}).get("group")):
        ranks = described.get("group_ranks") if isinstance(described, dict) else None
        if isinstance(ranks, list) and ranks:
            try:
                members = _members(tuple(ranks))
            except TypeError:  # lists in it
                continue
            if members is not None:
                return members
    return ()


@lru_cache(4096)  # so that a group of a thousand ranks, which each of its calls names, is there once
def _members(ranks: tuple[Any, ...]) -> tuple[int, ...] | None:
    return ranks if all(isinstance(rank, int) for rank in ranks) else None
