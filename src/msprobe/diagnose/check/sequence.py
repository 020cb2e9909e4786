"""Ranks that make other collectives than their group: where a training hangs, or adds up what does not belong together.

The ranks of a group must make the same collectives in the same order. One that makes another, or none, waits for the
rest or is waited for; where the names are the same and the tensors are not, the sums are wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msprobe.diagnose.check.across import Across
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.places import ranks_in_words
from msprobe.diagnose.steps.communication import Rank
from msprobe.messages import said

#: Names, APIs and forms of what a rank calls over one group, in order.
Calls = Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class _Parting:
    """Where a rank leaves what most ranks of its group do: the number of the call over the group."""

    number: int
    rank: Rank
    usual: Rank


def check(across: Across) -> Iterable[Finding]:
    """For each group the first call at which a rank does something else than most. Of groups whose record does not name
    their ranks, and of messages between two, nothing is known.
    """
    for group, calls in across.exchange.by_group():
        parting = _parting(calls, across.exchange.may_go_on) if len(calls) > 1 else None
        if parting is not None:
            yield _finding(across, group, calls, parting)


def _parting(calls: Mapping[Rank, Calls], may_go_on: Mapping[Rank, bool]) -> _Parting | None:
    sequences = {rank: tuple((word, form) for _, word, form in own) for rank, own in calls.items()}
    counts = Counter(sequences.values())
    if len(counts) == 1:
        return None
    most = max(counts.values())
    usual = next(rank for rank, own in sequences.items() if counts[own] == most)
    departures = [
        _Parting(number, rank, usual)
        for rank, own in sequences.items()
        if (number := _first_other(own, sequences[usual])) is not None
        # A recording that ended early says nothing of what would have come.
        and not (number >= len(own) and may_go_on[rank])
        and not (number >= len(sequences[usual]) and may_go_on[usual])
    ]
    return min(departures, key=lambda departure: departure.number, default=None)


def _first_other(own: Sequence[object], usual: Sequence[object]) -> int | None:
    """The place at which two sequences part; None if they are the same."""
    for number, (call, other) in enumerate(zip(own, usual, strict=False)):
        if call != other:
            return number
    return min(len(own), len(usual)) if len(own) != len(usual) else None


def _finding(across: Across, group: tuple[int, ...], calls: Mapping[Rank, Calls], parting: _Parting) -> Finding:
    number, rank, usual = parting.number, parting.rank, parting.usual
    own, theirs = calls[rank], calls[usual]
    same = [rank for rank, names in calls.items() if names[number : number + 1] == theirs[number : number + 1]]
    others = ranks_in_words(same if usual in same else [usual])
    members = ranks_in_words(group)
    if not own:
        message = said(
            "collective-missing-on-rank",
            rank, members, theirs[number][0], others
        )  # fmt: skip
    elif number >= len(own):
        message = said(
            "collective-missing-after",
            rank, members, own[-1][0], theirs[number][0], others
        )  # fmt: skip
    elif number >= len(theirs):
        message = said(
            "collective-alone",
            rank, own[number][0], members, others
        )  # fmt: skip
    elif own[number][1] != theirs[number][1]:
        message = said(
            "collectives-differ",
            rank, own[number][0], members, theirs[number][0], others
        )  # fmt: skip
    else:
        message = said(
            "collective-inputs-differ",
            rank, own[number][2], own[number][0], theirs[number][2], others
        )  # fmt: skip
    # Where it makes no further call, its last one is the place to look at; or the first of those that wait for it.
    if number < len(own) or own:
        where, name = rank, own[min(number, len(own) - 1)][0]
    else:
        where, name = usual, theirs[number][0]
    return across.finding(
        where,
        name,
        "collective",
        message,
        evidence={
            "group": members,
            "call_of_group": number,
            "calls_by_rank": {str(rank): len(names) for rank, names in calls.items()},
        },
    )
