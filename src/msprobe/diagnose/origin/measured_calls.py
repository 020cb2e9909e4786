"""What the rows of both dumps say of calls: which results their arguments explain, and the first that they do not.

Statistics in the type of a tensor are lower bounds of how far it is apart, and in half types most of them are equal
where the tensors are not. Where both dumps have rows, these decide of each call that both sides made
(:mod:`msprobe.diagnose.measured`); what one side does otherwise is a fact, which no distance takes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.differences.words import ratio_in_words
from msprobe.diagnose.effect.reach import pair_of
from msprobe.diagnose.evidence import Because
from msprobe.diagnose.measured.judge import Unexplained, judge_step
from msprobe.diagnose.measured.node import SINGLE, MeasuredResult, Node
from msprobe.diagnose.origin.calls_alone import blame_calls
from msprobe.diagnose.origin.gradients_taken import (
    name_gradient_at_optimizer,
    name_gradient_on_its_way,
    name_gradient_over_ranks,
)
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.origin.results import blame_layout, blame_result
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.pairing.slots import answering_slots
from msprobe.diagnose.steps.timeline import Event, Slot
from msprobe.diagnose.steps.unwritten import reads_unwritten
from msprobe.diagnose.tolerance import effect
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said

#: Findings that rest on a distance alone.
_MEASURED = frozenset(("computation", "gradient", "parameter_gradient", "recompute", "collective"))
#: Findings of these kinds that are seen within a run, where one tensor has the same bits twice: no distance.
_EXACT = frozenset(("recompute-starts-differently", "recompute-draws-other-numbers"))
#: Those of what a module takes.
_OF_WHAT_IS_TAKEN = frozenset(("computed-between-modules", "data-differs", "incoming-gradient-differs"))


def look_at_rows(scene: Scene) -> None:
    """Take back what the rows of a call explain, and name the first call that they do not."""
    pairing = scene.pairing
    if scene.isolated or not scene.has_values:
        return
    if not (pairing.candidate.part.rows.is_there and pairing.reference.part.rows.is_there):
        return
    is_alone = not isinstance(pairing.candidate.rank, int)
    comparer = scene.comparer
    scene.by_rows = judgement = judge_step(
        pairing, is_alone, lambda node: _says_nothing(scene, node), comparer.healthy_calls, comparer.crossing
    )
    explained = judgement.explained

    def weigh(suspect: Suspect) -> Suspect | None:
        event = suspect.judged.event if suspect.judged is not None else None
        if event is None:
            return suspect
        if event.is_module and suspect.finding.name in _OF_WHAT_IS_TAKEN:
            return None if event in judgement.explained_taken else suspect
        if event not in explained or suspect.finding.kind not in _MEASURED or suspect.finding.name in _EXACT:
            return suspect
        if suspect.finding.kind == "parameter_gradient" and event.direction != "gradient":
            return suspect  # what changed between the backward pass and this call
        return None

    scene.ledger.revise(weigh)
    if judgement.drawn_otherwise is not None:
        _name(scene, judgement.drawn_otherwise)
    if judgement.first is not None:
        _name(scene, judgement.first)
    for node in judgement.over_ranks:
        judged = scene.judged.get(node.event)
        if judged is not None:
            for gradient in node.taken_over_ranks:
                name_gradient_over_ranks(scene, judged, gradient.slot, gradient.distance)
    if judgement.waiting:
        for named in judgement.waiting:
            _name(scene, named)
        waiting = {named.node.event for named in judgement.waiting}
        scene.ledger.revise(
            lambda suspect: (
                replace(suspect, waits=True)
                if suspect.judged is not None
                and suspect.judged.event in waiting
                and suspect.finding.kind == "collective"
                else suspect
            )
        )


def _says_nothing(scene: Scene, node: Node) -> bool:
    """True if what a call gives hangs on a choice that rounding decides, or on memory that nobody wrote. Of what a
    module takes between two frameworks: if no call of one side alone made it, or one that may enlarge rounding.
    """
    judged = scene.judged.get(node.event)
    if judged is None or judged.chosen or judged.behind:
        return True
    if scene.comparer.crossing and node.is_taken and scene.has_calls:
        made = [_made_by_one_side(scene, judged, result.slot) for result in node.results]
        calls = [call for sides in made for side in sides for call in side]
        return not calls or any(operation(call.stem) in operators.EXPONENTS for call in calls)
    return reads_unwritten(node.event) or reads_unwritten(judged.partner)


def _name(scene: Scene, unexplained: Unexplained) -> None:
    judged = scene.judged.get(unexplained.node.event)
    worst = max(unexplained.node.results, key=lambda result: replace(unexplained.node, results=(result,)).excess())
    if judged is None or worst.is_bad:
        return  # what is not finite is a fact, which stands already
    if unexplained.node.is_taken:
        if not _may_be_of_small_loss(scene, unexplained, worst):
            _name_taken(scene, judged, worst)
        return
    if unexplained.node.hands_on and judged.event.parts.kind == "optimizer":
        name_gradient_at_optimizer(scene, judged, worst.slot, worst.distance)
        return
    if unexplained.node.hands_on and judged.event.direction != "gradient":
        difference = _difference_in_argument(scene, judged, worst)
        if pair_of(difference) not in scene.before.written:  # a state that has the shape, and the values, of a gradient
            name_gradient_on_its_way(scene, judged, difference)
        return
    scene.ledger.take_back(("result", judged.event))
    moved = next((difference for difference in judged.inputs if difference.what == "layout"), None)
    if unexplained.node.excused and moved is not None:
        blame_layout(scene, judged, moved)  # the same numbers fall on other elements
        return
    # Other random numbers are a fact; their effect says whether they matter.
    blame_result(scene, _by_rows(scene, judged, unexplained, worst), matters=not unexplained.node.excused)


def _may_be_of_small_loss(scene: Scene, unexplained: Unexplained, worst: MeasuredResult) -> bool:
    """True for what comes back into the model in single precision, and is apart by no more than gradients may be: where
    the loss is next to nothing, so is what is left of its terms, and neither was recorded.
    """
    node = unexplained.node
    from_loss = node.direction == "backward" and node.event.parent is None and node.unit <= SINGLE
    return from_loss and worst.distance <= effect.step_limit(scene.judged.values())


def _name_taken(scene: Scene, judged: Judged, worst: MeasuredResult) -> None:
    """Say that what a module takes is computed wrongly: no module gave it, and nothing that there was before explains
    it.
    """
    event, around = judged.event, judged.event.parent
    difference = _difference_in_argument(scene, judged, worst)
    is_backward = event.direction == "backward"
    if is_backward and scene.ledger.knows(("arriving", event)) and ratio_in_words(difference.left, difference.right):
        return  # a factor of the loss, of which it is said what becomes
    if around is not None:
        place, where = said("between-modules-of", around.name), said("in-module-before", around.name, event.name)
    else:
        place = said("behind-modules-of-model") if is_backward else said("between-modules-of-model")
        where = said("in-model-before", event.name)
    for mark in (("between", around), ("arriving", event)):
        scene.ledger.take_back(mark)
    alone, missing = _made_by_one_side(scene, judged, worst.slot)
    if alone or missing:
        blame_calls(scene, judged, difference, alone, missing, is_measured=True)
        return
    scene.say(
        ("taken", event),
        judged,
        "gradient" if is_backward else "computation",
        said("computed-beyond-all-before", worst.slot, event.name, scene.how(difference), place),
        where=where,
        facts=(Because("between"),),
        entry=around or event,
        matters=True,
        difference=difference,
    )


def _made_by_one_side(scene: Scene, judged: Judged, slot: str) -> tuple[list[Event], list[Event]]:
    """The calls that made what a call takes on each side, and that the other does not make."""
    (inputs, others), _ = answering_slots(judged.event, judged.partner, scene.comparer.crossing)

    def made_alone(side: StepSide, slots: Sequence[Slot], taker: Event) -> list[Event]:
        maker = side.makers.of(dict(slots).get(slot), taker)
        return side.chain(maker) if maker is not None and maker.is_call else []

    return made_alone(scene.candidate, inputs, judged.event), made_alone(scene.reference, others, judged.partner)


def _difference_in_argument(scene: Scene, judged: Judged, worst: MeasuredResult) -> Difference:
    """How far what a call takes is apart by its rows."""
    (inputs, others), _ = answering_slots(judged.event, judged.partner, scene.comparer.crossing)
    leaf, other = dict(inputs).get(worst.slot), dict(others).get(worst.slot)
    return Difference(worst.slot, "value", leaf, other, worst.distance)


def _by_rows(scene: Scene, judged: Judged, unexplained: Unexplained, worst: MeasuredResult) -> Judged:
    """The pair, with the distances of its rows in place of those of its statistics. ``worst``: the result that is the
    furthest beyond.
    """
    (_, _), (outputs, others) = answering_slots(judged.event, judged.partner, scene.comparer.crossing)
    leaf, other = dict(outputs).get(worst.slot), dict(others).get(worst.slot)
    seen = next((difference for difference in judged.changed_outputs if difference.slot == worst.slot), None)
    first = seen or Difference(worst.slot, "value", leaf, other, worst.distance)
    return replace(
        judged,
        status="unexplained",
        input_difference=worst.given,
        hidden=max(judged.hidden, worst.given),
        output_difference=worst.distance,
        allowed=worst.distance / 2.0**unexplained.beyond,
        outputs=[first, *(output for output in judged.outputs if output is not seen)],
        is_measured=True,
        together=unexplained.together,
    )
