"""Calls of one side alone that a gradient comes back through, where nothing that they give is another number.

A penalty that is zero in the first step has a gradient; so has a whole pass that the other side leaves out.
"""

from __future__ import annotations

from msprobe.diagnose.differences.words import named
from msprobe.diagnose.evidence import OneSide
from msprobe.diagnose.origin.calls_alone import most_informative
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import Side
from msprobe.diagnose.origin.structure import rows_of_calls
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import said


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


def _trained(scene: Scene, side: Side) -> list[Event]:
    """The calls through which a gradient comes back: the first in a row, or all that a pass of one side alone has."""
    calls = [event for event in side.alone if event.direction == "forward" and event.is_call]
    trained = [event for event in calls if side.timeline.backward_of(event) is not None]
    return next(rows_of_calls(trained), []) if scene.same_passes else trained
