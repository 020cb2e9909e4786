"""What a write in place leaves behind, where its record does not have it: it is a result of the write.

``x[mask] = 0`` returns nothing, and ``x[:, 2].mul_(2)`` returns the part that it wrote to; what later calls take is the
whole of x. A tensor that no call made and that was not there before is taken for what the last write left to a tensor
of its shape and type. The tensor as it was before becomes an argument of the write, since most of it is handed on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import fingerprint, numbers
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor

#: So many writes are remembered whose result was not taken yet, and so many views lead to one tensor.
_MOST_WRITES = 64
_MOST_VIEWS = 8
#: The slot of what was written to, before and after.
_BEFORE, _AFTER = "input.written", "output.written"


def add_written(timeline: Timeline) -> None:
    """Give each write of the forward pass what it left, where a later call takes that."""
    calls = [event for event in timeline if event.is_call and event.direction in ("forward", "recompute")]
    if not any(writes_in_place(event.stem) for event in calls):
        return
    seen = set(_given(timeline))
    made: dict[Hashable, Event] = {}
    writes: list[tuple[Event, list[dict[str, Any]]]] = []
    for event in calls:
        for _, leaf in event.inputs():
            mark = fingerprint(leaf)
            if mark is None or mark in seen:
                continue
            seen.add(mark)
            _attach(leaf, writes)
        if writes_in_place(event.stem):
            writes = [*writes, (event, _written_to(event, made))][-_MOST_WRITES:]
        for _, leaf in event.outputs():
            mark = fingerprint(leaf)
            if mark is not None:
                seen.add(mark)
                made[mark] = event


def answering_writes(slots: list[Slot], others: list[Slot]) -> tuple[list[Slot], list[Slot]]:
    """What went into two writes that answer to each other, or came out, but for what only one was given here."""
    if {slot in (_BEFORE, _AFTER) for slot, _ in (*slots[-1:], *others[-1:])} != {True, False}:
        return slots, others
    left, right = ([slot for slot in side if slot[0] not in (_BEFORE, _AFTER)] for side in (slots, others))
    return left, right


def _given(timeline: Timeline) -> Iterator[Hashable]:
    """What distinguishes the tensors that come from elsewhere: arguments of the outermost modules, parameters and
    buffers.
    """
    for event in timeline:
        if event.is_module and event.direction == "forward":
            taken = event.parameters() if event.parent is not None else [*event.parameters(), *event.inputs()]
            yield from (fingerprint(leaf) for _, leaf in taken)


def _written_to(write: Event, made: dict[Hashable, Event]) -> list[dict[str, Any]]:
    """The tensor that a call writes to, and those that it is a part of."""
    written: list[dict[str, Any]] = []
    slot, leaf = next(iter(write.inputs()), ("", None))
    if slot != "input.0":
        return []  # a list of tensors, which the record has
    while is_tensor(leaf) and len(written) < _MOST_VIEWS:
        assert isinstance(leaf, dict)
        written.append(leaf)
        mark = fingerprint(leaf)
        maker = made.get(mark) if mark is not None else None
        if maker is None or operation(maker.stem) not in operators.MAY_VIEW:
            break
        leaf = next((leaf_of_call for _, leaf_of_call in maker.inputs()), None)
    # Of a constant nothing says who made it; it is returned all the same.
    is_returned = any(is_tensor(leaf_of_call) for _, leaf_of_call in write.outputs())
    return written[1:] if is_returned else written


def _attach(leaf: dict[str, Any], writes: list[tuple[Event, list[dict[str, Any]]]]) -> None:
    """Make a tensor the result of the last write to one of its kind that has no such result yet."""
    for place in range(len(writes) - 1, -1, -1):
        write, written = writes[place]
        for before in written:
            if _are_of_a_kind(before, leaf) and _may_put(write, before, leaf):
                write.arrange([*write.inputs(), (_BEFORE, before)], [*write.outputs(), (_AFTER, leaf)])
                del writes[place]
                return


def _are_of_a_kind(before: dict[str, Any], after: dict[str, Any]) -> bool:
    if before.get("dtype") != after.get("dtype") or before.get("shape") != after.get("shape"):
        return False
    # What requires a gradient goes on requiring one.
    return after.get("requires_grad") is True or before.get("requires_grad") is not True


def _may_put(write: Event, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """False if a write that puts numbers into a tensor was given none as large, or as small, as those that it has now;
    one of several tensors of a kind was written to last.
    """
    if operation(write.stem) not in operators.MASKS:
        return True
    ends = [end for leaf in (before, *(leaf for _, leaf in write.inputs())) for end in _ends(leaf)]
    reached = _ends(after)
    return not ends or not reached or (max(reached) <= max(ends) and min(reached) >= min(ends))


def _ends(leaf: Any) -> tuple[float, ...]:
    """The largest and the smallest number of an argument; empty where they are not known."""
    if is_tensor(leaf):
        known = numbers(leaf)
        return known[:2] if known is not None else ()
    value = leaf.get("value") if isinstance(leaf, dict) else leaf
    return (float(value),) if isinstance(value, (int, float)) else ()
