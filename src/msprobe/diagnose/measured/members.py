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
    members_found: dict[str, Member] = {}
    for slot, leaf in outputs:
        number = slot.rpartition(".")[2]
        if number in members_found:
            return {}  # several lists
        members_found[number] = Member(slot, [], [("output.0", leaf)])
    shared: list[Slot] = []
    for slot, leaf in inputs:
        name, _, number = slot.rpartition(".")
        if name in ("", "input"):
            shared.append((slot, leaf))
        elif number in members_found:
            members_found[number].inputs.append((name, leaf))
    for member in members_found.values():
        member.inputs.extend(shared)
    return members_found
