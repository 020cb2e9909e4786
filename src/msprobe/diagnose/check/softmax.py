"""Rows of a softmax that do not sum to one.

The mean of probabilities over rows of n elements is 1/n exactly when every row sums to one, so the recorded mean says
it without the values. What the mean may be off by is the rounding of the type it was computed and written in.
"""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.compare.entry_names import operation
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import floats, has_values, measured, tensors
from msprobe.diagnose.differences.records import numbers, numel
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.check_limits import sum_of_one_limit
from msprobe.messages import said


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Each softmax whose mean is not one over the length of its rows."""
    for event in moment.timeline:
        if event.direction not in ("forward", "recompute") or operation(event.stem) != "softmax":
            continue
        deviation = _off(event)
        if deviation is not None:
            total, allowed = deviation
            yield moment.finding(
                event,
                "computation",
                said("softmax-rows-off", total, allowed),
                evidence={
                    "sum_of_rows": total,
                    "rounding": allowed,
                    "input": measured(tensors(event.inputs())[0]),
                    "output": measured(tensors(event.outputs())[0]),
                },
            )


def _off(event: Event) -> tuple[float, float] | None:
    """The mean sum of the rows and what rounding explains, if they do not go together."""
    given, results = floats(event.inputs()), floats(event.outputs())
    if not given or len(results) != 1 or event.parts.kind != "api" or not has_values(results[0]):
        return None
    result = results[0]
    shape = result.get("shape")
    statistics = numbers(result)
    dim = argument(event, 1, "dim")
    dim = argument(event, 1, "axis") if dim is None else dim
    if not isinstance(shape, list) or not shape or not isinstance(dim, int) or statistics is None:
        return None
    if not -len(shape) <= dim < len(shape) or not numel(result):
        return None
    length = shape[dim]
    total = statistics[2] * length
    allowed = sum_of_one_limit(result, given[0] if len(given) == 1 else None)
    if abs(total - 1.0) <= allowed:
        return None
    rows = numel(result) // length
    empty = round((1.0 - total) * rows)
    # Rows of zeros stand for rows that are masked wholly.
    if 0 < empty <= int(result.get("zero") or 0) // length and abs(total - 1.0 + empty / rows) <= allowed:
        return None
    return total, allowed
