"""Calls of one side alone that no value speaks for: where none was recorded, or where nothing that they give differs
and a gradient comes back through them (a penalty that is zero in the first step, a pass that the other side lacks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.words import named
from msprobe.diagnose.evidence import Listed, OneSide
from msprobe.diagnose.origin.calls_alone import most_informative
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import said


def look_for_lone_calls(scene: Scene) -> None:
    """Suspect each row of forward calls that one side alone makes, where nobody knows what becomes of them."""
    if scene.has_values:
        return
    # Two frameworks move values in ways of their own.
    quiet = operators.IDLE | operators.MOVES if scene.comparer.crossing else operators.IDLE
    for side, message in zip(scene.sides, ("extra-calls", "missing-calls"), strict=True):
        forward = [event for event in side.alone if event.direction == "forward" and not _is_around(event, side)]
        for row in rows_of_calls(forward):
            informative = next((event for event in row if operation(event.stem) not in quiet), None)
            if informative is None:
                continue
            text = said("changes-not-recorded", said(message, named(row)))
            facts = (Listed("calls", [event.name for event in row]),)
            scene.add(informative, "structure", text, facts=facts, place=scene.place_of(row[0]))


def _is_around(event: Event, side: StepSide) -> bool:
    """True for a module around calls that the other side makes, too: what is its own among them speaks for itself."""
    return event.is_module and any(not side.is_alone(child) or _is_around(child, side) for child in event.children)


def rows_of_calls(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events that stand in a row in the same module pass; what runs in a module of one side is reported with it."""
    row: list[Event] = []
    alone = set(events)
    for event in events:
        if event.parent in alone:
            continue
        if row and (event.parent is not row[-1].parent or event.index > row[-1].index + 1 + len(list(event.inside()))):
            yield row
            row = []
        row.append(event)
    if row:
        yield row


def look_for_lone_gradients(scene: Scene) -> None:
    """Doubt the first such calls: they are to blame if the gradients are apart beyond rounding and nothing else is."""
    if scene.comparer.crossing or not scene.has_values or scene.ledger.doubts:
        return
    if any(suspect.finding.kind == "structure" for suspect in scene.ledger.suspects):
        return
    alone, missing = (_trained(scene, side) for side in scene.sides)
    if not alone and not missing:
        return
    entry = most_informative(alone or missing)
    if alone and missing:
        text = said("replaced-calls", named(alone), named(missing))
    else:
        text = said("extra-calls", named(alone)) if alone else said("missing-calls", named(missing))
    sides = OneSide(tuple(event.name for event in alone), tuple(event.name for event in missing))
    begun = len(scene.ledger)
    scene.add(entry, "structure", text, facts=(sides,), place=scene.place_of((alone or missing)[0]))
    scene.ledger.doubt(begun)


def _trained(scene: Scene, side: StepSide) -> list[Event]:
    """The calls through which a gradient comes back: the first in a row, or all that a pass of one side alone has."""
    calls = [event for event in side.alone if event.direction == "forward" and event.is_call]
    trained = [event for event in calls if side.timeline.backward_of(event) is not None]
    return next(rows_of_calls(trained), []) if scene.same_passes else trained
