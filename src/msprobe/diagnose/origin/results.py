"""A result that differs although what went in does not explain it: other arguments, layout, or the call itself."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, fingerprint, numel
from msprobe.diagnose.differences.words import dtype_word
from msprobe.diagnose.evidence import Cause, NamedFact, ResultFact, SeenFact, Setting, because
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.argument import blame_argument
from msprobe.diagnose.origin.calls_alone import blame_calls
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.randomness import is_random, is_random_layer
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import noise
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def look_behind_statistics(scene: Scene, judged: Judged) -> bool:
    """Statistics do not see the order of elements. A result that differs although all that went in looks alike:
    True if what went in was made by other calls, or with other arguments.
    """
    if judged.changed_inputs or judged.event.direction not in ("forward", "recompute"):
        return False
    others = dict(judged.partner.inputs())
    todo = [
        (judged.event, leaf, judged.partner, others.get(slot))
        for slot, leaf in judged.event.inputs()
        if is_tensor(leaf) and "digest" not in leaf
    ]
    for _ in range(50):
        if not todo:
            break
        event, leaf, partner, twin = todo.pop(0)
        maker = scene.candidate.makers.of(leaf, event)
        alone, missing = scene.candidate.chain(maker), scene.reference.lone_makers(twin, partner)
        if alone or missing:
            blame_calls(scene, judged, Difference("its result", "value", None, None, math.inf), alone, missing)
            return True
        judged_maker = scene.judged.get(maker) if maker is not None else None
        if judged_maker is None or maker is None:
            continue
        if judged_maker.arguments:
            blame_argument(scene, judged_maker)
            return True
        if operation(maker.stem) in operators.MOVES | operators.UNARY:
            inner = dict(judged_maker.partner.inputs())
            todo += [(maker, a, judged_maker.partner, inner.get(slot)) for slot, a in maker.inputs() if is_tensor(a)]
    return False


def behind_equal_statistics(scene: Scene, judged: Judged) -> Judged | None:
    """Digests say that inputs differ, and no statistic by how much. If another order of the same elements came in, the
    call that made it is to blame: one whose inputs agree, and that gives the same bits on both sides where it is called
    elsewhere. None if there is no such call.
    """
    todo, seen = [judged], {judged.event}
    while todo and len(seen) < 100:
        event = todo.pop(0)
        if not event.changed_inputs:
            return event if event is not judged and scene.is_reproduced(event.event) else None
        for difference in event.changed_inputs:
            maker = scene.candidate.makers.of(difference.left, event.event) if difference.delta == 0.0 else None
            judged_maker = scene.judged.get(maker) if maker is not None else None
            if maker is None or judged_maker is None or judged_maker.output_difference or judged_maker.arguments:
                return None
            if maker not in seen:
                seen.add(maker)
                todo.append(judged_maker)
    return None


def blame_type(scene: Scene, judged: Judged, difference: Difference) -> None:
    """A call gives its result in another dtype, from inputs of the same dtype."""
    event = judged.event
    scene.say(
        ("dtype", event),
        judged,
        "dtype",
        said(
            "result-dtype-differs",
            event.name,
            difference.slot,
            dtype_word(difference.left),
            dtype_word(difference.right),
        ),
        where=f"{event.name}, {difference.slot}",
        facts=(Setting(difference.left["dtype"], difference.right["dtype"]),),
    )


def blame_layout(scene: Scene, judged: Judged, layout: Difference) -> None:
    event = judged.event
    maker = scene.candidate.makers.of(layout.left, event)
    scene.say(
        ("layout", event),
        judged,
        "layout",
        said(
            "strides-differ",
            layout.slot,
            event.name,
            layout.left.get("stride", "contiguous"),
            layout.right.get("stride", "contiguous"),
        )
        + (said("made-by", maker.name) if maker else "")
        + (": the random numbers fall on different elements" if is_random(event) else ", and the result depends on it"),
        where=f"{event.name}, {layout.slot}",
        facts=(NamedFact("made_by", maker.name if maker else None),),
        alternatives=(maker.name,) if maker else (),
    )


def blame_result(scene: Scene, judged: Judged, clear: bool = True, matters: bool = False) -> None:
    """Say that a call gives another result than its inputs explain."""
    event = judged.event
    first = judged.changed_outputs[0]
    # Between two frameworks inputs agree if they are apart by rounding, where no rows say by how much.
    agree = not (judged.changed_inputs or judged.hidden) or (
        scene.comparer.crossing and not judged.is_measured and not scene.taints_by(judged, judged.input_difference)
    )
    clear = clear and (agree or judged.is_measured or noise.is_clear(judged.output_difference, judged.allowed))
    if event.direction in ("backward", "gradient") and first.what == "missing":
        return  # reported with all others that are missing
    kind: FindingKind = "computation"
    cause: Cause | None = None
    by_statistics = False
    text: str
    why = "its inputs agree" if agree else "more than its inputs explain"
    if agree and judged.unread:
        agree, why = False, "one of its inputs could not be read"
    if judged.together > 1:
        why = said("beyond-together", judged.together, operation(event.stem))
    if first.what == "not_finite":
        kind = "overflow"
        text = said("nan-or-infinity-made", event.name, first.slot)
    elif event.is_collective:
        kind = "collective"
        text = said("collective-result-differs", event.name, first.slot, scene.how(first), why)
    elif event.direction == "recompute":
        kind = "recompute"
        text = said("recomputed-result-differs", event.name, first.slot, scene.how(first), why)
    elif (
        event.direction == "backward"
        and (judged.is_measured or not judged.changed_inputs)
        and blame_saved_tensor(scene, judged)
    ):
        return
    elif event.direction == "backward":
        forward = scene.judged.get(scene.pairing.candidate.forward_of(event) or event)
        if forward is not None and forward.arguments and not judged.changed_inputs:
            blame_argument(scene, forward)
            return
        kind = "gradient"
        text = said("backward-result-differs", event.name, first.slot, scene.how(first), why)
    elif event.direction == "gradient":
        kind = "parameter_gradient"
        text, cause = _gradient_report(scene, event, first)
    elif (is_random(event) or is_random_layer(event)) and _blame_random(scene, judged):
        return
    elif (is_random(event) or is_random_layer(event)) and (judged.is_measured or not judged.changed_inputs):
        text = said("random-numbers-differ", event.name)
        cause = "random"
    else:
        by_statistics = agree and not (scene.comparer.crossing or judged.is_measured) and _known_by_statistics(judged)
        why = said("input-statistics-agree") if by_statistics else why
        text = said("result-differs", event.name, first.slot, scene.how(first), why)
    scene.say(
        ("result", event),
        judged,
        kind,
        text,
        where=f"{event.name}, {first.slot}",
        clear=clear,
        matters=clear and (matters or scene.is_blind),
        facts=(
            ResultFact(judged.output_difference, judged.allowed, first.slot, judged.input_difference, by_statistics),
            *because(cause),
            SeenFact(first),
            *((NamedFact("calls_together", judged.together),) if judged.together > 1 else ()),
        ),
    )


def _known_by_statistics(judged: Judged) -> bool:
    """True if nothing but statistics is known of a tensor of several elements that goes in, and the statistics of the
    result hang on their order.
    """
    taken = [leaf for _, leaf in judged.event.inputs() if is_tensor(leaf)]
    if len(taken) == 1 and operation(judged.event.stem) in operators.ELEMENTWISE:
        return False
    given = [leaf for side in (judged.event, judged.partner) for _, leaf in (*side.inputs(), *side.parameters())]
    return any(
        is_tensor(leaf) and numel(leaf) > 1 and not any(key in leaf for key in ("digest", "md5", "data_name", "unset"))
        for leaf in given
    )


def _blame_random(scene: Scene, judged: Judged) -> bool:
    """True if one side alone draws random numbers before: then all that are drawn later are others."""
    for side, user in ((scene.candidate, judged.event), (scene.reference, judged.partner)):
        earlier = next((call for call in reversed(side.random_alone) if call.index < user.index), None)
        if earlier is not None:
            text = said("extra-random-call", judged.event.name, side.name, earlier.name)
            scene.say(("calls", earlier), judged, "structure", text, entry=earlier)
            return True
    return False


def _gradient_report(scene: Scene, event: Event, difference: Difference) -> tuple[str, Cause | None]:
    """How the gradient of a parameter that differs by itself is reported, and the cause where it is known."""
    name = parameter_name(event, difference.slot)
    tie = scene.ties.broken(event, difference.slot)
    if tie is None:
        return (
            said("parameter-gradient-differs", name, scene.how(difference)),
            None,
        )
    tied_side, two = ("reference", "candidate") if tie.tied == "reference" else ("candidate", "reference")
    text = said("tied-on-one-side", name, tie.other, tied_side, two)
    return text, "tie"


def blame_saved_tensor(scene: Scene, judged: Judged) -> bool:
    """A backward call that gets the same gradients and gives others, while its forward agrees: a tensor that it
    kept was written to in between. True if the call that may have done so is found.
    """
    event = judged.event
    forward = scene.pairing.candidate.forward_of(event)
    if forward is None:
        return False
    kept = {fingerprint(leaf) for _, leaf in [*forward.inputs(), *forward.outputs()]} - {None}
    writer = _first_of(scene.lone_writes, kept, event)
    kind: FindingKind = "mutation"
    text = said("extra-call-overwrites", writer.name) if writer is not None else ""
    if writer is None:
        writer = _first_of(scene.missing_copies, kept, judged.partner)
        if writer is None:
            return False
        kind = "structure"
        text = said("missing-copy-overwrites", writer.name)
    scene.say(
        ("calls", writer),
        judged,
        kind,
        said("saved-tensor-overwritten", text, event.name, scene.how(judged.changed_outputs[0])),
        facts=(NamedFact("seen_in", event.name), SeenFact(judged.changed_outputs[0])),
        entry=writer,
        alternatives=(event.name,),
    )
    return True


def _first_of(calls: Mapping[Hashable, Event], marks: Iterable[Hashable], before: Event) -> Event | None:
    """The first of the calls that take one of these tensors, if it is made before ``before``."""
    first = min((calls[mark] for mark in marks if mark in calls), key=lambda event: event.index, default=None)
    return first if first is not None and first.index < before.index else None
