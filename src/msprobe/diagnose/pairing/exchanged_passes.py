"""Gradients that one side exchanges after each backward pass, and the other once for several passes together.

Both come to the same sum, while no exchange of one side has the values of an exchange of the other: these calls do not
answer to each other. Which passes a gradient is the sum of, the rows of its own side say: signed sums of a sum are the
sums of signed sums.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.parameter_names import plain_name
from msprobe.diagnose.steps.tensor_info import RecordedTensor, numel
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor
from msprobe.diagnose.tolerance.units import signed_sums_limit
from msprobe.store.rows import SUMS, Numbers, number_of

#: So many sums of passes are tried on each side of a step.
_MOST_TRIED = 100_000
#: Of fewer elements, which gradient a tensor is its row does not say.
_FEW_ELEMENTS = 8
#: The passes of one parameter that a gradient is the sum of: the first one, and the one behind the last.
_Passes = tuple[int, int]


def part_other_exchanges(pairing: Pairing) -> None:
    """Take calls apart that exchange gradients of other backward passes than their partners, with all calls outside of
    modules that one side repeats for each exchange. Each side takes the gradients of each pass once.
    """
    repeated = _repeated_on_one_side(pairing)
    if not repeated:
        return
    mine, theirs = (_passes_taken(side, repeated) for side in (pairing.candidate, pairing.reference))
    paired = [(event, partner) for event, partner in pairing.partner.items() if _form(event) in repeated]
    if any(mine.get(event, ()) != theirs.get(partner, ()) for event, partner in paired if event in mine):
        for event, _ in paired:
            if _is_outside(event):
                pairing.part(event)


def _repeated_on_one_side(pairing: Pairing) -> set[Hashable]:
    """The calls outside of modules, by what is called on which shapes, that both sides make, and one more often."""
    if not any(map(_is_outside, (*pairing.alone(), *pairing.missing()))):
        return set()
    counts, others = (Counter(map(_form, filter(_is_outside, side))) for side in (pairing.candidate, pairing.reference))
    return {form for form, count in counts.items() if others[form] not in (0, count)}


def _is_outside(event: Event) -> bool:
    return event.parts.kind == "api" and event.direction == "forward" and event.module is None


def _form(event: Event) -> Hashable:
    shapes = [leaf.get("shape") for _, leaf in event.inputs() if is_tensor(leaf)]
    return event.key, str(shapes)


def _passes_taken(timeline: Timeline, forms: set[Hashable]) -> dict[Event, list[_Passes]]:
    """The passes that the gradients of each call are the sums of; nothing of a side on which the calls of one form do
    not take each pass of a parameter once.
    """
    delivered = _delivered(timeline)
    taken: dict[Event, list[_Passes]] = {}
    if not delivered:
        return taken
    covered: dict[tuple[Hashable, str], list[_Passes]] = defaultdict(list)
    # What these calls gave is no gradient that is taken: they add to it.
    given: set[Numbers] = set()
    tried = 0
    for event in timeline:
        if not _is_outside(event) or _form(event) not in forms:
            continue
        for leaf, numbers in _rows(timeline, event.inputs()):
            for name, passes in delivered.get(numel(leaf), {}).items() if numbers not in given else ():
                tried += 1
                if tried > _MOST_TRIED:
                    return {}
                added = _passes_in(leaf, numbers, passes)
                if added is not None:
                    taken.setdefault(event, []).append(added)
                    covered[_form(event), name].append(added)
                    break
        given.update(numbers for _, numbers in _rows(timeline, event.outputs()))
    lengths = {name: len(passes) for by_name in delivered.values() for name, passes in by_name.items()}
    is_whole = all(_are_all(passes, lengths[name]) for (_, name), passes in covered.items())
    return taken if is_whole else {}


def _rows(timeline: Timeline, slots: Iterable[Slot]) -> Iterator[tuple[RecordedTensor, Numbers]]:
    """The tensors that are large enough to be known by their rows, with these."""
    for _, leaf in slots:
        if is_tensor(leaf) and numel(leaf) >= _FEW_ELEMENTS:
            numbers = timeline.part.rows.numbers(number_of(leaf))
            if numbers is not None:
                yield leaf, numbers


def _delivered(timeline: Timeline) -> dict[int, dict[str, list[Numbers]]]:
    """What the backward passes gave parameters that have several, by their number of elements and their names."""
    by_count: dict[int, dict[str, list[Numbers]]] = defaultdict(dict)
    for event in timeline:
        if event.direction != "gradient" or event.parts.number is None:
            continue
        for slot, leaf in event.outputs():
            for _, numbers in _rows(timeline, [(slot, leaf)]):
                by_count[numel(leaf)].setdefault(plain_name(event, slot), []).append(numbers)
    several = {
        count: {name: passes for name, passes in by_name.items() if len(passes) > 1}
        for count, by_name in by_count.items()
    }
    return {count: by_name for count, by_name in several.items() if by_name}


def _passes_in(leaf: RecordedTensor, wanted: Numbers, passes: Sequence[Numbers]) -> _Passes | None:
    """Which passes one after the other come to the tensor ``leaf`` together; None if none do."""
    for first in range(len(passes)):
        signed, norms = [0.0] * SUMS, 0.0
        for end, numbers in enumerate(passes[first:], first + 1):
            signed = [total + more for total, more in zip(signed, numbers[2], strict=True)]
            norms += math.sqrt(numbers[1])
            if math.dist(signed, wanted[2]) <= signed_sums_limit(leaf, norms):
                return first, end
    return None


def _are_all(taken: Iterable[_Passes], count: int) -> bool:
    """True if these are ``count`` passes, each once."""
    place = 0
    for first, end in sorted(taken):
        if first != place:
            return False
        place = end
    return place == count
