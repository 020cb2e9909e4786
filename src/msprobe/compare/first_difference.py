"""Which call of which rank differs first, over the order that communication gives to the ranks.

Each call has a time: how many communications lie before it, on its own rank or on one that this rank has heard from
(a logical clock). Of all calls that differ, those with the least time are named; of one rank, the first. What differs
before a communication cannot come from another rank, so it is named even if the communication carried it everywhere.

Source of what counts as different, and of the names of communications: ``-da`` of mindstudio-probe 26.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.compare.comparison import RowComparison
from msprobe.compare.entry_names import read_name
from msprobe.compare.measures_statistics import Mask
from msprobe.compare.rows import OUTPUT, Rows
from msprobe.compare.verdicts import DIFFERENT
from msprobe.store.handed_through import is_of_the_call_before

# Percent by which a statistic of a result may be off.
_MOST_RELATIVE = 50.0
# Their memory holds anything before it is written to.
_IGNORED = ("Torch.empty", "Torch.fill", "Tensor.__setitem__")
_COMMUNICATION = re.compile(
    r"(?:Distributed|DistCommFunc|Mint(?:Distributed)?|GraphMintFunctional)\.(?:.*\.)?(?P<kind>i?send|i?recv|broadcast|"
    r"all_reduce|_?all_gather|gather|_?scatter|_?reduce_scatter|reduce|all_to_all|batch_isend_irecv|barrier)\w*\."
)
_PARTNER_SLOTS = {
    "send": ("input.dst", "input.group_dst", "input.1"),
    "recv": ("input.src", "input.group_src", "input.1"),
}

# Name of a communication -> its kind, and the ranks that take part.
Speaks = dict[str, tuple[str, frozenset[str]]]


@dataclass(frozen=True)
class RankCall:
    """One call of one rank: whether its results differ, and how many communications of its rank lie before it."""

    name: str
    differs: bool
    communication: bool


@dataclass(frozen=True)
class FirstDifference:
    """A call that differs first; ``time`` counts the communications before it."""

    rank: str
    name: str
    time: int


def calls_of(comparison: RowComparison) -> list[RankCall]:
    """The calls of one rank in their order, without those whose results mean nothing."""
    ours = comparison.candidate
    differ = differing_rows(comparison)
    calls = []
    ends = np.append(ours.starts, len(ours))[1:]
    for first, end in zip(ours.starts.tolist(), ends.tolist(), strict=True):
        name = ours.entries[int(ours.entry[first])]
        if name.count(".") < 3 or name.startswith(_IGNORED):
            continue
        differs = bool(differ[first:end].any())
        if differs and read_name(name).direction == "backward":
            differs = not is_of_the_call_before(comparison.parts[0], name)
        calls.append(RankCall(name, differs, is_communication(name)))
    return calls


def differing_rows(comparison: RowComparison) -> Mask:
    """Results of calls of which a statistic is off by more than half of the reference's, or the digest differs."""
    ours = comparison.candidate
    made = (ours.state == OUTPUT) & comparison.pairing.matched
    attention = np.array(["npu_fusion_attention" in name for name in ours.entries], np.bool_)
    if attention.any():
        # These results hold the state of random numbers.
        extra = np.array([slot in ("output.4", "output.5") for slot in ours.slot], np.bool_)
        made &= ~(attention[ours.entry] & extra)
    if comparison.mode == "md5":
        is_different = made & np.array([word == DIFFERENT for word in comparison.verdict], np.bool_)
    else:
        measures = comparison.statistics
        with np.errstate(invalid="ignore"):
            relative = np.where(measures.difference == 0, 0.0, measures.relative)
            off = (measures.comparable & (relative > _MOST_RELATIVE)).any(axis=0)
        is_different = made & (off | measures.new_nonfinite | ~comparison.agreement.shape)
    return np.asarray(is_different)


def is_communication(name: str) -> bool:
    """True for calls that speak with other ranks."""
    return _COMMUNICATION.match(name) is not None


def participants(comparison: RowComparison, ranks: Sequence[str], rank: str) -> Speaks:
    """For each communication of a rank its kind and the ranks it speaks with, itself included.

    A call that names neither group nor partner speaks with all ranks.
    """
    rows, part = comparison.candidate, comparison.parts[0]
    known = {_number_of(name): name for name in ranks}
    speakers: Speaks = {}
    ends = np.append(rows.starts, len(rows))[1:]
    for first, end in zip(rows.starts.tolist(), ends.tolist(), strict=True):
        name = rows.entries[int(rows.entry[first])]
        match = _COMMUNICATION.match(name)
        if match is None or read_name(name).direction == "backward":
            continue
        kind = match["kind"]
        numbers = _partners(rows, range(first, end), kind) or _group_of(part.record(name))
        speaks = {known[number] for number in numbers if number in known}
        if not speaks:
            speaks = set(ranks) if kind.lstrip("i") not in _PARTNER_SLOTS else set()
        speakers[name] = (kind.lstrip("i_"), frozenset(speaks | {rank}))
    return speakers


def _partners(rows: Rows, places: range, kind: str) -> list[int]:
    slots = _PARTNER_SLOTS.get(kind.lstrip("i"), ())
    for place in places:
        slot, number = rows.slot[place], rows.numbers[0, place]
        if slots and slot in slots and number == number and not rows.is_tensor[place]:
            return [int(number)]
    if kind == "batch_isend_irecv":
        return [int(rows.numbers[0, place]) for place in places if rows.slot[place].endswith(".peer")]
    for place in places:
        if rows.dtypes[rows.dtype[place]] == "torch.ProcessGroup" and place in rows.texts:
            return [int(word) for word in re.findall(r"\d+", rows.texts[place])]
    return []


def _group_of(record: Any) -> list[int]:
    """The ranks of the group that our recorder notes, also where no argument names it."""
    group = record.get("process_group") if isinstance(record, dict) else None
    ranks = group.get("group_ranks") if isinstance(group, dict) else None
    return [number for number in ranks if type(number) is int] if isinstance(ranks, list) else []


def _number_of(rank: str) -> int:
    digits = rank.removeprefix("rank")
    return int(digits) if digits.isdigit() else 0


def communication_times(calls: Mapping[str, Sequence[RankCall]], speaks: Mapping[str, Speaks]) -> dict[str, list[int]]:
    """The time of each call of each rank: the communications that lie before it, its own excluded.

    Communications happen when all of their ranks have come to one with the same ranks; where that never is, the one
    that lies furthest back goes on alone.
    """
    queues = {
        rank: [index for index, call in enumerate(own) if call.name in speaks[rank]] for rank, own in calls.items()
    }
    clock = dict.fromkeys(calls, 0)
    place = dict.fromkeys(calls, 0)
    after: dict[str, dict[int, int]] = {rank: {} for rank in calls}

    def waiting(rank: str) -> str | None:
        queue = queues[rank]
        return calls[rank][queue[place[rank]]].name if place[rank] < len(queue) else None

    while any(place[rank] < len(queues[rank]) for rank in calls):
        ready = _ready(calls, speaks, waiting)
        if not ready:
            behind = min((rank for rank in calls if waiting(rank)), key=lambda rank: (clock[rank], rank))
            ready = frozenset((behind,))
        time = max(clock[rank] for rank in ready) + 1
        for rank in ready:
            after[rank][queues[rank][place[rank]]] = time
            clock[rank] = time
            place[rank] += 1
    return {rank: _times(len(own), after[rank]) for rank, own in calls.items()}


def _ready(
    calls: Mapping[str, Sequence[RankCall]], speaks: Mapping[str, Speaks], waiting: Callable[[str], str | None]
) -> frozenset[str]:
    """Ranks that have all come to a communication with each other; empty if there is none."""
    for rank in calls:
        name = waiting(rank)
        if name is None:
            continue
        _, group = speaks[rank][name]
        theirs = {other: waiting(other) for other in group}
        if all(there is not None and speaks[other][there][1] == group for other, there in theirs.items()):
            return group
    return frozenset()


def _times(count: int, after: Mapping[int, int]) -> list[int]:
    times = []
    now = 0
    for index in range(count):
        times.append(now)
        now = after.get(index, now)
    return times


def first_differences(comparisons: Mapping[str, RowComparison]) -> list[FirstDifference]:
    """The calls that differ first, one of each rank that has one so early; empty if nothing differs."""
    calls = {rank: calls_of(comparison) for rank, comparison in comparisons.items()}
    ranks = list(calls)
    speaks = {rank: participants(comparison, ranks, rank) for rank, comparison in comparisons.items()}
    times = communication_times(calls, speaks)
    differences = []
    for rank, own in calls.items():
        for call, time in zip(own, times[rank], strict=True):
            if call.differs:
                # A communication comes after all calls of its time, on whatever rank.
                differences.append(((time, call.communication), FirstDifference(rank, call.name, time)))
                break
    if not differences:
        return []
    least = min(key for key, _ in differences)
    return [difference for key, difference in differences if key == least]
