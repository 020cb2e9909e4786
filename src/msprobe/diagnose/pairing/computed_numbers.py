"""Numbers that a program computes from tensors, and gives to later calls: the coefficient of a clipping by hand.

They are no settings. A number follows from what was taken out of tensors before it in the step (``item``), and is as
far apart on the two sides as these are, or less: a norm of several is nearer than they, its inverse as near, its square
twice as far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor

#: A number that is made of one of the taken ones is at the most so many times as far apart.
_SQUARED = 2.0
#: Settings are written with no more digits than these.
_DIGITS_OF_SETTINGS = 6

#: By the names of its slots, how far the numbers are apart that a call is given, as a share of the larger.
Apart = Mapping[str, float]
NONE_APART: Apart = {}


def computed_numbers(pairing: Pairing) -> dict[Event, Apart]:
    """The numbers that calls of both sides are given, and that are apart because they were computed from tensors."""
    computed: dict[Event, Apart] = {}
    furthest = 0.0
    taken: tuple[set[float], set[float]] = set(), set()
    for event in pairing.candidate:
        partner = pairing.partner.get(event)
        if partner is None or event.direction == "backward" or not event.is_call:
            continue
        if operation(event.stem) in operators.TAKE_NUMBERS:
            sides = [_numbers(side.outputs()) for side in (event, partner)]
            for numbers, values in zip(taken, sides, strict=True):
                numbers.update(values.values())
            furthest = max(furthest, *_apart(*sides).values(), 0.0)
        elif furthest:
            mine, theirs = _numbers(event.inputs()), _numbers(partner.inputs())
            apart = {
                slot: size
                for slot, size in _apart(mine, theirs).items()
                if 0.0 < size <= _SQUARED * furthest
                and (
                    (mine[slot] in taken[0] and theirs[slot] in taken[1])
                    or _has_more_digits(mine[slot])
                    or _has_more_digits(theirs[slot])
                )
            }
            if apart:
                computed[event] = apart
    return computed


def with_candidates(others: Sequence[Slot], slots: Sequence[Slot], apart: Apart) -> list[Slot]:
    """The reference's slots, with the candidate's numbers where these were computed."""
    mine = dict(slots)
    return [(slot, mine[slot] if slot in apart else leaf) for slot, leaf in others]


def _numbers(slots: Sequence[Slot]) -> dict[str, float]:
    return {
        slot: value
        for slot, leaf in slots
        if not is_tensor(leaf) and type(value := leaf.get("value") if isinstance(leaf, dict) else leaf) is float
    }


def _apart(mine: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """How far numbers of the same slots are apart, as a share of the larger; of what is not finite, nothing."""
    sizes: dict[str, float] = {}
    for slot in mine.keys() & theirs.keys():
        largest = max(abs(mine[slot]), abs(theirs[slot]))
        if 0.0 < largest < math.inf:
            sizes[slot] = abs(mine[slot] - theirs[slot]) / largest
    return sizes


def _has_more_digits(number: float) -> bool:
    return float(f"{number:.{_DIGITS_OF_SETTINGS}g}") != number
