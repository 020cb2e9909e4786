"""Writes that one side alone makes to what outlives the step: a weight, a gradient, a running average.

No call of the step need take what they leave behind, so they are found by themselves.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import Any

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, fingerprint, numel, statistics
from msprobe.diagnose.differences.words import listed, named
from msprobe.diagnose.evidence import Listed, OneSide
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.links import Producers
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor
from msprobe.diagnose.tolerance import tensor
from msprobe.messages import Wording, joined, said

#: Writes that begin something new.
_BEGIN = tuple(operators.BEGIN)


def look_for_lone_writes(scene: Scene) -> None:
    """Suspect the writes and exchanges of one side alone that no later call takes up."""
    already_named = {name for suspect in scene.ledger.suspects for name in _named_in(suspect)}
    for side, message in zip(scene.sides, ("extra-calls", "missing-calls"), strict=True):
        others = scene.other(side).alone
        writes = [
            event
            for event in side.alone
            if event.direction == "forward"
            and event.name not in already_named
            and _writes_to_what_stays(scene, event, side.makers)
            and not any(
                user.index > event.index
                for _, leaf in event.outputs()
                for user in side.consumers.get(fingerprint(leaf), ())
                if fingerprint(leaf) is not None
            )
        ]
        if not writes:
            continue
        pairs = [pair for event in writes if (pair := _replaced(scene, event, others)) is not None]
        if any(_leave_otherwise(scene, pair) for pair in pairs):
            _say_replaced(scene, pairs[0], len(pairs))
            return
        first = _beginning(writes[0], side.alone)
        names, optimizers = _gradients_written(side.timeline, writes)
        what = _in_words(writes, names, optimizers)
        text = Wording("{}: {}", said(message, named(writes)), what)
        calls = Listed("calls", [event.name for event in writes])
        facts = (calls, Listed("parameters", names)) if names else (calls,)
        # The other side may do the same in another way: then the weights say.
        sure = not _done_otherwise(writes[0], others)
        if sure and scene.arrival.clean:
            # What they do to gradients is undone, or undoes something, before anything uses these.
            gradients = _gradients_of(side.timeline)
            sure = not all(_writes_to(event, gradients) for event in writes)
        # Copies to what nothing takes may be kept for the eye alone: the steps that follow say.
        copies = all(_copies_state(event, side.makers) for event in writes)
        scene.add(first, "structure", text, facts=facts, clear=sure or copies, matters=sure and not copies)


def _in_words(events: Sequence[Event], names: Sequence[str], optimizers: Sequence[str]) -> str:
    """What lone writes or exchanges do, and what becomes of it. ``names``: parameters whose gradients they write."""
    if names:
        writes = "it writes" if len(events) == 1 else "they write"
        whose = said("gradients-of-parameters", "s" if len(names) > 1 else "", listed(names), "")
        return said("writes-to-gradients", writes, whose, joined(" and ", optimizers), "s" * (len(optimizers) == 1))
    what = said("exchange-kept-state") if events[0].is_collective else said("change-kept-state")
    return said("nothing-uses-it", what)


def _gradients_written(timeline: Timeline, events: Sequence[Event]) -> tuple[list[str], list[str]]:
    """The parameters whose gradients these calls leave as an optimizer behind them gets them, and these optimizers;
    empty if that is not so for all calls, or if a gradient looks like that of another parameter.
    """
    taken: dict[Hashable, set[tuple[str, str]]] = {}
    for step in timeline.optimizers:
        if step.index > events[-1].index:
            for name, gradient in optimizer.gradients_taken(step).items():
                taken.setdefault(_look(gradient), set()).add((name, step.name))
    names: dict[str, None] = {}
    steps: dict[str, None] = {}
    for event in events:
        leaves = [leaf for _, leaf in event.outputs() if is_tensor(leaf)]
        owners = [taken.get(_look(leaf), set()) for leaf in leaves]
        if not owners or any(len(owner) != 1 for owner in owners):
            return [], []
        names.update((name, None) for owner in owners for name, _ in owner)
        steps.update((step, None) for owner in owners for _, step in owner)
    return list(names), list(steps)


def _look(leaf: dict[str, Any]) -> Hashable:
    """What was recorded of a tensor at every place; digests are not, in an optimizer's step."""
    return (*statistics(leaf), str(leaf.get("shape")))


def _replaced(scene: Scene, event: Event, others: Sequence[Event]) -> tuple[Event, Event] | None:
    """The write of the other side alone that is given the same tensors, or writes to the same one; as the write of the
    candidate, and that of the reference.
    """
    given = _given(event)
    writes = [
        other
        for other in others
        if other.direction == event.direction and writes_in_place(other.stem) and len(_given(other)) == len(given) > 0
    ]
    for count in (None, 1):
        for other in writes:
            if _given(other)[:count] == given[:count]:
                return (event, other) if scene.pairing.candidate.by_name.get(event.name) is event else (other, event)
    return None


def _leave_otherwise(scene: Scene, pair: tuple[Event, Event]) -> bool:
    """True if two writes leave something else behind."""
    results = scene.comparer.between(*(event.outputs() for event in pair))
    return any(difference.what == "value" and tensor.is_another(difference, "outside") for difference in results)


def _given(event: Event) -> list[Hashable]:
    """What identifies the tensors that a call takes."""
    return [_mark(leaf) for _, leaf in event.inputs() if is_tensor(leaf)]


def _mark(leaf: dict[str, Any]) -> Hashable:
    mark = fingerprint(leaf)
    return mark if mark is not None else str(leaf.get("shape"))


def _say_replaced(scene: Scene, pair: tuple[Event, Event], count: int) -> None:
    mine, theirs = pair
    more = said("so-many-more-times", count - 1) if count > 1 else ""
    text = said("replaced-write", mine.name, theirs.name, more)
    scene.add(mine, "structure", text, facts=(OneSide((mine.name,), (theirs.name,)),), matters=True)


def _writes_to_what_stays(scene: Scene, event: Event, makers: Producers) -> bool:
    if event.parts.kind != "api" or not event.inputs():
        return False
    target = next((leaf for _, leaf in event.inputs() if is_tensor(leaf)), None)
    if target is None or numel(target) < 2:
        return False
    shaped = scene.is_gradient(Difference("", "value", target, target))
    if event.is_collective:
        return shaped
    if not writes_in_place(event.stem):
        return False
    if event.stem.endswith(_BEGIN) and target.get("requires_grad") is not True:
        return _copies_state(event, makers)  # else it is memory that is used again; a parameter stays
    return shaped or makers.of(target, event) is None


def _copies_state(event: Event, makers: Producers) -> bool:
    """True if a call copies what the step keeps, and no call of the step made, to where no call of the step did: to a
    second network, or to the averages of one. A weight that is trained is no such place.
    """
    tensors = [leaf for _, leaf in event.inputs() if is_tensor(leaf)]
    return (
        operation(event.stem) in operators.COPIES_SECOND
        and len(tensors) == 2
        and tensors[0].get("requires_grad") is not True
        and all(numel(leaf) > 1 and _is_kept(leaf, event, makers) for leaf in tensors)
    )


def _is_kept(leaf: dict[str, Any], event: Event, makers: Producers) -> bool:
    """True for a tensor that no call of the step made, unless an optimizer changed it there, or that is a weight."""
    maker = makers.of(leaf, event)
    return maker is None or maker.parts.kind == "optimizer" or bool(makers.parameters(leaf))


def _gradients_of(timeline: Timeline) -> set[Hashable]:
    """What identifies the tensors that the backward pass brought, or that the optimizer gets."""
    brought = (leaf for event in timeline if event.direction == "gradient" for _, leaf in event.outputs())
    taken = (leaf for event in timeline.optimizers for leaf in optimizer.gradients_taken(event).values())
    return {fingerprint(leaf) for leaf in (*brought, *taken)} - {None}


def _writes_to(event: Event, marks: Container[Hashable]) -> bool:
    """True if a call writes to one of these tensors."""
    written = [leaf for _, leaf in [*event.inputs()[:1], *event.outputs()]]
    return any(fingerprint(leaf) in marks for leaf in written)


def _done_otherwise(event: Event, others: Sequence[Event]) -> bool:
    """True if a call of the other side alone makes a tensor of the same shape."""
    target = next(leaf for _, leaf in event.inputs() if is_tensor(leaf))
    return any(
        is_tensor(leaf) and leaf.get("shape") == target.get("shape")
        for other in others
        if other.parts.kind == "api"
        for _, leaf in other.outputs()
    )


def _beginning(event: Event, alone: Sequence[Event]) -> Event:
    """The first of the calls of one side that stand in a row up to this one."""
    indices = {event.index: event for event in alone}
    while event.index - 1 in indices and indices[event.index - 1].direction == event.direction:
        event = indices[event.index - 1]
    return event


def _named_in(suspect: Suspect) -> Sequence[str]:
    alone = suspect.finding.fact(OneSide) or OneSide()
    ordered = suspect.finding.fact(Listed) if suspect.finding.cause == "scaled_clipping" else None
    calls = ordered.names if ordered is not None else ()
    return [*alone.candidate, *alone.reference, suspect.finding.entry or "", *calls]
