"""Why a call makes a NaN or an infinity, as far as its record says."""

from __future__ import annotations

from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose.check.values import floats, tensors
from msprobe.diagnose.differences.records import numbers, numel
from msprobe.diagnose.differences.words import dtype_word
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

#: The largest number of each type.
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38}


def reason(timeline: Timeline, event: Event, value: str) -> str:
    """A half-sentence on the cause."""
    if event.direction == "backward":
        return _backward(timeline, event, value)
    if event.parts.kind == "optimizer":
        return "the optimizer makes it of finite weights, gradients and states"
    if event.parts.kind == "parameters":
        return "the gradient of a parameter holds it, and no recorded call before it"
    return _forward(event, value) or "its inputs are finite, its result is not"


def _forward(event: Event, value: str) -> str:
    word = operation(event.stem)
    given, results = floats(event.inputs()), floats(event.outputs())
    first = numbers(given[0]) if given else None
    if word in ("softmax", "log_softmax", "scaled_dot_product_attention") and first is not None:
        rows = _rows(results[0]) if results else 0
        if first[1] == float("-inf"):
            return said("rows-fully-masked", rows or "some")
    if word in ("log", "log2", "log10", "log1p") and first is not None:
        edge = -1.0 if word == "log1p" else 0.0
        if first[1] < edge:
            return said("logarithm-of-negative", first[1])
        if first[1] == edge:
            return said("logarithm-of-zero", _zeros_in(given[0]))
    if word in ("sqrt", "rsqrt") and first is not None:
        if first[1] < 0:
            return said("root-of-negative", first[1])
        if first[1] == 0 and word == "rsqrt":
            return "reciprocal root of zero"
    if word in ("div", "reciprocal") and given:
        below = numbers(given[-1])
        if below is not None and (given[-1].get("zero") or below[0] == 0.0 or below[1] == 0.0):
            return "division by zero"
    if word == "exp" and first is not None and first[0] > 10:
        return said("exponential-too-large", first[0])
    if any(number and "inf" in str(number[:2]) for number in (numbers(leaf) for leaf in given)):
        return "it is made of infinities in the input (inf - inf, 0 * inf, inf / inf)"
    return _too_large(given, results) if value != "nan" else ""


def _too_large(given: list[dict[str, Any]], results: list[dict[str, Any]]) -> str:
    if not results:
        return ""
    kind = dtype_word(results[0])
    sizes = [abs(v) for leaf in given if (statistics := numbers(leaf)) for v in statistics[:2]]
    if kind not in LARGEST or not sizes:
        return ""
    return said("beyond-largest", kind, LARGEST[kind], max(sizes))


def _rows(leaf: dict[str, Any]) -> int:
    shape = leaf.get("shape")
    count = leaf.get("nan")
    if isinstance(shape, list) and shape and isinstance(count, int) and shape[-1]:
        return count // int(shape[-1])
    return 0


def _backward(timeline: Timeline, event: Event, value: str) -> str:
    forward = timeline.forward_of(event)
    if forward is None or event.is_module:
        return "its incoming gradients are finite, its outgoing ones are not"
    word = operation(forward.stem)
    given = tensors(forward.inputs())
    first = numbers(given[0]) if given else None
    poles = {"sqrt": "root", "rsqrt": "root", "log": "logarithm", "pow": "power", "norm": "norm", "div": "quotient"}
    if word in poles and first is not None and (first[1] == 0.0 or given[0].get("zero") or word == "div"):
        zeros = _zeros_in(given[-1] if word == "div" else given[0])
        return (
            said("derivative-infinite", poles[word], zeros)
            + ("; times a gradient of zero (of a later where(), for example), that is NaN" if value == "nan" else "")
            + ". Keep zero out before the call"
        )
    return "its incoming gradients are finite, its outgoing ones are not"


def _zeros_in(leaf: dict[str, Any]) -> int | str:
    """How many elements are zero: counted, or all where none is larger or smaller; else "some"."""
    extent = numbers(leaf)
    everywhere = extent is not None and extent[0] == extent[1] == 0.0
    counted: int | str = leaf.get("zero", numel(leaf) if everywhere else "some")
    return counted
