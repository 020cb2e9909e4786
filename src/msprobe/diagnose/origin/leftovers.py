"""Gradients of the step before that nothing cleared, where the optimizer gets them: see :mod:`.leftover`."""

from __future__ import annotations

from msprobe.diagnose.evidence import Because, NamedFact, SeenFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.tolerance.effect import unit_of
from msprobe.diagnose.tolerance.means import least_to_look_at
from msprobe.messages import said


def look_for_leftovers(scene: Scene) -> None:
    """Suspect gradients that were not cleared although rounding has made other things differ before: that a gradient is
    this step's and the one before together does not depend on the precision.
    """
    if scene.ledger.knows(("not cleared",)) or scene.comparer.crossing:
        return
    least = least_to_look_at(unit_of(scene.judged.values()))
    for judged in scene.judged.values():
        if judged.event.parts.kind != "optimizer":
            continue
        sides = optimizer.parameters_of(judged.event), optimizer.parameters_of(judged.partner)
        for name, field, difference in optimizer.differences(scene.comparer, *sides):
            if field != "grad" or difference.what != "value" or difference.delta <= least:
                continue
            text = leftover_in_words(scene, name, "when the optimizer steps")
            if text:
                scene.say(
                    ("not cleared",), judged, "parameter_gradient", text, where=name, clear=True,
                    facts=(NamedFact("parameter", name), Because("not_cleared"), SeenFact(difference)),
                    place=judged.event.index - 0.5, matters=True,
                )  # fmt: skip
            return


def leftover_in_words(scene: Scene, what: str, when: str) -> str:
    """That gradients were not cleared, if the step before proves it."""
    side, count = scene.not_cleared
    if not side:
        return ""
    where = "the candidate" if side == "candidate" else "the reference"
    return said("gradients-not-cleared-on-one-side", where, when, what, count, "s" * (count > 1))
