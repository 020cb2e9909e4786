"""What gradients become between the backward pass and the step of the optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.diagnose.differences.records import Comparer, Difference
from msprobe.diagnose.differences.words import ratio_of
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.tensor_info import rms
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance.judge import Judged

#: So near are two factors of gradients that are one, in the norms of float16 (2**-10).
SAME_FACTOR = 1e-3
#: The tensors that describe gradients, by the names of their parameters.
_Gradients = dict[str, Any]


@dataclass(frozen=True)
class OptimizerGradients:
    """The gradients that the optimizers of both sides get.

    ``known``: they were recorded, on both sides. ``differ``: those that differ. ``factor``: what all of them differ by,
    if that is one number. ``clean``: they agree, and no call that both sides make after the backward pass gets anything
    that differs. So what was done to gradients on one side alone was undone there, and not hidden by clipping. Where no
    calls were recorded (L0), what clipping makes of gradients is a number like no other: none if one side's optimizer
    gets what its backward pass gave, or both get it times a power of two, as scalers take it.
    """

    known: bool = False
    differ: tuple[Difference, ...] = ()
    factor: float | None = None
    clean: bool = False


def arrival_of(judged: Iterable[Judged], comparer: Comparer) -> OptimizerGradients:
    """What the optimizers get. ``judged``: all pairs, in the order of execution."""
    differ: list[Difference] = []
    known = after = calls = False
    clean = True
    backward = _Gradients(), _Gradients()
    at_optimizer = _Gradients(), _Gradients()
    for pair in judged:
        if pair.event.direction == "gradient":
            for side, event in zip(backward, (pair.event, pair.partner), strict=True):
                side.update((parameter_name(event, slot), leaf) for slot, leaf in event.outputs())
        elif pair.event.parts.kind == "optimizer":
            mine, theirs = optimizer.parameters_of(pair.event), optimizer.parameters_of(pair.partner)
            for _, field, difference in optimizer.differences(comparer, mine, theirs):
                if field == "grad" and difference.what in ("value", "not_finite", "missing"):
                    differ.append(difference)
            known |= any(is_tensor(fields.get("grad")) for fields in mine.values())
            for side, parameters in zip(at_optimizer, (mine, theirs), strict=True):
                side.update((name, fields.get("grad")) for name, fields in parameters.items())
        elif pair.event.direction == "backward":
            after = True
            calls |= pair.event.parts.kind == "api"
        elif after and pair.event.direction in ("forward", "optimizer"):
            clean &= not (pair.changed_inputs or pair.changed_outputs)
    clean &= calls or _is_unscaled(*map(_ratios, backward, at_optimizer))
    return OptimizerGradients(known, tuple(differ), common_factor(differ), known and clean and not differ)


def _ratios(backward: _Gradients, at_optimizer: _Gradients) -> list[float]:
    """By what gradients are multiplied between the backward pass and the optimizer, one by one."""
    return [
        rms(gradient) / size
        for name, gradient in at_optimizer.items()
        if is_tensor(gradient) and is_tensor(backward.get(name)) and (size := rms(backward[name]))
    ]


def _is_unscaled(ours: Sequence[float], other: Sequence[float]) -> bool:
    """True if one side's optimizer gets what its backward pass gave, or both get it times a power of two."""
    powers = [_power_of_two(side) for side in (ours, other)]
    return 0 in powers or None not in powers


def _power_of_two(ratios: Sequence[float]) -> int | None:
    """Which power of two all these numbers are; None if they are different ones, or none."""
    if not ratios or not all(ratio > 0.0 and math.isfinite(ratio) for ratio in ratios):
        return None
    power = round(math.log2(ratios[0]))
    return power if all(abs(ratio / 2.0**power - 1.0) <= SAME_FACTOR for ratio in ratios) else None


def common_factor(differences: Iterable[Difference]) -> float | None:
    """The number that all these tensors differ by; None if there is none."""
    ratios = [
        ratio_of(difference.left, difference.right) if difference.what == "value" else None
        for difference in differences
    ]
    if not ratios or ratios[0] is None:
        return None
    first = ratios[0]
    alike = all(ratio is not None and abs(ratio - first) <= SAME_FACTOR * abs(first) for ratio in ratios)
    return first if alike else None
