"""Does a difference reach what counts: loss, gradients, weights?"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msprobe.diagnose import noise, optimizer
from msprobe.diagnose.differences import Comparer, Difference, is_floating, rms
from msprobe.diagnose.judge import Judged
from msprobe.diagnose.timeline import Event, is_tensor

#: Gradients of a healthy run are apart by some tens of rounding units (bugs.md: at most 7e-7 in float32 between one
#: and two threads); this many are taken for rounding.
_UNITS = 64.0
_MOST = 0.3
#: Gradients this many times smaller than the largest count for that much less: a gradient that is zero in exact
#: arithmetic (the bias of keys in attention) is nothing but rounding.
_SMALL = 1e-3


def tolerance(judged: Iterable[Judged]) -> float:
    """What gradients and results may be apart by rounding: by the coarsest type that most calls compute in."""
    units: dict[float, int] = {}
    for one in judged:
        if one.event.direction == "forward":
            found = noise.unit(one.event.outputs(), one.partner.outputs())
            if found:
                units[found] = units.get(found, 0) + 1
    total = sum(units.values())
    common = [found for found, count in units.items() if count >= 0.1 * total]
    return min(_UNITS * max(common, default=2.0**-23), _MOST)


def effect(judged: dict[Event, Judged], comparer: Comparer) -> float:
    """The largest relative difference among gradients, weights and results of the model; infinite where one is
    missing or not finite on one side.
    """
    gradients: list[Difference] = []
    sizes: list[float] = []
    for one in judged.values():
        if one.event.direction == "gradient":
            sizes += [rms(leaf) for _, leaf in one.partner.outputs() if is_tensor(leaf)]
            gradients += one.changed_outputs
        elif one.event.parts.kind == "optimizer":
            found, own_sizes = _of_optimizer(one, comparer)
            gradients += found
            sizes += own_sizes
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    most = max((_weighted(one, largest) for one in gradients), default=0.0)
    return max(most, _of_weights(judged.values()), _of_results(judged, bool(sizes)))


def _weighted(difference: Difference, largest: float) -> float:
    if difference.what != "value" or not (is_tensor(difference.left) and is_tensor(difference.right)):
        return math.inf
    size = max(rms(difference.left), rms(difference.right))
    if not math.isfinite(difference.delta) or not largest:
        return difference.delta
    return difference.delta * min(1.0, size / (_SMALL * largest))


def _of_optimizer(judged: Judged, comparer: Comparer) -> tuple[list[Difference], list[float]]:
    one, other = optimizer.parameters_of(judged.event), optimizer.parameters_of(judged.partner)
    sizes = [rms(fields["grad"]) for fields in other.values() if is_tensor(fields.get("grad"))]
    found: list[Difference] = []
    unequal: set[str] = set()
    for name, field, difference in optimizer.differences(comparer, one, other):
        if difference.what in ("value", "not_finite", "missing"):
            unequal.add(name)
            if field == "grad":
                found.append(difference)
    if set(one) != set(other):
        found.append(Difference("", "missing", None, None, math.inf))
    results = optimizer.results_of(judged.event), optimizer.results_of(judged.partner)
    for name, field, difference in optimizer.differences(comparer, *results):
        # From the same gradient and state: the step itself makes the difference.
        own = field == "weight" and name not in unequal and difference.what in ("value", "not_finite")
        if own and difference.delta > 8 * noise.eps_of(difference.left):
            found.append(Difference(name, "not_finite", difference.left, difference.right, math.inf))
    return found, sizes


def _of_weights(judged: Iterable[Judged]) -> float:
    """Parameters that differ in the forward pass."""
    most = 0.0
    for one in judged:
        for difference in one.parameters:
            if difference.what in ("value", "not_finite") and is_floating(difference.left):
                most = max(most, math.inf if difference.delta > 8 * noise.eps_of(difference.left) else difference.delta)
    return most


def _of_results(judged: dict[Event, Judged], with_gradients: bool) -> float:
    """The last results of the forward pass: the loss, or what the model returns where no gradients were recorded."""
    last: Judged | None = None
    loss: Judged | None = None
    for one in judged.values():
        if one.event.direction != "forward":
            continue
        if one.event.parent is None:
            last = one
        outputs = one.event.outputs()
        if len(outputs) == 1 and is_floating(outputs[0][1]):
            result = outputs[0][1]
            if result.get("shape") == [] and result.get("requires_grad") is True:
                loss = one
    chosen = loss or (None if with_gradients else last)
    if chosen is None:
        return 0.0
    return max((d.delta if d.what == "value" else math.inf for d in chosen.changed_outputs), default=0.0)
