"""How far the results of one call may be apart when nothing is wrong: a model of rounding.

A call adds rounding noise of its own, in units of the coarsest floating-point type among its tensors: none for
calls that only move values, a few units for elementwise ones, growing with the square root of the number of
terms for sums (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 4.2: the statistical bound).
What its inputs differ by is handed on, times the amplification of the call: cancellation where the result is
small beside the inputs, the size of the input where it stands in an exponent or an angle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import numbers, numel, rms
from msprobe.diagnose.steps.tensor_info import RecordedTensor
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import units

#: Gradients this many times smaller than the largest count for that much less: a gradient that is zero in exact
#: arithmetic (of the bias of keys in attention) is nothing but rounding.
SMALL_GRADIENT = 1e-3


#: Half of the size of a result is clear in any case.
_CLEAR_IN_ANY_CASE = 0.5
#: The slope of functions whose slope is bounded: of GELU and SiLU at most 1.13 and 1.10, of the others 1.
_SLOPE = 1.2
#: What the divisor of a quotient may be smaller than it is on the whole, in single elements.
_OF_QUOTIENTS = 1024.0


def explained(own: float, factor: float = 1.0, arrived: float = 0.0, safety: float = units.BY_CALL) -> float:
    """How far the results of a call may be apart: by what it adds itself, and by the inputs, times what it makes of
    that (:func:`own_noise`, :func:`amplification`).
    """
    return safety * (own + factor * arrived)


def is_clear(left: float, allowed: float) -> bool:
    """True if a result is so much further apart than its inputs explain that it is to blame itself, whatever the model
    is worth. A relative difference does not grow far beyond 1, so that it need not be many times more where much is
    allowed.
    """
    return left > allowed and (left > units.BY_ROUNDING * allowed or left > _CLEAR_IN_ANY_CASE)


def safety_of(arrived: float, unit: float) -> float:
    """Of inputs that agree, nothing but the call's own rounding makes results differ; in types with few digits that is
    much by itself.
    """
    return units.BY_CALL if arrived or unit <= units.FINE else units.BY_ROUNDING


def own_noise(
    event: Event,
    inputs: Sequence[RecordedTensor],
    outputs: Sequence[RecordedTensor],
    rounding: float,
    factor: float = 1.0,
    crossing: bool = False,
) -> float:
    """The relative rounding error a call may add itself. ``rounding``: see ``units``; ``factor``: its amplification,
    which enlarges the errors inside the call, not that of the result itself. ``crossing``: between two frameworks,
    whose kernels need not keep the sums of half types in single precision, nor give the same bits for anything.
    """
    factor = min(factor, units.BY_MODULE)
    # Sums of half types are kept in single precision.
    sums = rounding if crossing else min(rounding, units.FINE)
    if crossing and event.is_call and operation(event.stem) in operators.ELEMENTWISE | operators.MOVES:
        return rounding * 2.0 + factor * rounding / 4
    if event.direction in ("forward", "recompute", "optimizer") and event.is_call:
        word = operation(event.stem)
        if word in operators.MOVES:
            return 0.0
        return rounding * 2.0 + factor * sums * math.sqrt(_terms(inputs, outputs)) / 4
    depth = 1 + len(event.children)
    return factor * (rounding * 4.0 + sums * math.sqrt(_terms(inputs, outputs)) / 2) * math.sqrt(depth)


def _terms(inputs: Sequence[RecordedTensor], outputs: Sequence[RecordedTensor]) -> float:
    """How many terms a sum inside the call may have."""
    if not inputs or not outputs:
        return 1.0
    largest = max([leaf.count for leaf in inputs])
    smallest = max(1, min([leaf.count for leaf in outputs]))
    widest = max([n for leaf in inputs for n in leaf.get("shape") or (1,) if isinstance(n, int)], default=1)
    return float(min(max(largest / smallest, widest), 1e8))


def amplification(
    event: Event, inputs: Sequence[RecordedTensor], outputs: Sequence[RecordedTensor], crossing: bool = False
) -> float:
    """How many times larger a relative error may be in the results than in the inputs. ``crossing``: between two
    frameworks all inputs are apart by rounding, so that it must not be taken for larger than it is.
    """
    tensors = [leaf for leaf in inputs if leaf.floating]
    results = [leaf for leaf in outputs if leaf.floating]
    if not tensors or not results:
        return 1.0
    word = operation(event.stem)
    if crossing and word in operators.BOUNDED and event.is_call and event.direction != "backward":
        size = min([leaf.rms for leaf in results])
        return max(1.0, min(_SLOPE * max([leaf.rms for leaf in tensors]) / size, 1e4)) if size > 0 else 1.0
    factor = 1.0
    if event.direction == "backward" or not event.is_call:
        # Which calls run inside a module, or in a backward node, is not followed here.
        factor = 4.0
    if word in operators.EXPONENTIAL or not event.is_call:
        factor = max(factor, min(max(map(_largest, tensors), default=1.0), 64.0))
    if word in operators.QUOTIENTS and event.direction == "optimizer":
        factor = max(factor, _OF_QUOTIENTS)
    if word in operators.CENTRING:
        factor = max(factor, max(_centring(leaf) for leaf in tensors[:1]))
    size = min([leaf.rms for leaf in results])
    typical = max([leaf.rms for leaf in tensors])
    if size > 0 and typical > 0 and (word in operators.DIFFERENCES or event.direction == "backward"):
        factor = max(factor, min(typical / size, 1e4))
    elif size > 0 and word in operators.SUMS:
        terms = max(1, numel(tensors[0])) / max(1, numel(results[0]))
        expected = typical * math.sqrt(terms) / (terms if word == "mean" else 1.0)
        factor = max(factor, min(expected / size, 1e4))
    elif size > 0 and word in operators.PRODUCTS:
        factor = max(factor, min(_product(tensors) / size, 1e4))
    return factor


def _product(tensors: Sequence[dict[str, Any]]) -> float:
    """The size that a product of two tensors has when their elements are unrelated."""
    if len(tensors) < 2:
        return 0.0
    shape = tensors[0].get("shape") or [1]
    terms = shape[-1] if shape and isinstance(shape[-1], int) else 1
    return rms(tensors[0]) * rms(tensors[1]) * math.sqrt(terms)


def _largest(leaf: dict[str, Any]) -> float:
    statistics = numbers(leaf)
    if statistics is None:
        return 1.0
    largest, least = abs(statistics[0]), abs(statistics[1])
    return max(1.0, largest if math.isfinite(largest) else 1.0, least if math.isfinite(least) else 1.0)


def _centring(leaf: dict[str, Any]) -> float:
    """How much larger the elements are than their deviation from the mean."""
    statistics = numbers(leaf)
    size = rms(leaf)
    if statistics is None or not size:
        return 1.0
    variance = size * size - statistics[2] * statistics[2]
    return min(size / math.sqrt(variance), 1e4) if variance > 0 else 1e4
