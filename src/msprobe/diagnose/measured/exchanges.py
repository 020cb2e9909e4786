"""Collectives on several ranks: what one gives comes from what all of its ranks put in. Of a message from one rank to
another, what is received from what is sent.
"""

from __future__ import annotations

import math
from collections import Counter

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.measured.node import CollectiveInput, MeasuredResult, Node
from msprobe.diagnose.measured.tables import ENDLESS, NO_TENSORS, DeviationTable, Tensors
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps import communication
from msprobe.diagnose.steps.communication import ranks_of_group
from msprobe.diagnose.steps.timeline import Event

_NAN = math.nan, math.nan
#: What a program's own ``torch.autograd.Function`` calls is not seen, and may be a collective.
_OWN_FUNCTION = "Function."


def numbers_of_exchanges(pairing: Pairing) -> dict[Event, tuple[tuple[str, tuple[int, ...]], int]]:
    """The collectives of the candidate on several ranks that are known, each with its key and number."""
    exchanges_found: dict[Event, tuple[tuple[str, tuple[int, ...]], int]] = {}
    numbers: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for event in pairing.candidate:
        key = _key(event, pairing.candidate.rank) if event.is_collective and event.direction == "forward" else None
        if key is not None:
            exchanges_found[event] = key, numbers[key]
            numbers[key] += 1
    return exchanges_found


def _key(event: Event, rank: int | str) -> tuple[str, tuple[int, ...]] | None:
    """What a collective is on all of its ranks; None where these are not known, or it is several messages."""
    name = operation(event.stem)
    if name not in operators.BETWEEN_TWO:
        ranks = ranks_of_group(event)
        return (event.stem, ranks) if len(ranks) > 1 else None
    if name not in operators.SENDS and name != "recv":
        return None  # what is received later stands nowhere
    ((word, pair, tag),) = communication.keys(event, rank)
    return (f"{word} {tag}", pair) if all(isinstance(member, int) for member in pair) else None


def node_of_exchange(
    table: DeviationTable, inputs: Tensors, made: Tensors, event: Event, place: tuple[tuple[str, tuple[int, ...]], int]
) -> Node:
    """What a collective gives may be as far apart as all that is put in: a sum, a part of one, or copies of it. What
    stands where a message is received is nothing that is put in, and what is sent is no result.
    """
    name = operation(event.stem)
    if name in operators.RECEIVES:
        inputs = NO_TENSORS
    elif name in operators.SENDS:
        made = NO_TENSORS
    taken = [table.of(number) for unit_given, number in zip(inputs.units, inputs.places, strict=True) if unit_given]
    is_known = inputs.is_same and all(deviation.is_known for deviation in taken)
    distance, coherent = (
        (sum(deviation.distance for deviation in taken), sum(deviation.coherent for deviation in taken))
        if is_known
        else _NAN
    )
    results, norms, excused = [], [], "" if is_known else "arguments"
    for slot, unit_made, number in zip(made.slots, made.units, made.places, strict=True):
        deviation = table.of(number)
        if not unit_made or deviation.kind == "exact":
            continue
        if not deviation.is_known or not deviation.norm:
            excused = excused or "results"
            continue
        apart, coherently, put_in, coherently_put_in = (
            min(size / deviation.norm, ENDLESS) for size in (deviation.distance, deviation.coherent, distance, coherent)
        )
        whole = max(int(deviation.alike), 1)
        results.append(
            MeasuredResult(
                slot,
                apart,
                coherently,
                put_in,
                coherently_put_in,
                deviation.count,
                False,
                alone=whole,
                alike=deviation.alike,
            )
        )
        norms.append(deviation.norm)
    exchange = CollectiveInput(*place, distance, coherent, tuple(norms))
    unit = max((*inputs.units, *made.units), default=0.0)
    return Node(event, name, "forward", unit, tuple(results), "", excused, exchange=exchange)


def exchanges(pairing: Pairing, event: Event) -> bool:
    """True for a call, or the backward of one, that exchanges data between ranks, or holds one that does. A group of
    one rank exchanges nothing.
    """
    forward = (pairing.candidate.forward_of(event) if event.direction == "backward" else None) or event
    todo = [event, forward]
    while todo:
        node = todo.pop()
        if node.name.startswith(_OWN_FUNCTION) or (node.is_collective and len(ranks_of_group(node)) != 1):
            return True
        todo += node.children
    return False
