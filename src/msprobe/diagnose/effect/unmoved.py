"""Weights that one side alone moves from step to step: a stale copy, or a parameter that is left out.

That is no question of how far weights are apart. A step of an optimizer is small beside them, and in half types within
what rounding may do to gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance import effect, units
from msprobe.store.rows import SUMS, Numbers, number_of

#: What a row says of a weight on each side, the unit of its type, and how many elements it has.
Held = tuple[Numbers, Numbers, float, int]


def weights_held(pairing: Pairing) -> dict[str, Held]:
    """The weights that modules of both sides take in the forward pass first, by the candidate's names."""
    held: dict[str, Held] = {}
    for event, partner in pairing.partner.items():
        if not event.is_module or event.direction != "forward":
            continue
        others = dict(partner.parameters())
        for slot, leaf in event.parameters():
            other: Any = others.get(slot)
            name = parameter_name(event, slot)
            if name in held or not (is_tensor(leaf) and is_tensor(other)) or leaf.get("requires_grad") is not True:
                continue
            mine = pairing.candidate.part.rows.numbers(number_of(leaf))
            theirs = pairing.reference.part.rows.numbers(number_of(other))
            if mine is not None and theirs is not None:
                held[name] = mine, theirs, max(units.eps_of(leaf), units.eps_of(other)), numel(leaf)
    return held


def unmoved_weights(now: Mapping[str, Held], before: Mapping[str, Held]) -> frozenset[str]:
    """The weights that one side has as they were, bit by bit as rows say, and that the other has moved."""
    names: set[str] = set()
    for name, (*sides, unit, count) in now.items():
        if name not in before:
            continue
        pairs = list(zip(sides, before[name][:2], strict=True))
        moved = [math.dist(new[2], old[2]) / math.sqrt(SUMS) for new, old in pairs]
        are_same = [new == old for new, old in pairs]
        for is_same, distance, (new, _) in zip(are_same, reversed(moved), reversed(pairs), strict=True):
            if is_same and effect.is_movement(distance, math.sqrt(max(new[1], 0.0)), count, unit):
                names.add(name)
    return frozenset(names)
