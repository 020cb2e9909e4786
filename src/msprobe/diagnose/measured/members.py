"""Calls that compute the same of each tensor of a list: one call for each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msprobe.diagnose.steps.timeline import Slot

_PREFIX = "_foreach_"


class Member(NamedTuple):
    """What one of these computes: ``inputs`` and ``outputs`` have the names of a call of one tensor; ``slot``: the name
    that its result has in the list.
    """

    slot: str
    inputs: list[Slot]
    outputs: list[Slot]


def name_of_member(operation: str) -> str:
    """What a call computes of each tensor: ``add`` of ``_foreach_add``; of a call of one tensor, what it computes."""
    return operation.removeprefix(_PREFIX)


def members(operation: str, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> dict[str, Member]:
    """The calls that a call consists of, by their places in the list; empty for a call that is one by itself."""
    if not operation.startswith(_PREFIX):
        return {}
    found: dict[str, Member] = {}
    for slot, leaf in outputs:
        number = slot.rpartition(".")[2]
        if number in found:
            return {}  # several lists
        found[number] = Member(slot, [], [("output.0", leaf)])
    of_all: list[Slot] = []
    for slot, leaf in inputs:
        name, _, number = slot.rpartition(".")
        if name in ("", "input"):
            of_all.append((slot, leaf))
        elif number in found:
            found[number].inputs.append((name, leaf))
    for one in found.values():
        one.inputs.extend(of_all)
    return found
