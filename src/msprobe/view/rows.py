"""The tree of modules and calls of both sides, merged: a row for each pair, and for each call of one side alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from msprobe.diagnose.steps.phases import phase_of
from msprobe.diagnose.steps.timeline import Event, Timeline

MODULE, CALL, COLLECTION, GRADIENTS, OPTIMIZER = range(5)
BOTH, CANDIDATE_ONLY, REFERENCE_ONLY = range(3)
FORWARD, BACKWARD, OPTIMIZING = range(3)
_KINDS = {"module": MODULE, "parameters": GRADIENTS, "optimizer": OPTIMIZER}
_PHASES = {"backward": BACKWARD, "recompute": BACKWARD, "gradient": BACKWARD, "optimizer": OPTIMIZING}
#: What a run of calls between modules is called, as in graph files.
_BETWEEN = "Apis_Between_Modules"
_GRADIENTS = "Parameter_Gradients"
_begins = attrgetter("order")


@dataclass(eq=False, slots=True)
class TreeRow:
    """One row: a pair, a record of one side alone, or a group without a record of its own.

    ``order`` is the place in the merged order of execution, of a group that of its first child; ``micro`` counts the
    passes of the outermost module from 0.
    """

    name: str
    candidate: Event | None
    reference: Event | None
    kind: int
    phase: int
    order: int
    above: TreeRow | None = None
    below: list[TreeRow] = field(default_factory=list)
    number: int = -1
    micro: int = 0

    @property
    def event(self) -> Event | None:
        """The candidate's record, or that of the reference where it is alone."""
        return self.candidate or self.reference

    @property
    def side(self) -> int:
        """Whose it is: of both, or of one side alone."""
        if self.candidate is None and self.reference is not None:
            return REFERENCE_ONLY
        return BOTH if self.reference is not None or self.candidate is None else CANDIDATE_ONLY

    @property
    def twin(self) -> str | None:
        """The reference's name where it differs."""
        if self.candidate is None or self.reference is None or self.reference.name == self.name:
            return None
        return self.reference.name


def rows_of(pairs: Iterable[tuple[Event | None, Event | None]], timelines: Sequence[Timeline]) -> list[TreeRow]:
    """All rows, a parent before its children, siblings in order of execution.

    ``pairs``: all records in one order of execution, each with its partner; ``timelines``: those of the candidate and
    of the reference, or of the only run.
    """
    own: dict[Event, TreeRow] = {}
    rows: list[TreeRow] = []
    for order, (left, right) in enumerate(pairs):
        event = left or right
        assert event is not None
        row = TreeRow(event.name, left, right, _kind(event), _PHASES.get(event.direction, FORWARD), order)
        rows.append(row)
        if left is not None:
            own[left] = row
        if right is not None:
            own[right] = row
    _phases_between(rows, timelines)
    last_backward = [_last_backward(timeline) for timeline in timelines]
    for row in list(rows):
        for event, passes in ((row.candidate, last_backward[0]), (row.reference, last_backward[-1])):
            if event is not None and row.above is None:
                parent = event.parent or (passes.get(event.stem) if event.direction == "gradient" else None)
                row.above = _row_of(parent, own, rows)
    _cut_rings(rows)
    for row in rows:
        _hand_up(row)
    for row in rows:
        if row.above is not None:
            row.above.below.append(row)
    roots = _grouped([row for row in rows if row.above is None])
    ordered = list(_in_order(roots))
    for number, row in enumerate(ordered):
        row.number = number
    _count_micro_steps(roots)
    return ordered


def take_apart(rows: Iterable[TreeRow]) -> None:
    """Let go of the rows: they know each other, so that they would stay until Python searches for such circles."""
    for row in rows:
        row.above = None
        row.below.clear()


def _phases_between(rows: Sequence[TreeRow], timelines: Sequence[Timeline]) -> None:
    """Count calls outside of all modules to the backward pass where they are made in it, or work on its gradients: the
    gathering and reducing of sharded parameters, clipping. What a forward pass of a module follows is its preparation.
    """
    if not any(row.kind == MODULE for row in rows):
        return
    waiting: list[TreeRow] | None = None
    for row in rows:
        if row.phase == OPTIMIZING or row.phase == BACKWARD:
            for late in waiting or ():
                late.phase = BACKWARD
            waiting = [] if row.phase == BACKWARD else None
        elif row.kind == MODULE:
            waiting = None
        elif waiting is not None and row.kind == CALL and row.event is not None and row.event.parent is None:
            timeline = timelines[0 if row.candidate is not None else -1]
            if phase_of(row.event, timeline) == "after backward":
                waiting.append(row)


def _row_of(parent: Event | None, own: dict[Event, TreeRow], rows: list[TreeRow]) -> TreeRow | None:
    """The row of a module pass; one that an interruption left without a record gets a row now."""
    if parent is None or parent in own:
        return own.get(parent) if parent is not None else None
    row = TreeRow(parent.name, None, None, MODULE, _PHASES.get(parent.direction, FORWARD), len(rows) << 20)
    own[parent] = row
    rows.append(row)
    row.above = _row_of(parent.parent, own, rows)
    return row


def _cut_rings(rows: Iterable[TreeRow]) -> None:
    """Let every row end at a root: a broken file may have a ring of parents."""
    rooted: set[TreeRow] = set()
    for row in rows:
        walked: dict[TreeRow, None] = {}
        below, above = row, row
        while above not in rooted:
            if above in walked:
                below.above = None
                break
            walked[above] = None
            if above.above is None:
                break
            below, above = above, above.above
        rooted.update(walked)


def _hand_up(row: TreeRow) -> None:
    """A module begins where the first of what runs in it begins. One that begins no later hands up itself."""
    above = row.above
    while above is not None and above.order > row.order:
        above.order = row.order
        above = above.above


def _in_order(roots: Sequence[TreeRow]) -> Iterator[TreeRow]:
    todo = sorted(roots, key=_begins, reverse=True)
    while todo:
        row = todo.pop()
        yield row
        if row.below:
            todo += sorted(row.below, key=_begins, reverse=True)


def _grouped(roots: Sequence[TreeRow]) -> list[TreeRow]:
    """The outermost rows, with calls between modules, and gradients of parameters, as one row each."""
    if not any(row.kind == MODULE for row in roots):
        return list(roots)
    grouped: list[TreeRow] = []
    numbers = {_BETWEEN: 0, _GRADIENTS: 0}
    for row in sorted(roots, key=_begins):
        name = {CALL: _BETWEEN, GRADIENTS: _GRADIENTS}.get(row.kind)
        if name is None or row.below:
            grouped.append(row)
            continue
        group = grouped[-1] if grouped else None
        if group is None or group.kind != COLLECTION or group.phase != row.phase or not group.name.startswith(name):
            group = TreeRow(f"{name}.{numbers[name]}", None, None, COLLECTION, row.phase, row.order)
            numbers[name] += 1
            grouped.append(group)
        row.above = group
        group.below.append(row)
    return grouped


def _count_micro_steps(roots: Sequence[TreeRow]) -> None:
    """Number the passes of the outermost module: a step that gathers gradients has several."""
    ordered = sorted(roots, key=_begins)
    first = next((row for row in ordered if row.kind == MODULE and row.phase == FORWARD), None)
    stem = first.event.stem if first is not None and first.event is not None else None
    number = -1
    for row in ordered:
        if stem is not None and row.event is not None and row.phase == FORWARD and row.event.stem == stem:
            number += 1
        for row_inside in _in_order([row]) if number > 0 else ():
            row_inside.micro = number


def _last_backward(timeline: Timeline) -> dict[str, Event]:
    return {event.stem: event for event in timeline if event.is_module and event.direction == "backward"}


def _kind(event: Event) -> int:
    return _KINDS.get(event.parts.kind, CALL)
