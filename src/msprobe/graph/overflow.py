"""Where values stop being finite, or grow by a factor of a hundred. Rules: ``-oc`` of mindstudio-probe 8.1.1.

``critical``: inputs normal, output NaN or infinite. ``high``: both, or the output's norm is more than a hundred times
that of the inputs. ``medium``: inputs NaN or infinite, output normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msprobe.foreign.plain_numbers import is_number
from msprobe.graph.side import GraphOfSide, Parameter

CRITICAL, HIGH, MEDIUM = "critical", "high", "medium"
_GROWTH = 100
_UNWRITTEN_RESULTS = frozenset("empty empty_like empty_strided new_empty new_empty_strided empty_with_format".split())
# What stands in their buffers before the call means nothing.
_BUFFERS = frozenset(
    """recv irecv all_gather all_gather_into_tensor _all_gather_base reduce_scatter reduce_scatter_tensor
    _reduce_scatter_base all_to_all all_to_all_single batch_isend_irecv gather scatter broadcast""".split()
)
# Infinities are what they are asked to write.
_FILLED = frozenset("masked_fill masked_fill_ fill_ full full_like new_full".split())


def mark_overflow(side: GraphOfSide) -> None:
    """Fill :attr:`Side.overflow`."""
    for node, name in enumerate(side.tree.names):
        inputs, outputs = side.inputs[node], side.outputs[node]
        if not inputs and not outputs:
            continue
        # Parameters do not count there: what a module does with them shows in its result.
        level = overflow_level(name, inputs[: len(inputs) - side.parameter_counts.get(node, 0)], outputs)
        if level is not None:
            side.overflow[node] = level


def overflow_level(name: str, inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> str | None:
    """critical, high, medium, or None."""
    words = name.split(".", 2)
    api = words[1] if len(words) > 1 else ""
    if api in _UNWRITTEN_RESULTS:
        return None
    bad_inputs = api not in _BUFFERS and any(_is_abnormal(leaf) for _, leaf in inputs)
    bad_outputs = any(_is_abnormal(leaf) for _, leaf in outputs)
    if bad_outputs and not bad_inputs:
        return None if api in _FILLED or (api in _BUFFERS and words[0] != "Distributed") else CRITICAL
    if bad_outputs:
        return HIGH
    if bad_inputs:
        return MEDIUM
    norms = [_largest_norm(inputs), _largest_norm(outputs)]
    if norms[1] is not None:
        before = norms[0]
        if (norms[1] > _GROWTH) if not before else (norms[1] / before > _GROWTH):
            return HIGH if before is not None else None
    return None


def _is_abnormal(leaf: Any) -> bool:
    if type(leaf) is not dict:
        return False
    for statistic in ("Max", "Min", "Mean"):
        value = leaf.get(statistic)
        if type(value) is float:
            if not math.isfinite(value):
                return True
        elif isinstance(value, str) and value.lower().lstrip("-+") in ("nan", "inf", "infinity"):
            return True
    return False


def _largest_norm(parameters: Sequence[Parameter]) -> float | None:
    largest: float | None = None
    for _, leaf in parameters:
        norm = leaf.get("Norm") if type(leaf) is dict else None
        if is_number(norm) and math.isfinite(norm):
            largest = norm if largest is None else max(largest, norm)
    return largest
