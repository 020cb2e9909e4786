"""An effect beyond rounding that no call by itself is to blame for."""

from __future__ import annotations

import math

from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.evidence import Because, Fact, ResultFact, SeenFact
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.tolerance import units
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def beyond_rounding(scene: Scene, reach: Reach, allowed: float) -> Suspect | None:
    """That a step is further apart than rounding explains, reported at the call where the difference grows most.
    ``allowed``: what rounding may do.
    """
    if reach.size <= allowed or not scene.judged:
        return None
    growing = [
        call
        for call in scene.judged.values()
        if call.changed_outputs and math.isfinite(call.output_difference) and not call.behind
    ]
    worst = max(growing or scene.judged.values(), key=_growth)
    event = worst.event
    size = f"{reach.size:.2g}" if math.isfinite(reach.size) else "more than any number"
    verb = "differs" if reach.what.startswith("the ") else "differ"
    text = said("beyond-rounding", reach.what, verb, size, allowed)
    facts: tuple[Fact, ...] = (Because("beyond"), ResultFact(reach.size, allowed))
    if worst.changed_outputs:
        text += said("grows-most-in", event.name, worst.input_difference, worst.output_difference)
        facts = (*facts, SeenFact(worst.changed_outputs[0]))
    finding = scene.finding(event, "computation", text, where=event.name, facts=facts)
    return Suspect(finding, event.index, clear=True, matters=True)


def _growth(judged: Judged) -> float:
    """How many times more comes out of a call than went in; calls of the model before others."""
    event = judged.event
    if not judged.changed_outputs or not event.is_call or event.direction == "gradient":
        return 0.0
    unit = units.unit(event.outputs(), judged.partner.outputs()) or 1.0
    return judged.output_difference / max(judged.input_difference, unit)
