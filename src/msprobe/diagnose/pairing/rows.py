"""The pairs of the verdict, for those who show records or their rows side by side: sheets and graphs.

Of two runs in one framework, rows answer to each other by their place in records that do. What follows is for the
sheet of a run in MindSpore and one in PyTorch.

The names of rows do not answer to each other there. A row answers to the one whose value the verdict compares its own
with; what the verdict leaves out (the calls inside layers that both frameworks have, those that ask for shapes) has no
partner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msprobe.compare.rows import Rows, slots_of
from msprobe.diagnose.differences.records import pair_slots
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.pairing.step import Paired, pair_timelines
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Slot, Timeline
from msprobe.store.part import DumpPart

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings

#: The name of a record, and a slot in it: what identifies a row.
Place = tuple[str, str]


def partners_of_verdict(
    candidate: Rows, reference: Rows, parts: tuple[DumpPart, DumpPart], mappings: Mappings | None = None
) -> dict[str, str]:
    """The row of the reference that each row of the candidate answers to, by name, as the verdict pairs them.

    ``mappings``: names of functions and modules that are given, from MindSpore's to PyTorch's.
    """
    mine, theirs = _names(candidate), _names(reference)
    return {
        mine[place]: theirs[other] for place, other in _places(parts, mappings) if place in mine and other in theirs
    }


def records_of_verdict(candidate: DumpPart, reference: DumpPart) -> dict[str, str]:
    """The record of the reference that each record of the candidate answers to, by name, as the verdict pairs them."""
    timelines: list[Timeline] = []
    with no_collection():
        try:
            timelines += [Timeline(part) for part in (candidate, reference)]
            partner = pair_timelines(timelines[0], timelines[1]).pairing.partner
            return {left.name: right.name for left, right in partner.items()}
        finally:
            for timeline in timelines:
                timeline.close()


def _names(rows: Rows) -> dict[Place, str]:
    entries = map(rows.entries.__getitem__, rows.entry.tolist())
    return dict(zip(zip(entries, rows.slot, strict=True), rows.name, strict=True))


def _places(parts: tuple[DumpPart, DumpPart], mappings: Mappings | None) -> list[tuple[Place, Place]]:
    with no_collection():
        timelines = Timeline(parts[0], one_by_one=True), Timeline(parts[1], one_by_one=True)
        # Values know their rows by being the same objects: their slots, records and calls get other names.
        mine, theirs = _rows_of_values(timelines[0]), _rows_of_values(timelines[1])
        kept = [event.record for timeline in timelines for event in timeline]
        try:
            pairs = [
                (mine[id(leaf)], theirs[id(other)])
                for (_, leaf), (_, other) in _slots(pair_timelines(*timelines, mappings))
                if id(leaf) in mine and id(other) in theirs
            ]
        finally:
            for timeline in timelines:
                timeline.close()
        del kept
        return pairs


def _rows_of_values(timeline: Timeline) -> dict[int, Place]:
    """The row of each object that describes a value. Gradients of arguments have those of equal ones among the rows."""
    rows: dict[int, Place] = {}
    for event in timeline:
        # Reading them puts other objects into the record, which stay.
        event.inputs(), event.parameters(), event.outputs()
        slots = list(slots_of(event.name, event.record))
        rows.update((id(leaf), (event.name, slot)) for slot, leaf in slots)
        for leaf in _gradients_by_argument(event.record):
            same = next((slot for slot, other in slots if slot.startswith("output") and other == leaf), None)
            if same is not None:
                rows[id(leaf)] = event.name, same
    return rows


def _gradients_by_argument(record: dict[str, Any]) -> Iterator[Any]:
    for key in ("input_grads", "kwargs_grads"):
        gradients = record.get(key)
        if isinstance(gradients, dict):
            yield from gradients.values()


def _slots(paired: Paired) -> Iterator[tuple[Slot, Slot]]:
    for event, partner in paired.pairing.partner.items():
        for left, right in (
            *answering_slots(event, partner, paired.crossing),
            (event.parameters(), partner.parameters()),
        ):
            yield from pair_slots(left, right)[0]
