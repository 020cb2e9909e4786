"""Whether a call draws random numbers: known by what it takes and gives, and by its name where it has a known one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.compare.name_table import layer_name
from msprobe.diagnose import operators
from msprobe.diagnose.steps.tensor_info import is_floating, is_tensor, numbers, numel
from msprobe.diagnose.steps.timeline import Event

#: Arguments and attributes that say where random numbers come from.
_SOURCES = re.compile(r"(?:^|_)(?:seed|generator|rng)\d*(?:$|_)", re.IGNORECASE)
#: A mask that was drawn with a probability has as many ones as that says, but for so many deviations.
_DEVIATIONS = 6.0
#: A sum of ones and zeros is that of their squares, in single precision.
_SAME = 1e-4


def is_random(event: Event) -> bool:
    """True if a call draws random numbers."""
    if not event.is_call:
        return False
    word = operation(event.stem)
    if word in operators.DROPPING:
        slots = ("input.dropout_p", f"input.{operators.DROPPING[word]}")
        values = (leaf.get("value") for slot, leaf in event.inputs() if slot in slots and isinstance(leaf, dict))
        return any(isinstance(value, float) and value > 0 for value in values)
    return word in operators.RANDOM or _takes_a_source(event) or _gives_a_drawn_mask(event)


def is_random_layer(event: Event) -> bool:
    """True for a pass of a layer that draws random numbers, of which no calls were recorded."""
    layer = layer_name(event.parts.owner) if event.is_module and not event.children else None
    return layer is not None and operators.operator_of_layer(layer) in operators.RANDOM


def _takes_a_source(event: Event) -> bool:
    """True for a call with a seed or a generator among its named arguments or the attributes of its object."""
    for name, leaf in _named(event):
        if _SOURCES.search(name) and leaf is not None and not (isinstance(leaf, dict) and leaf.get("value", 0) is None):
            return True
    return False


def _gives_a_drawn_mask(event: Event) -> bool:
    """True for a call that gives zeros and ones beside its result, as many as a probability that it takes says."""
    results = [leaf for _, leaf in event.outputs() if is_tensor(leaf)]
    if len(results) < 2 or not is_floating(results[0]):
        return False
    shares = [share for mask in results[1:] if (share := _share_of_ones(mask, results[0])) is not None]
    chances = [chance for chance in _chances(event) if 0 < chance < 1]
    count = numel(results[0])
    return any(
        abs(share - chance) <= _DEVIATIONS * math.sqrt(chance * (1 - chance) / count)
        for share in shares
        for probability in chances
        for chance in (probability, 1 - probability)
    )


def _share_of_ones(mask: dict[str, Any], result: dict[str, Any]) -> float | None:
    """How many ones there are among zeros, as statistics say; None for what is no mask of the result."""
    statistics = numbers(mask)
    count = numel(mask)
    if statistics is None or mask.get("shape") != result.get("shape") or not count:
        return None
    largest, least, mean, norm = statistics
    if (largest, least) != (1.0, 0.0) or not math.isclose(norm * norm, mean * count, rel_tol=_SAME):
        return None
    return mean


def _chances(event: Event) -> Iterator[float]:
    for leaf in (*(leaf for _, leaf in event.inputs()), *(leaf for _, leaf in _named(event))):
        value = leaf.get("value") if isinstance(leaf, dict) else leaf
        if type(value) is float:
            yield value


def _named(event: Event) -> Iterator[tuple[str, Any]]:
    for part in ("input_kwargs", "attributes"):
        named = event.record.get(part)
        if isinstance(named, dict):
            yield from ((str(name), leaf) for name, leaf in named.items())
