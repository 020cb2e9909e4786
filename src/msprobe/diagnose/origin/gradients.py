"""Gradients that arrive otherwise, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, fingerprint, is_floating
from msprobe.diagnose.differences.words import listed, ratio_in_words
from msprobe.diagnose.evidence import Fact, Listed, SeenFact, because
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.origin.calls_alone import blame_calls, what_becomes_of_gradients
from msprobe.diagnose.origin.cut_graph import GraphCut, find_cut, first_use, frozen_in_words
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.origin.sides import StepSide
from msprobe.diagnose.steps.parameter_names import parameter_name, plain_name
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance import explained, frameworks
from msprobe.diagnose.tolerance.judge import Judged, forward_delta
from msprobe.messages import said

#: The most calls that are taken for one group.
_LARGEST_GROUP = 200
#: A gradient that reaches them says nothing: they hand on what they take, or take nothing of its values.
_WITHOUT_GRADIENT = operators.IDLE | operators.FILLS


def look_at_arriving_gradient(scene: Scene, judged: Judged, difference: Difference) -> None:
    """A gradient arrives that differs: is it that of a call that differs?"""
    event = judged.event
    if _cancels(scene, difference):
        return
    forward = scene.pairing.candidate.forward_of(event)
    for side, made in ((scene.candidate, forward), (scene.reference, scene.partner_forward(judged))):
        for user in side.users_of(made, difference.slot):
            backward = side.timeline.backward_of(user)
            if backward is None:
                continue
            if side.is_alone(backward):
                # That of a call of both sides is reported with the missing gradients; what hands on what differs is
                # explained.
                if side.is_alone(user) and not explained.within_calls(difference, _comes_to(scene, side, user)):
                    here = side is scene.candidate
                    blame_calls(scene, judged, difference, [user] if here else [], [] if here else [user])
                return
            judged_maker = scene.judged_at(side, backward)
            if judged_maker is None or judged_maker.status == "same":
                continue
            if not scene.comparer.crossing or explained.by_calls(difference, scene.apart(judged_maker)):
                return
    if scene.comparer.crossing:
        if explained.within_calls(difference, scene.most_apart):
            return
    elif scene.tainted & {"backward", "forward", "recompute"}:
        return
    ratio = ratio_in_words(difference.left, difference.right)
    if scene.comparer.crossing and _brought_before(scene, event):
        ratio = ""  # not the loss, whose gradients have come back
    scene.say(
        ("arriving", event),
        judged,
        "loss_scale" if ratio else "gradient",
        said(
            "incoming-gradient-differs",
            event.name,
            scene.how(difference),
            what_becomes_of_gradients(scene) if ratio else "",
        ),
        where=f"{event.name}, {difference.slot}",
        facts=(*because("loss_factor" if ratio else None), SeenFact(difference)),
        matters=scene.is_blind,
    )


def _cancels(scene: Scene, difference: Difference) -> bool:
    """True if two frameworks leave nothing but rounding of a gradient: that of what a norm takes no notice of is zero
    in exact arithmetic.
    """
    return scene.comparer.crossing and frameworks.cancels(difference, scene.largest_gradient)


def _brought_before(scene: Scene, event: Event) -> bool:
    """True if gradients of earlier backward calls agree."""
    return any(
        earlier.direction == "backward" and earlier.index < event.index and not scene.taints(judged)
        for earlier, judged in scene.judged.items()
    )


def _comes_to(scene: Scene, side: StepSide, user: Event) -> float:
    """How far apart is what comes to the calls of one side alone around ``user``: the gradients that arrive there, and
    what they took in the forward pass.
    """
    most = 0.0
    todo, seen = [user], {user}
    while todo and len(seen) < _LARGEST_GROUP:
        reached = todo.pop()
        before = [side.makers.of(leaf, reached) for _, leaf in reached.inputs()]
        marks = [mark for _, leaf in reached.outputs() if (mark := fingerprint(leaf)) is not None]
        after = [event for mark in marks for event in side.consumers.get(mark, ()) if event.index > reached.index]
        passes = [(event, event) for event in before] + [(event, side.timeline.backward_of(event)) for event in after]
        for event, record in passes:
            if event is None or event in seen or (event.is_module and not event.layer):
                continue
            seen.add(event)
            if side.is_alone(event):
                todo.append(event)
            else:
                most = max(most, forward_delta(scene.judged_at(side, record)))
    return most


def look_for_missing_gradients(scene: Scene) -> None:
    """Backward calls and gradients of parameters that the reference has and the candidate has not."""
    if not scene.pairing.candidate.part.complete:
        return  # they would have come after the end
    # Where nothing comes of anything, what the candidate alone trains is reported beside what it does not.
    sides = (1,) if scene.isolated else (1, 0)
    trains = scene.isolated and _say_lone_gradients(scene, (0,))
    lost: list[tuple[Event, Event]] = []
    for event in scene.reference.alone:
        if event.direction != "backward":
            continue
        forward = scene.pairing.reference.forward_of(event)
        twin = scene.pairing.back.get(forward) if forward is not None else None
        twin = twin or (scene.pairing.back.get(scene.pairing.repeats.get(forward, forward)) if forward else None)
        if twin is not None and scene.pairing.candidate.backward_of(twin) is None:
            lost.append((event, twin))
    parameters = [
        parameter_name(judged.event, output.slot)
        for judged in scene.judged.values()
        if judged.event.direction == "gradient"
        for output in judged.outputs
        if output.what == "missing" and output.left is None
    ]
    cuts = {twin: find_cut(scene, twin) for _, twin in lost}
    unfrozen = [(event, twin) for event, twin in lost if (led := cuts[twin]) is None or led.call is not None]
    if lost and not unfrozen and not parameters and not (_say_lone_gradients(scene, sides) or trains):
        _say_frozen(scene, lost, cuts)
    if lost and not unfrozen and not parameters:
        return
    lost = unfrozen
    if not lost and not parameters:
        if not _say_lone_gradients(scene, sides) or scene.comparer.crossing:
            _say_lost_in_reference(scene)
        return
    if lost and not parameters and all(operation(event.stem) in _WITHOUT_GRADIENT for event, _ in lost):
        return
    shown = listed(parameters, 6)
    if lost:
        event, twin = min(lost, key=lambda pair: (pair[0].is_module, not _is_cut_alone(scene, cuts[pair[1]])))
        led = cuts[twin]
        cut = led.call if led is not None else _cut_before(scene, scene.candidate, twin)
        text = said("gradient-missing", twin.name)
        if cut is not None:
            text += said("call-cuts-graph", cut.name)
    else:
        cut = None
        judged = next(
            j
            for j in scene.judged.values()
            if j.event.direction == "gradient" and any(o.what == "missing" and o.left is None for o in j.outputs)
        )
        event, twin = judged.event, judged.event
        text = said("gradient-missing", shown)
    if parameters and lost:
        text += said("without-gradient", shown)
    frozen, cause = frozen_in_words(scene, parameters)
    text += frozen
    entry = cut or twin
    scene.add(
        entry,
        # A call that only the candidate makes is the cause itself.
        "structure" if cut is not None and cut not in scene.pairing.partner else "missing_gradient",
        text,
        where=parameters[0] if parameters and not lost else entry.name,
        facts=(Listed("calls", [event.name for event, _ in lost[:50]]), Listed("parameters", parameters), *cause),
        # What is only missed may come of what was done in the forward pass.
        place=entry.index if cut is not None else first_use(scene, parameters) if cause else scene.place_of(event),
    )


def _is_cut_alone(scene: Scene, cut: GraphCut | None) -> bool:
    """True if a call that only the candidate makes cuts the graph."""
    return cut is not None and cut.call is not None and cut.call not in scene.pairing.partner


def _say_lost_in_reference(scene: Scene) -> None:
    """A backward call that the candidate has and the reference has not, though all requires a gradient there, too: what
    the call gives is thrown away. Of what requires none, what cuts the graph says; between two frameworks nothing does.
    """
    pairing = scene.pairing
    if not pairing.reference.part.complete:
        return
    lone = scene.candidate.alone
    # Calls say more than the modules around them.
    for event in [*(event for event in lone if not event.is_module), *(event for event in lone if event.is_module)]:
        forward = pairing.candidate.forward_of(event) if event.direction == "backward" else None
        twin = pairing.partner.get(forward) if forward is not None else None
        if forward is None or twin is None or pairing.reference.backward_of(twin) is not None:
            continue
        if operation(event.stem) in _WITHOUT_GRADIENT:
            continue
        if not scene.comparer.crossing and not _is_thrown_away(scene, forward, twin):
            continue
        cut = _cut_before(scene, scene.reference, twin)
        text = said("gradient-extra", forward.name)
        text += said("reference-call-cuts-graph", cut.name) if cut is not None else ""
        entry = cut or forward
        kind: FindingKind = "structure" if cut is not None else "missing_gradient"
        # What is thrown away is known where nothing was done otherwise in the forward pass.
        place = forward.index if scene.comparer.crossing else event.index
        scene.add(entry, kind, text, facts=(Listed("calls", [event.name]),), place=place)
        return


def _is_thrown_away(scene: Scene, forward: Event, twin: Event) -> bool:
    """True if two calls, of which one alone got a gradient, both give what requires one; two passes of a module, where
    no calls were recorded.
    """
    results = [leaf for event in (forward, twin) for _, leaf in event.outputs() if is_floating(leaf)]
    is_asked = not forward.is_module or not scene.has_calls
    return is_asked and bool(results) and all(leaf.get("requires_grad") is True for leaf in results)


def _cut_before(scene: Scene, side: StepSide, event: Event) -> Event | None:
    """The call of one side alone, among those that lead to ``event``, that lets no gradient through; looked for between
    two frameworks, of which one does not say what requires a gradient.
    """
    todo, seen = [event], {event}
    while scene.comparer.crossing and todo and len(seen) < _LARGEST_GROUP:
        at = todo.pop(0)
        for _, leaf in at.inputs():
            maker = side.makers.of(leaf, at)
            if maker is None or maker in seen:
                continue
            if operation(maker.stem) == "detach" and side.is_alone(maker):
                return maker
            if operation(maker.stem) in operators.MOVES | operators.UNARY:
                seen.add(maker)
                todo.append(maker)
    return None


def _say_frozen(scene: Scene, lost: Sequence[tuple[Event, Event]], cuts: Mapping[Event, GraphCut | None]) -> None:
    """Calls that no gradient reaches because all that they take is frozen; where no gradients of parameters say it."""
    names = list(dict.fromkeys(name for cut in cuts.values() if cut is not None for name in cut.frozen))
    twin = min((twin for event, twin in lost if not event.is_module), key=lambda event: event.index, default=lost[0][1])
    what = ", ".join(names[:6]) or "its input"
    text = said("gradient-not-required", twin.name, what)
    calls = [event.name for event, _ in lost[:50]]
    facts: tuple[Fact, ...] = (Listed("calls", calls), Listed("parameters", names), *because("frozen"))
    scene.add(twin, "missing_gradient", text, names[0] if names else twin.name, facts)


def _say_lone_gradients(scene: Scene, which: Sequence[int]) -> bool:
    """Parameters that get a gradient on one side alone, while the backward pass makes the same calls; true if there are
    any. ``which``: of the candidate (0) or of the reference (1).
    """
    sides = (scene.pairing.candidate, scene.pairing.reference)
    got, known = [_gradients_of(side) for side in sides], [_parameters_of(side) for side in sides]
    if not (got[0] and got[1]) or not sides[1].part.complete:
        return False  # one of them recorded none, or ended before
    found_any = False
    for mine in which:
        other = 1 - mine
        names = [name for name in got[mine] if name not in got[other] and name in known[other]]
        if not names:
            continue
        text = said("gradient-extra" if mine == 0 else "gradient-missing", listed(names, 6))
        event = got[mine][names[0]]
        words, cause = frozen_in_words(scene, names, here=mine == 1)
        facts: tuple[Fact, ...] = (Listed("parameters", names), *cause)
        place = first_use(scene, names) if cause else event.index
        scene.add(event, "missing_gradient", text + words, names[0], facts, place)
        found_any = True
    return found_any


def _gradients_of(timeline: Timeline) -> dict[str, Event]:
    """The parameters that got a gradient, and the records that say so."""
    return {
        plain_name(event, slot): event
        for event in timeline
        if event.direction == "gradient"
        for slot, leaf in event.outputs()
        if is_tensor(leaf)
    }


def _parameters_of(timeline: Timeline) -> set[str]:
    return {plain_name(event, slot) for event in timeline for slot, _ in event.parameters()}
