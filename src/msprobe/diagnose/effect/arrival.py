"""What gradients become between the backward pass and the step of the optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msprobe.diagnose.differences.records import Comparer, Difference
from msprobe.diagnose.differences.words import ratio_of
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.diagnose.tolerance.judge import Judged

_SAME_FACTOR = 1e-3


@dataclass(frozen=True)
class OptimizerGradients:
    """The gradients that the optimizers of both sides get.

    ``known``: they were recorded, on both sides. ``differ``: those that differ. ``factor``: what all of them differ by,
    if that is one number. ``clean``: they agree, and no call that both sides make after the backward pass gets anything
    that differs. So what was done to gradients on one side alone was undone there, and not hidden by clipping. Where no
    calls were recorded (L0), that is not known.
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
    for pair in judged:
        if pair.event.parts.kind == "optimizer":
            mine, theirs = optimizer.parameters_of(pair.event), optimizer.parameters_of(pair.partner)
            for _, field, difference in optimizer.differences(comparer, mine, theirs):
                if field == "grad" and difference.what in ("value", "not_finite", "missing"):
                    differ.append(difference)
            known |= any(is_tensor(fields.get("grad")) for fields in mine.values())
        elif pair.event.direction == "backward":
            after = True
            calls |= pair.event.parts.kind == "api"
        elif after and pair.event.direction in ("forward", "optimizer"):
            clean &= not (pair.changed_inputs or pair.changed_outputs)
    return OptimizerGradients(known, tuple(differ), common_factor(differ), known and calls and clean and not differ)


def common_factor(differences: Iterable[Difference]) -> float | None:
    """The number that all these tensors differ by; None if there is none."""
    ratios = [
        ratio_of(difference.left, difference.right) if difference.what == "value" else None
        for difference in differences
    ]
    if not ratios or ratios[0] is None:
        return None
    first = ratios[0]
    alike = all(ratio is not None and abs(ratio - first) <= _SAME_FACTOR * abs(first) for ratio in ratios)
    return first if alike else None
