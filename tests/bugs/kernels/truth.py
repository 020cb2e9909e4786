"""Which call is wrong first: the first whose result has other bits than on the same device without the fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Event, Timeline

from .whole import Key, Tensors, part_of, slots_of


@dataclass(frozen=True)
class Truth:
    """``entry``: the record that is wrong first. ``same``: others that show the same bits and may be named as well: a
    module that this call runs in, the call in it whose gradient it hands on, a gradient that is one of its results.
    """

    entry: str
    same: frozenset[str]

    def accepts(self, entry: str | None) -> bool:
        """True if this record is named."""
        return entry is not None and (entry == self.entry or entry in self.same)


def first_wrong(healthy: Path, faulty: Path) -> Truth | None:
    """None where no result of any call differs. Both are recordings of one device."""
    with no_collection():
        return _first_wrong(healthy, faulty)


def _first_wrong(healthy: Path, faulty: Path) -> Truth | None:
    ours, theirs = Tensors.read(healthy).digests, Tensors.read(faulty).digests
    part = part_of(faulty)
    timeline = Timeline(part, one_by_one=True)
    try:
        for event in _as_computed(timeline):
            changed = [
                name
                for name, _ in slots_of(event)
                if name.startswith("out:") and _differs(ours, theirs, (event.name, name))
            ]
            if changed:
                wrong = {theirs.get((event.name, name)) for name in changed}
                same = set()
                for other in timeline:
                    shown = (name for name, _ in slots_of(other) if name.startswith("out:"))
                    bits = {theirs[other.name, n] for n in shown if _differs(ours, theirs, (other.name, n))}
                    if bits & wrong and _are_one(event, other):
                        same.add(other.name)
                return Truth(event.name, frozenset(same))
        return None
    finally:
        timeline.close()
        part.close()


def _as_computed(timeline: Timeline) -> list[Event]:
    """All records, gradients of parameters behind the last backward call: a weight that several modules share has its
    own only then, and its record stands with the first of them.
    """
    last = max((place for place, event in enumerate(timeline) if event.direction == "backward"), default=-1)
    placed = [(last + 0.5 if event.direction == "gradient" else place, event) for place, event in enumerate(timeline)]
    return [event for _, event in sorted(placed, key=lambda one: one[0])]


def _differs(ours: dict[Key, str], theirs: dict[Key, str], key: Key) -> bool:
    return ours.get(key) != theirs.get(key)


def _are_one(event: Event, other: Event) -> bool:
    """True if one runs in the other, or gives it the gradients of its parameters."""
    forward = [one.name.replace(".backward", ".forward") for one in (event, other)]
    if other.direction == "gradient":
        return True
    if event.is_module and other.is_module:
        return event.parts.path.startswith(other.parts.path) or other.parts.path.startswith(event.parts.path)
    inner, outer = (event, other) if other.is_module else (other, event)
    return forward[0] != forward[1] and outer.is_module and inner.module == outer.parts.path
