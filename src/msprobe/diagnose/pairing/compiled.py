"""Modules that run compiled on one side: what is inside them was not recorded there, only the inputs and results.

So what the other side made inside them answers to nothing, and is left out before calls are paired.
"""

from __future__ import annotations

from collections.abc import Hashable

from msprobe.compare.entry_names import operation, plain_path
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import fingerprint, is_floating
from msprobe.diagnose.differences.words import listed
from msprobe.diagnose.steps.optimizer import parameters_of, renamed
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

#: The recorder's name for the module that everything runs in.
_ROOT = "root"
_LISTED = 3
_MOVES_OR_IDLE = operators.MOVES | operators.IDLE


def leave_out_unseen(candidate: Timeline, reference: Timeline) -> list[str]:
    """Leave out the calls that one side alone cannot have seen. Returns notes that say so."""
    notes: list[str] = []
    for side, timeline, other in (("candidate", candidate, reference), ("reference", reference, candidate)):
        paths: list[str] = []
        closed = _closed(timeline)
        roots = sum(plain_path(event.parts.path) == _ROOT for event in closed)
        for event in closed:
            seen = _seen_inside(event, other, roots - paths.count(_ROOT))
            # Where the passes of the other side cannot be distinguished, the first has left them all out.
            again = _ROOT in paths and plain_path(event.parts.path) == _ROOT
            if again or any(map(_has_evidence, seen)):
                timeline.leave_out(set(event.children))
                other.leave_out(seen)
                paths.append(plain_path(event.parts.path))
        if paths:
            _call_plainly(timeline)
            notes.append(said("modules-compiled", side, listed(list(dict.fromkeys(paths)), _LISTED)))
    return notes


def _closed(timeline: Timeline) -> list[Event]:
    """The passes of modules that give a result which nothing made, as far as calls were recorded around them."""
    empty = {event for event in timeline if event.is_module and event.direction == "forward" and _is_empty(event)}
    if not empty or not any(map(_has_evidence, timeline)):
        return []  # or calls were not recorded at all
    closed: list[Event] = []
    made: set[Hashable] = set()
    for event in timeline:
        if event in empty:
            results = {fingerprint(leaf) for _, leaf in event.outputs() if is_floating(leaf)}
            given = {fingerprint(leaf) for _, leaf in (*event.inputs(), *event.parameters())}
            if results and None not in results and results.isdisjoint(made) and results.isdisjoint(given):
                closed.append(event)
        elif not event.is_module and event.direction != "gradient":
            made.update(fingerprint(leaf) for _, leaf in event.outputs())
    return closed


def _is_empty(event: Event) -> bool:
    return not any(child.is_module or _has_evidence(child) for child in event.children)


def _has_evidence(event: Event) -> bool:
    """True for a call that calculates: guards of a compiled module look at tensors, too, and move them."""
    return event.parts.kind == "api" and operation(event.stem) not in _MOVES_OR_IDLE


def _seen_inside(event: Event, other: Timeline, roots: int) -> set[Event]:
    """What the other side recorded inside the module. ``roots``: how many passes are left of the one that all others
    are in, with this one.
    """
    path, number = plain_path(event.parts.path), event.parts.number
    for call in other:
        if (
            call.is_module
            and call.direction == "forward"
            and (plain_path(call.parts.path), call.parts.number) == (path, number)
        ):
            return set(call.inside())
    if path != _ROOT:
        return set()
    # It has no record of the module that all others are in: what runs between them is taken for its own, up to the
    # backward pass if there are as many of these as passes.
    parts: list[list[Event]] = [[]]
    for call in other:
        if call.direction in ("forward", "recompute"):
            parts[-1].append(call)
        elif call.direction == "backward" and parts[-1]:
            parts.append([])
    parts = [part for part in parts if any(event.module is not None for event in part)]
    forward = parts[0] if len(parts) == roots else [event for part in parts for event in part]
    places = [place for place, event in enumerate(forward) if event.module is not None]
    return set(forward[places[0] : places[-1] + 1]) if places else set()


def _call_plainly(timeline: Timeline) -> None:
    """Call the optimizer's parameters what the gradients are called: the module in which all others are compiled puts a
    word in front of their names, and of those names alone.
    """
    known = {
        parameter_name(event, slot)
        for event in timeline
        if event.direction == "gradient"
        for slot, _ in event.outputs()
    }
    for event in timeline:
        if event.parts.kind == "optimizer":
            names = {name: plain_path(name) for name in parameters_of(event)}
            others = {name: plain for name, plain in names.items() if name not in known and plain in known}
            if others:
                event.record = renamed(event.record, others)
