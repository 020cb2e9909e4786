"""Calls that never fall from element to element, or never rise: what they make of the largest and the least is known.

The largest and the least element of a result are then those of the argument, after the function. Each side is judged by
its own arguments, whatever these differ by from the other side: in a half type a root that is a twentieth too large is
within what its arguments are apart, and nowhere near what they make.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose import operators
from msprobe.diagnose.measured.own_arguments import OneCall, numbers_of_finite
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.store.rows import StoredRows

#: In units, each result is rounded by half of one: between two sides as much as one, of two kernels that approximate a
#: function half of one more on each side.
_ROUNDED, _APPROXIMATED = 1.0, 2.0
#: Elements below these are not looked at: float16 has few smaller numbers; and some kernels subtract to make them.
_SMALL_IN_FLOAT16, _SUBTRACTED = 2.0**-13, 2.0**-12
#: Devices may take smaller numbers than normal ones for zero.
_SUBNORMAL = 2.0**-126
#: None subtracts to make these.
_DIRECT = operators.ROUNDED_BY_STANDARD | operators.COMPARES_ELEMENTS | operators.SUBTRACTS_NOTHING


def _inverse_root(value: float) -> float:
    return 1.0 / math.sqrt(value)


def _reciprocal(value: float) -> float:
    return 1.0 / value


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0.0 else math.exp(value) / (1.0 + math.exp(value))


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


_RISING: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "exp2": lambda value: 2.0**value,
    "expm1": math.expm1,
    "log": math.log,
    "log10": math.log10,
    "log1p": math.log1p,
    "log2": math.log2,
    "relu": lambda value: max(value, 0.0),
    "relu6": lambda value: min(max(value, 0.0), 6.0),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "erf": math.erf,
    "atan": math.atan,
    "asinh": math.asinh,
    "sinh": math.sinh,
}
#: Where all elements are above zero.
_FALLING: dict[str, Callable[[float], float]] = {"reciprocal": _reciprocal, "rsqrt": _inverse_root}
#: Of elements of both signs the largest result alone is known.
_OF_SIZE: dict[str, Callable[[float], float]] = {"abs": abs, "square": lambda value: value * value}


def apart_at_ends(call: OneCall, other: OneCall, candidate: StoredRows, reference: StoredRows) -> float | None:
    """How much further the largest or the least result of a call is from what its argument makes than that of the other
    side, as a share of it and beyond what rounding does in half types; None where rounding explains it, or it is not
    known.
    """
    if call.name != other.name:
        return None
    mine, theirs = _errors(call, candidate), _errors(other, reference)
    if mine is None or theirs is None:
        return None
    unit = max(epsilon_of(leaf["dtype"]) for leaf in _tensors(call) + _tensors(other))
    is_exact = call.name in operators.ROUNDED_BY_STANDARD | operators.COMPARES_ELEMENTS
    allowed = (_ROUNDED if is_exact else _APPROXIMATED) * unit
    apart = max(abs(ours - its) for ours, its in zip(mine, theirs, strict=True)) - allowed
    return apart if apart > 0.0 else None


def _tensors(call: OneCall) -> list[dict[str, Any]]:
    return [leaf for _, leaf in (*call.inputs, *call.outputs) if is_tensor(leaf)]


def _errors(call: OneCall, rows: StoredRows) -> tuple[float, float] | None:
    """How far the largest and the least result are from what the argument makes, each as a share of it."""
    if len(call.outputs) != 1 or any(leaf not in (None, False) for _, leaf in call.inputs if not is_tensor(leaf)):
        return None
    leaves = _tensors(call)
    if len(leaves) != 2 or numel(leaves[0]) != numel(leaves[1]):
        return None
    ends = [_ends(leaf, rows) for leaf in leaves]
    if ends[0] is None or ends[1] is None:
        return None
    made = _made_of(call.name, *ends[0])
    if made is None:
        return None
    smallest = 0.0 if call.name in _DIRECT else _SUBTRACTED
    if any("float16" in leaf["dtype"].lower() and "bfloat16" not in leaf["dtype"].lower() for leaf in leaves):
        smallest = max(smallest, _SMALL_IN_FLOAT16)
    largest, least = (_share(result, expected, smallest) for result, expected in zip(ends[1], made, strict=True))
    return largest, least


def _share(result: float, expected: float | None, smallest: float) -> float:
    size = 0.0 if expected is None else max(abs(result), abs(expected))
    return 0.0 if expected is None or size <= max(smallest, _SUBNORMAL) else (result - expected) / size


def _ends(leaf: dict[str, Any], rows: StoredRows) -> tuple[float, float] | None:
    """The largest and the least element of a tensor."""
    numbers = numbers_of_finite(leaf, rows)
    return None if numbers is None else (numbers[4], numbers[5])


def _made_of(name: str, largest: float, least: float) -> tuple[float | None, float | None] | None:
    """What a function makes of these; None for a function of which that is not known."""
    try:
        if name in _RISING:
            return _RISING[name](largest), _RISING[name](least)
        if name in _FALLING and least > 0.0:
            return _FALLING[name](least), _FALLING[name](largest)
        if name in _OF_SIZE:
            return _OF_SIZE[name](max(largest, -least)), None
    except (ArithmeticError, ValueError):
        return None  # beyond what the function takes
    return None
