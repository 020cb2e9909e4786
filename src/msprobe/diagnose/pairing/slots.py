"""Which arguments and results of two calls that answer to each other do so themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.compare.alignment import align
from msprobe.compare.entry_names import writes_in_place
from msprobe.diagnose.differences.records import is_floating, numel
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor
from msprobe.diagnose.steps.written import answering_writes

#: Slots of the candidate's call, and those of the reference's.
Sides = tuple[list[Slot], list[Slot]]


def answering_slots(event: Event, partner: Event, crossing: bool) -> tuple[Sides, Sides]:
    """What goes into two calls that answer to each other, and what comes out: of each what can be compared.

    Slots of one name answer to each other (:func:`msprobe.diagnose.differences.records.pair_slots`). ``crossing``: one
    side ran on MindSpore, the other on PyTorch.
    """
    inputs: Sides = event.inputs(), partner.inputs()
    outputs: Sides = event.outputs(), partner.outputs()
    if writes_in_place(event.stem):
        inputs, outputs = answering_writes(*inputs), answering_writes(*outputs)
    if crossing:
        inputs = answering(*inputs)
        if event.direction != "gradient":
            outputs = answering(*outputs)
    elif event.direction == "backward" and ("input_grads" in event.record) != ("input_grads" in partner.record):
        # One of them was written by a recorder that does not name the gradients by argument.
        outputs = [], []
    return inputs, outputs


def answering(left: Sequence[Slot], right: Sequence[Slot]) -> Sides:
    """Those of two lists of slots that answer to each other: the frameworks give calls more results, arguments and
    gradients than the other has. Tensors of one kind and size answer in their order, all else by name.
    """
    mine, theirs = [s for s in left if is_tensor(s[1])], [s for s in right if is_tensor(s[1])]
    names = {slot for slot, leaf in left if not is_tensor(leaf)} & {slot for slot, leaf in right if not is_tensor(leaf)}
    plain = [[slot for slot in side if slot[0] in names] for side in (left, right)]
    if len(mine) != len(theirs):
        pairs = align([_kind(leaf) for _, leaf in mine], [_kind(leaf) for _, leaf in theirs])
        mine, theirs = [mine[i] for i, _ in pairs], [theirs[j] for _, j in pairs]
    theirs = [(slot, leaf) for (slot, _), (_, leaf) in zip(mine, theirs, strict=True)]
    return [*mine, *plain[0]], [*theirs, *plain[1]]


def _kind(leaf: Any) -> tuple[bool, int]:
    return is_floating(leaf), numel(leaf)
