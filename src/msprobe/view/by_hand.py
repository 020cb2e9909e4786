"""Pairs that a person makes: which they are, and how they enter the pairing before it is judged."""

from __future__ import annotations

from collections.abc import Mapping

from msprobe.diagnose.pairing.match import Pairing, pair_inside
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.errors import InvalidInputError
from msprobe.messages import Wording, said
from msprobe.report.phrases import clean


def put_in(pairs: Mapping[str, str], pairing: Pairing) -> list[str]:
    """Pair what a person paired, whatever was paired before; returns notes on names that are not there."""
    missing = 0
    for name, other in pairs.items():
        left, right = pairing.candidate.by_name.get(name), pairing.reference.by_name.get(other)
        if left is None or right is None:
            missing += 1
        else:
            pairing.replace(left, right)
    notes: list[str] = [said("hand-pairs", len(pairs) - missing)] if len(pairs) > missing else []
    if missing:
        notes.append(said("hand-pairs-unknown", missing))
    return notes


def changes(
    pairing: Pairing, candidate: str, reference: str | None, with_children: bool, known: Mapping[str, str]
) -> tuple[dict[str, str], set[str]]:
    """The pairs to add, by the candidate's names, and the names whose pairs go.

    ``reference`` None undoes a pair. ``with_children`` means all that runs inside, too, as far as it answers to each
    other. The backward calls of forward calls come with them. Raises InvalidInputError for names that are not recorded,
    and for what cannot answer to each other.
    """
    left = pairing.candidate.by_name.get(candidate)
    if left is None:
        raise InvalidInputError(said("candidate-record-missing", clean(candidate)))
    if reference is None:
        gone = {event.name for event in _with_backward(_inside(left) if with_children else [left], pairing.candidate)}
        if not gone & known.keys():
            raise InvalidInputError(said("not-matched-by-hand", clean(candidate)))
        return {}, gone
    right = pairing.reference.by_name.get(reference)
    if right is None:
        raise InvalidInputError(said("reference-record-missing", clean(reference)))
    if left.parts.kind != right.parts.kind or left.direction != right.direction:
        raise InvalidInputError(
            said(
                "records-cannot-match",
                clean(candidate),
                _kind_in_words(left),
                clean(reference),
                _kind_in_words(right),
            )
        )
    trial = Pairing(pairing.candidate, pairing.reference)
    trial.add(left, right)
    if with_children:
        pair_inside(trial, left, right)
    for event, other in list(trial.partner.items()):
        backward = pairing.candidate.backward_of(event), pairing.reference.backward_of(other)
        if event.direction == "forward" and backward[0] is not None and backward[1] is not None:
            trial.add(*backward)  # type: ignore[arg-type]
    return {event.name: other.name for event, other in trial.partner.items()}, set()


def _kind_in_words(event: Event) -> str:
    word = {"api": "a call", "module": "the pass of a module", "parameters": "gradients of parameters"}
    return Wording("{}, {}", word.get(event.parts.kind, event.parts.kind), event.direction)


def _inside(event: Event) -> list[Event]:
    inside, todo = [], [event]
    while todo:
        event_inside = todo.pop()
        inside.append(event_inside)
        todo += event_inside.children
    return inside


def _with_backward(events: list[Event], timeline: Timeline) -> list[Event]:
    return [*events, *(back for event in events if (back := timeline.backward_of(event)) is not None)]
