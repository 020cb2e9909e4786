"""Which event of the candidate answers to which of the reference.

Forward calls are aligned module by module: the calls inside two passes that answer to each other are aligned in
their order, first by name, then, among what is left between two pairs, by what they compute and with wrapping
modules opened. So one call more or less shifts nothing. Backward calls follow their forward calls, gradients
of parameters their modules; recomputed calls stand for the calls that they repeat. Names that differ are led to each
other on the way (:mod:`msprobe.diagnose.pairing.naming`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe.compare.alignment import align
from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose.differences.records import fingerprint, numel
from msprobe.diagnose.pairing.naming import Naming, drop_prefixes, rename
from msprobe.diagnose.pairing.recomputation import repeats
from msprobe.diagnose.steps.timeline import Event, Timeline, is_tensor

Key = Callable[[Event], Hashable]


@dataclass
class Pairing:
    """The pairs of two timelines.

    ``partner`` leads from an event of the candidate to that of the reference, ``back`` the other way.
    ``loose`` holds the candidate events that were paired by what they compute, not by name. ``repeats`` leads
    from a recomputed call to the call of the forward pass that it repeats. ``naming`` has the names that differ;
    modules and parameters of the reference go by the candidate's. ``unreached`` holds events that have no partner
    because an interrupted side had no time for one.
    """

    candidate: Timeline
    reference: Timeline
    partner: dict[Event, Event] = field(default_factory=dict)
    back: dict[Event, Event] = field(default_factory=dict)
    loose: set[Event] = field(default_factory=set)
    repeats: dict[Event, Event] = field(default_factory=dict)
    naming: Naming = field(default_factory=Naming)
    unreached: set[Event] = field(default_factory=set)
    #: What was found out of pairs of backward calls: see :func:`msprobe.diagnose.tolerance.judge.is_of_another_node`.
    other_nodes: dict[tuple[Event, Event], bool] = field(default_factory=dict, repr=False)
    _alone: list[Event] | None = field(default=None, init=False, repr=False)
    _missing: list[Event] | None = field(default=None, init=False, repr=False)

    def add(self, candidate: Event, reference: Event, loose: bool = False) -> None:
        """Pair two events, unless one of them has a partner."""
        if candidate in self.partner or reference in self.back:
            return
        self.partner[candidate] = reference
        self.back[reference] = candidate
        self._alone = self._missing = None
        if loose:
            self.loose.add(candidate)

    def replace(self, candidate: Event, reference: Event) -> None:
        """Pair two events, and take their partners from those that had one."""
        for event in (candidate, self.back.get(reference)):
            other = self.partner.pop(event, None) if event is not None else None
            if event is not None and other is not None:
                del self.back[other]
                self.loose.discard(event)
        self.add(candidate, reference)

    def part(self, event: Event) -> None:
        """Take an event of either side and its partner apart."""
        candidate = event if event in self.partner else self.back.get(event)
        reference = self.partner.pop(candidate, None) if candidate is not None else None
        if candidate is not None and reference is not None:
            del self.back[reference]
            self.loose.discard(candidate)
            self._alone = self._missing = None

    def leave_out(self, events: Iterable[Event]) -> None:
        """Count events no more among those of one side alone: the other had no time for them."""
        self.unreached.update(events)
        self._alone = self._missing = None

    def alone(self) -> list[Event]:
        """Events of the candidate without partner that the reference had time for, in order. Asked for many times;
        nobody changes the list.
        """
        if self._alone is None:
            self._alone = [
                event for event in self.candidate if event not in self.partner and event not in self.unreached
            ]
        return self._alone

    def missing(self) -> list[Event]:
        """Events of the reference without partner that the candidate had time for, in order; see :meth:`alone`."""
        if self._missing is None:
            self._missing = [
                event for event in self.reference if event not in self.back and event not in self.unreached
            ]
        return self._missing


_WHOLE = frozenset((int,))  # what shapes are made of


def pair(candidate: Timeline, reference: Timeline, known: Mapping[str, str] | None = None) -> Pairing:
    """Pair the events of two timelines. ``known``: see :class:`msprobe.diagnose.one_step.StepTask`."""
    if candidate.is_flat != reference.is_flat:
        # One of them does not say in which module a call ran: so nothing can be aligned module by module.
        for timeline in (candidate, reference):
            timeline.flatten()
    pairing = Pairing(candidate, reference, naming=drop_prefixes(candidate, reference))
    _pair_inside_unfinished(pairing)
    for directions in (("forward",), ("optimizer",)):
        _pair_calls(
            pairing,
            [event for event in candidate.roots if event.direction in directions],
            [event for event in reference.roots if event.direction in directions],
        )
    rename(pairing.naming, candidate, reference, pairing.partner)
    if known is not None:
        _pair_known(pairing, known)
    _pair_recomputation(pairing)
    _pair_backward(pairing)
    _pair_by_name(pairing)
    return pairing


def _pair_known(pairing: Pairing, known: Mapping[str, str]) -> None:
    """Pair the calls that are known to answer to each other, and no others but those that could have been one call."""
    alone = []
    for event in pairing.candidate:
        if event.parts.kind != "api" or event.direction == "backward":
            continue
        name = known.get(event.name, event.name)
        partner = pairing.reference.by_name.get(name) if name else None
        if partner is None:
            alone.append(event)
        elif pairing.partner.get(event) is not partner:
            pairing.replace(event, partner)
    for event in alone:
        if event in pairing.partner and (event in pairing.loose or not _could_be_one(event, pairing.partner[event])):
            pairing.part(event)


def _could_be_one(event: Event, partner: Event) -> bool:
    """False for writes in place to tensors of other shapes: these are not one tensor. Nor are those that an optimizer
    works on.
    """
    if event.direction != "optimizer" and not (writes_in_place(event.stem) and writes_in_place(partner.stem)):
        return True
    first: list[dict[str, Any]] = [
        next((leaf for _, leaf in event.inputs() if is_tensor(leaf)), {}) for event in (event, partner)
    ]
    return _shape(first[0]) == _shape(first[1])


def _is_inside(event: Event) -> bool:
    """True for a call in a module, which may write to activations of another batch; outside are weights and states."""
    return event.parent is not None and event.direction != "optimizer"


def pair_inside(pairing: Pairing, candidate: Event, reference: Event) -> None:
    """Pair what runs inside two events that are taken for each other."""
    _pair_calls(pairing, _calls(candidate), _calls(reference))


def _pair_inside_unfinished(pairing: Pairing) -> None:
    """What ran in a module pass that an interruption ended answers to what ran in the same pass of the other side."""
    candidate, reference = pairing.candidate, pairing.reference
    for timeline, other in ((candidate, reference), (reference, candidate)):
        for begun in timeline.unfinished:
            before = sum(event.key == begun.key and event.direction == begun.direction for event in timeline)
            passes = [
                event
                for event in [*other, *other.unfinished]
                if event.key == begun.key and event.direction == begun.direction
            ]
            if before < len(passes):
                pair = (begun, passes[before]) if timeline is candidate else (passes[before], begun)
                _pair_calls(pairing, _calls(pair[0]), _calls(pair[1]))


def _calls(event: Event) -> list[Event]:
    # A closure runs the forward pass inside the step of the optimizer.
    wanted = ("optimizer", "forward") if event.direction == "optimizer" else (event.direction,)
    return [child for child in event.children if child.direction in wanted]


def _pair_calls(pairing: Pairing, left: Sequence[Event], right: Sequence[Event]) -> None:
    """Align two sequences of calls, and what runs inside those that match."""
    todo: list[tuple[Sequence[Event], Sequence[Event]]] = [(left, right)]
    while todo:
        a, b = todo.pop()
        if not a or not b:
            continue
        a, b = _without_wrappers(a, b), _without_wrappers(b, a)
        if any(map(_is_sum_outside, a)):
            a, b = _without_moved(pairing, a, b)
        matched = _align(a, b, _shaped)
        if len(matched) < max(len(a), len(b)):
            # Something is there on one side only: what the others take says which it is.
            matched = _refine(a, b, (_valued, _shaped, _exact))
            matched = [(i, j) for i, j in matched if _is_inside(a[i]) or _could_be_one(a[i], b[j])]
        for i, j in matched:
            pairing.add(a[i], b[j])
            todo.append((_calls(a[i]), _calls(b[j])))
        for rest_a, rest_b in _gaps(a, b, matched):
            loosely = _refine(rest_a, rest_b, (_local, _loose))
            loosely = [(i, j) for i, j in loosely if _is_inside(rest_a[i]) or _could_be_one(rest_a[i], rest_b[j])]
            for i, j in loosely:
                pairing.add(rest_a[i], rest_b[j], loose=True)
                todo.append((_calls(rest_a[i]), _calls(rest_b[j])))
            for open_a, open_b in _gaps(rest_a, rest_b, loosely):
                # What one side has in a module of its own, the other may do in place.
                largest = max(map(_size, (*open_a, *open_b)))
                inner_a, inner_b = _opened(open_a, largest), _opened(open_b, largest)
                if inner_a != list(open_a) or inner_b != list(open_b):
                    todo.append((inner_a, inner_b))


def _without_moved(pairing: Pairing, a: Sequence[Event], b: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    """What is left of two sequences once work on gradients is paired that the sides do in another order.

    A pipeline adds up the gradients of its parameters in an order that hangs on addresses in memory.
    """
    sides: list[dict[Hashable, list[Event]]] = [{}, {}]
    for by_values, side in zip(sides, (a, b), strict=True):
        for event in filter(_is_sum_outside, side):
            by_values.setdefault(_valued(event), []).append(event)
    moved: dict[Event, Event] = {}
    for mark, ones in sides[0].items():
        others = sides[1].get(mark, [])
        if len(ones) == len(others) == 1:
            pairing.add(ones[0], others[0])
            moved[ones[0]] = others[0]
    partners = set(moved.values())
    return [event for event in a if event not in moved], [event for event in b if event not in partners]


def _is_sum_outside(event: Event) -> bool:
    """True for an addition in place outside of all modules."""
    return event.parent is None and event.direction == "forward" and event.stem in ("Tensor.__iadd__", "Tensor.add_")


def _refine(a: Sequence[Event], b: Sequence[Event], keys: Sequence[Key]) -> list[tuple[int, int]]:
    """Align by the first key, then, between the pairs found, by the next."""
    pairs: list[tuple[int, int]] = []
    todo = [(0, len(a), 0, len(b), 0)]
    while todo:
        a0, a1, b0, b1, number = todo.pop()
        if a0 == a1 or b0 == b1 or number == len(keys):
            continue
        matched = [(a0 + i, b0 + j) for i, j in _align(a[a0:a1], b[b0:b1], keys[number])]
        pairs += matched
        for i, j in [*matched, (a1, b1)]:
            todo.append((a0, i, b0, j, number + 1))
            a0, b0 = i + 1, j + 1
    return sorted(pairs)


def _exact(event: Event) -> Hashable:
    return event.key


def _shaped(event: Event) -> Hashable:
    """The call and the shapes of what it takes."""
    if event.parts.kind != "api":
        return event.key
    return event.key, tuple([_shape(leaf) for _, leaf in event.inputs() if is_tensor(leaf)])


def _shape(leaf: dict[str, Any]) -> Hashable:
    shape = leaf.get("shape")
    return tuple(shape) if type(shape) is list and _WHOLE.issuperset(map(type, shape)) else str(shape)


def _valued(event: Event) -> Hashable:
    """The call and the values that it takes."""
    marks = [fingerprint(leaf) for _, leaf in event.inputs() if is_tensor(leaf)]
    # Never equal to another: it waits for the next key.
    return (event.key, *marks) if marks and None not in marks else (event.key, id(event))


def _local(event: Event) -> Hashable:
    """A module by what the module around it calls it."""
    if not event.is_module or event.parent is None:
        return _loose(event)
    return f"local:{event.parts.path.removeprefix(event.parent.parts.path + '.')}"


def _loose(event: Event) -> Hashable:
    if event.is_module:
        # Of other sizes they are no one: one layer for three of the other side.
        return f"module:{event.parts.owner}", *sorted(numel(leaf) for _, leaf in event.parameters() if is_tensor(leaf))
    if event.parts.kind == "api":
        return operation(event.stem)
    return event.key


def _align(a: Sequence[Event], b: Sequence[Event], key: Key) -> list[tuple[int, int]]:
    return align([key(event) for event in a], [key(event) for event in b])


def _gaps(
    a: Sequence[Event], b: Sequence[Event], matched: Sequence[tuple[int, int]]
) -> list[tuple[Sequence[Event], Sequence[Event]]]:
    """What stands between the pairs, where both sides have something."""
    gaps = []
    i0 = j0 = 0
    for i, j in [*matched, (len(a), len(b))]:
        if i > i0 and j > j0:
            gaps.append((a[i0:i], b[j0:j]))
        i0, j0 = i + 1, j + 1
    return gaps


def _opened(events: Sequence[Event], size: int) -> list[Event]:
    """The events with the modules of a size replaced by what runs in them: first the one that holds all others."""
    opened: list[Event] = []
    for event in events:
        opened += _calls(event) if size and _size(event) == size else [event]
    return opened


def _size(event: Event) -> int:
    """How many calls run in the pass of a module."""
    count = 0
    todo = _calls(event) if event.is_module else []
    while todo:
        inner = todo.pop()
        count += 1
        todo += _calls(inner)
    return count


def _without_wrappers(events: Sequence[Event], others: Sequence[Event]) -> Sequence[Event]:
    """The events with modules opened that one side alone has around modules which the other side has in this row."""
    there = {event.key for event in others if event.is_module}
    if all(event.key in there for event in events if event.is_module):
        return events
    unwrapped: list[Event] = []
    for event in events:
        around = event.is_module and event.key not in there and _holds(event, there)
        unwrapped += _without_wrappers(_calls(event), others) if around else [event]
    return unwrapped


def _holds(event: Event, keys: set[str]) -> bool:
    todo = _calls(event)
    while todo:
        inner = todo.pop()
        if inner.is_module and inner.key in keys:
            return True
        todo += _calls(inner)
    return False


def _pair_recomputation(pairing: Pairing) -> None:
    """Recomputed calls on both sides answer to each other if the calls they repeat do."""
    repeated: list[dict[Event, list[Event]]] = []
    for timeline in (pairing.candidate, pairing.reference):
        pairs = repeats(timeline)
        pairing.repeats.update(pairs)
        passes: dict[Event, list[Event]] = {}
        for again, first in pairs.items():
            passes.setdefault(first, []).append(again)
        repeated.append(passes)
    for original, passes_of_it in repeated[0].items():
        partner = pairing.partner.get(original)
        if partner is not None:
            for left, right in zip(passes_of_it, repeated[1].get(partner, ()), strict=False):
                pairing.add(left, right)


def _pair_backward(pairing: Pairing) -> None:
    """Backward calls answer to each other if their forward calls do; a recomputed call stands for the first."""
    sides: list[dict[Event, list[Event]]] = []
    for timeline in (pairing.candidate, pairing.reference):
        by_forward: dict[Event, list[Event]] = {}
        for event in timeline:
            if event.direction == "backward":
                forward = timeline.forward_of(event)
                if forward is not None:
                    by_forward.setdefault(pairing.repeats.get(forward, forward), []).append(event)
        sides.append(by_forward)
    for forward, events in sides[0].items():
        partner = pairing.partner.get(forward)
        if partner is not None:
            for left, right in zip(events, sides[1].get(partner, ()), strict=False):
                pairing.add(left, right, loose=forward in pairing.loose)


def _pair_by_name(pairing: Pairing) -> None:
    """What has no place in the tree: gradients of parameters, optimizer steps, backward calls without forward."""
    for directions in ("gradient", "optimizer", "backward"):
        rest = [event for event in pairing.reference if event not in pairing.back and event.direction == directions]
        waiting: dict[Hashable, list[Event]] = {}
        for event in rest:
            waiting.setdefault((_named(event), event.parts.number), []).append(event)
        for event in pairing.candidate:
            if event.direction == directions and event not in pairing.partner:
                if directions == "backward" and pairing.candidate.forward_of(event) is not None:
                    continue
                twins = waiting.get((_named(event), event.parts.number))
                if twins:
                    pairing.add(event, twins.pop(0))


def _named(event: Event) -> Hashable:
    # The steps of optimizers answer to each other whatever the optimizers are.
    if event.parts.kind == "optimizer":
        return "optimizer"
    return f"gradient:{event.parts.path}" if event.direction == "gradient" else event.key
