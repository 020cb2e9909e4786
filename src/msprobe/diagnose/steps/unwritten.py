"""Memory that nobody has written: what stands in it is no data, wherever it is seen.

The recorder marks what it saw allocated (``unset``) until all of it is written. Three things it cannot mark are found
here, from the calls of a step:

- copies of such memory, and what is computed of it element by element;
- what dumps of others record of ``empty`` and its like, which is whatever was there;
- at level L2, memory that C++ allocated: torch hands it to calls that look at a part of it, and nobody reads what they
  give before it is written over. A view that no call reads says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.steps.overwritten import as_unset
from msprobe.diagnose.steps.tensor_info import RecordedTensor
from msprobe.statistics_table import USUAL_KEYS

if TYPE_CHECKING:
    from msprobe.diagnose.steps.timeline import Event, Slot

#: Results of which only a part is written.
_PARTLY_WRITTEN = {"Ops.fsdp_all_gather_copy_in": "output.1"}
#: Arguments of which only the shape or the type counts.
_TEMPLATES = frozenset(("input.1", "input.other"))


def mark_unwritten(events: Sequence[Event], level: object) -> None:
    """Take the numbers away from what the events of a timeline say of memory that nobody has written."""
    if level == "L2":
        for event in events:
            if event.stem in _PARTLY_WRITTEN:
                whole = _PARTLY_WRITTEN[event.stem]
                event.arrange(outputs=[(slot, _without(leaf, slot == whole)) for slot, leaf in event.outputs()])
        _mark_unread_views(events)
    if any(map(_allocates, events)):
        _hand_on(events)


def reads_unwritten(event: Event) -> bool:
    """True if a call takes memory that nobody has written, and does more than to write to it."""
    if event.direction in ("backward", "gradient"):
        return False
    slots = [slot for slot, leaf in event.inputs() if _is_unset(leaf) and not slot.startswith("input.out")]
    if not slots or event.is_collective:
        return False
    word = operation(event.stem)
    if word in operators.WRITES_ONLY:
        return False
    copies = word in operators.KEEPS_ALL and word not in operators.ELEMENTWISE
    return not (copies and _TEMPLATES.issuperset(slots))


def _allocates(event: Event) -> bool:
    return event.parts.kind == "api" and operation(event.stem) in operators.UNSET


def _is_unset(leaf: Any) -> bool:
    if type(leaf) is RecordedTensor and leaf.plain:
        return False
    return isinstance(leaf, dict) and leaf.get("unset") is True


def _hand_on(events: Iterable[Event]) -> None:
    """Mark what calls give that allocate memory, or that take such memory and give all of it again."""
    garbage: set[Hashable] = set()
    for event in events:
        if event.parts.kind != "api" or event.direction == "backward":
            continue
        if garbage:
            event.arrange(inputs=[(slot, _without(leaf, _look(leaf) in garbage)) for slot, leaf in event.inputs()])
        if _allocates(event) or (operation(event.stem) in operators.KEEPS_ALL and reads_unwritten(event)):
            garbage.update(_look(leaf) for _, leaf in event.outputs())
            garbage.discard(None)
            event.arrange(outputs=_all_without(event.outputs()))


def _mark_unread_views(events: Sequence[Event]) -> None:
    """From the last event to the first: are the elements read before they are written over?"""
    read: dict[Hashable, bool] = {}
    buffers: list[tuple[Any, Any]] = []
    for event in reversed(events):
        if _is_of_buffer(event, buffers):
            event.arrange(_all_without(event.inputs()), _all_without(event.outputs()))
            continue
        given = {_look(leaf) for _, leaf in event.inputs()} - {None}
        if event.direction == "forward" and operation(event.stem) in operators.VIEWS:
            # Parts that are constant look like many others; then the whole says.
            made = {_look(leaf) for _, leaf in event.outputs()} - {None} or given
            if made and not any(read.get(mark) for mark in made):
                event.arrange(_all_without(event.inputs()), _all_without(event.outputs()))
                continue
        buffers = [_kind(leaf) for slot, leaf in event.inputs() if slot.startswith("input.out.") and _is_unset(leaf)]
        read.update(dict.fromkeys(given, True))
        read.update((_look(leaf), True) for _, leaf in event.parameters())
        read.update((_look(leaf), False) for leaf in event.overwritten())


def _is_of_buffer(event: Event, buffers: list[tuple[Any, Any]]) -> bool:
    """True for the view that is the last of the buffers which the call behind it fills; it is taken off their list."""
    made = event.outputs()
    if len(made) != 1 or not buffers or operation(event.stem) not in operators.VIEWS:
        return False
    if _kind(made[0][1]) != buffers[-1]:
        return False
    buffers.pop()
    return True


def _kind(leaf: Any) -> tuple[Any, Any]:
    return (str(leaf.get("shape")), leaf.get("dtype")) if isinstance(leaf, dict) else (None, None)


def _all_without(slots: Sequence[Slot]) -> list[Slot]:
    return [(slot, _without(leaf, True)) for slot, leaf in slots]


def _without(leaf: Any, unset: bool) -> Any:
    return as_unset(leaf) if unset and isinstance(leaf, dict) else leaf


def _look(leaf: Any) -> Hashable | None:
    """What distinguishes a tensor from others, a NaN being like another; None for constants and for what is no
    tensor.
    """
    if not (isinstance(leaf, dict) and isinstance(leaf.get("dtype"), str)):
        return None
    digest = leaf.get("digest") or leaf.get("md5")
    if isinstance(digest, str):
        return digest
    look = tuple(str(leaf.get(key)) for key in (*USUAL_KEYS, "nan", "inf", "zero"))
    shape = leaf.get("shape")
    size = math.prod(n for n in shape if isinstance(n, int)) if isinstance(shape, list) else 1
    if leaf.get("Max") is None:
        return None
    # Numbers may be words of strict JSON. Many tensors are of one number, few of one that is not finite.
    return None if look[0] == look[1] and size > 1 and math.isfinite(float(look[0])) else (*look, size)
