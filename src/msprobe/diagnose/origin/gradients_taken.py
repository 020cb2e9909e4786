"""Gradients where they are taken: from ``.grad`` after the backward pass, as clipping does, and by the optimizer. There
they may hold those of the step before, which nothing cleared: see :mod:`msprobe.diagnose.effect.leftover`.
"""

from __future__ import annotations

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.evidence import Because, NamedFact, SeenFact
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance import tensor
from msprobe.diagnose.tolerance.effect import unit_of
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.diagnose.tolerance.means import least_to_look_at
from msprobe.messages import said


def blame_gradient_on_its_way(scene: Scene, judged: Judged, difference: Difference) -> None:
    """The same, where all that the backward pass brought agrees."""
    if not scene.tainted & {"backward", "gradient"}:
        name_gradient_on_its_way(scene, judged, difference)


def name_gradient_on_its_way(scene: Scene, judged: Judged, difference: Difference) -> None:
    """A gradient, taken from ``.grad`` after the backward pass, is not what the backward pass brought."""
    event = judged.event
    if say_not_cleared(scene, judged, difference):
        return
    # What looks like a gradient may be a weight that an optimizer has moved, with its rounding.
    clear = tensor.is_another(difference, "outside")
    if scene.isolated and (name := _delivered_as(scene, difference)):
        scene.say(
            ("gradient as delivered", event),
            judged,
            "gradient",
            said("gradient-differs-as-delivered", difference.slot, event.name, scene.how(difference), name),
            where=f"{event.name}, {difference.slot}",
            clear=clear,
            facts=(SeenFact(difference),),
            matters=clear,
        )
        return
    scene.say(
        ("passing gradient", event),
        judged,
        "parameter_gradient",
        said("gradient-changed-after-backward", difference.slot, event.name, scene.how(difference)),
        where=f"{event.name}, {difference.slot}",
        clear=clear,
        facts=(Because("on_its_way"), SeenFact(difference)),
        # Clipping hides it, as long as it clips.
        matters=clear and not scene.arrival.undo(difference.delta),
    )


def name_gradient_at_optimizer(scene: Scene, judged: Judged, name: str, distance: float) -> None:
    """The gradient that an optimizer gets for a parameter is not what the backward passes brought."""
    mine, theirs = map(optimizer.gradients_taken, (judged.event, judged.partner))
    difference = Difference("grad", "value", mine.get(name), theirs.get(name), distance)
    if say_not_cleared(scene, judged, difference, name):
        return
    scene.say(
        ("optimizer gradient",),
        judged,
        "gradient",
        said("gradient-at-optimizer-differs", name, scene.how(difference)),
        where=name,
        facts=(NamedFact("parameter", name), Because("on_its_way"), SeenFact(difference)),
        matters=True,
    )


def name_gradient_over_ranks(scene: Scene, judged: Judged, slot: str, distance: float) -> None:
    """A gradient that no pass of this rank gave: what all ranks gave says whether it is put together otherwise. Until
    then it waits.
    """
    event = judged.event
    if event.parts.kind == "optimizer":
        sides = [optimizer.gradients_taken(side) for side in (event, judged.partner)]
        where = slot
    else:
        sides = [dict(side.inputs()) for side in (event, judged.partner)]
        where = f"{event.name}, {slot}"
    mine, theirs = (leaves.get(slot) for leaves in sides)
    difference = Difference(slot, "value", mine, theirs, distance)
    if event.parts.kind == "optimizer":
        text = said("gradient-at-optimizer-differs", slot, scene.how(difference))
    else:
        text = said("gradient-changed-after-backward", slot, event.name, scene.how(difference))
    scene.say(
        ("over ranks", event, slot),
        judged,
        "parameter_gradient",
        text,
        where=where,
        clear=True,
        facts=(Because("on_its_way"), SeenFact(difference)),
        matters=True,
        difference=difference,
        waits=True,
    )


#: Two measures of one tensor, of which one was taken from statistics, agree to this part of themselves.
_SAME_DELTA = 0.1


def _delivered_as(scene: Scene, difference: Difference) -> str:
    """The parameter whose gradient the backward pass already delivers with this difference, which the tolerance of a
    type of fewer digits let pass there; empty if there is none.
    """
    shape = difference.left.get("shape") if is_tensor(difference.left) else None
    nearest = [
        (abs(output.delta - difference.delta), parameter_name(other.event, output.slot))
        for other in scene.judged.values()
        if other.event.direction == "gradient"
        for output in other.outputs
        if is_tensor(output.left) and output.left.get("shape") == shape
        if difference.delta > 0.0 and abs(output.delta - difference.delta) <= _SAME_DELTA * difference.delta
    ]
    return min(nearest)[1] if nearest else ""


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
            say_not_cleared(scene, judged, difference, name, judged.event.index - 0.5)
            return


def say_not_cleared(
    scene: Scene, judged: Judged, difference: Difference, parameter: str = "", place: float | None = None
) -> bool:
    """Say that gradients were not cleared, if the step before proves it; whether it does. ``difference``: of what a
    call takes, or of the gradient that the optimizer gets for ``parameter``.
    """
    side, count = scene.not_cleared
    if not side:
        return False
    event = judged.event
    when = "when the optimizer steps" if parameter else "after the backward pass"
    what = parameter or said("of-call", difference.slot, event.name)
    whose = "the candidate" if side == "candidate" else "the reference"
    scene.say(
        ("not cleared",),
        judged,
        "parameter_gradient",
        said("gradients-not-cleared-on-one-side", whose, when, what, count, "s" * (count > 1)),
        where=parameter or f"{event.name}, {difference.slot}",
        facts=(
            *((NamedFact("parameter", parameter),) if parameter else ()),
            Because("not_cleared"),
            SeenFact(difference),
        ),
        place=place,
        matters=True,
    )
    return True
