"""Collectives on several ranks: what one gives comes from what all of its ranks put in."""

from __future__ import annotations

import math
from collections import Counter

from msprobe.compare.entry_names import operation
from msprobe.diagnose.measured.node import CollectiveInput, MeasuredResult, Node
from msprobe.diagnose.measured.tables import ENDLESS, Table, Tensors
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.process_group import ranks_of_group
from msprobe.diagnose.steps.timeline import Event

_NAN = math.nan, math.nan
#: What a program's own ``torch.autograd.Function`` calls is not seen, and may be a collective.
_OWN_FUNCTION = "Function."


def numbers_of_exchanges(pairing: Pairing) -> dict[Event, tuple[tuple[str, tuple[int, ...]], int]]:
    """The collectives of the candidate on several ranks that are known, each with its key and number."""
    found: dict[Event, tuple[tuple[str, tuple[int, ...]], int]] = {}
    numbers: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for event in pairing.candidate:
        if event.is_collective and event.direction == "forward" and len(ranks := ranks_of_group(event)) > 1:
            key = event.stem, ranks
            found[event] = key, numbers[key]
            numbers[key] += 1
    return found


def node_of_exchange(
    table: Table, inputs: Tensors, made: Tensors, event: Event, place: tuple[tuple[str, tuple[int, ...]], int]
) -> Node:
    """What a collective gives may be as far apart as all that is put in: a sum, a part of one, or copies of it."""
    taken = [table.of(number) for of_type, number in zip(inputs.units, inputs.places, strict=True) if of_type]
    is_known = inputs.is_same and all(one.is_known for one in taken)
    distance, coherent = (sum(one.distance for one in taken), sum(one.coherent for one in taken)) if is_known else _NAN
    results, norms, excused = [], [], "" if is_known else "arguments"
    for slot, of_type, number in zip(made.slots, made.units, made.places, strict=True):
        one = table.of(number)
        if not of_type or one.kind == "exact":
            continue
        if not one.is_known or not one.norm:
            excused = excused or "results"
            continue
        apart, coherently, put_in, coherently_put_in = (
            min(size / one.norm, ENDLESS) for size in (one.distance, one.coherent, distance, coherent)
        )
        whole = max(int(one.alike), 1)
        results.append(
            MeasuredResult(
                slot, apart, coherently, put_in, coherently_put_in, one.count, False, alone=whole, alike=one.alike
            )
        )
        norms.append(one.norm)
    exchange = CollectiveInput(*place, distance, coherent, tuple(norms))
    unit = max((*inputs.units, *made.units), default=0.0)
    name = operation(event.stem)
    return Node(event, name, "forward", unit, tuple(results), "", excused, exchange=exchange)


def exchanges(pairing: Pairing, event: Event) -> bool:
    """True for a call, or the backward of one, that exchanges data between ranks, or holds one that does. A group of
    one rank exchanges nothing.
    """
    forward = (pairing.candidate.forward_of(event) if event.direction == "backward" else None) or event
    todo = [event, forward]
    while todo:
        one = todo.pop()
        if one.name.startswith(_OWN_FUNCTION) or (one.is_collective and len(ranks_of_group(one)) != 1):
            return True
        todo += one.children
    return False
