"""What became no step: a batch whose step a scaler has skipped, a step that ran when the training ended, a number that
the program has noted just now. Rules of single values look at it; nothing of it is written but their alerts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msprobe.messages import said
from msprobe.monitor.alerts.cells import QuantityBlock, Step
from msprobe.monitor.alerts.rules import GradNormSpike, LossSpike, NotANumber, Rule, RuleAlert, SkippedSteps
from msprobe.monitor.csv_text import SCALARS
from msprobe.monitor.measurements import StepMetrics

Why = Literal["skipped", "unfinished", "noted"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """``make``: what was measured, None if nothing was. ``in_a_row``: so many steps were skipped one after the other.
    ``has_stepped``: whether the optimizer has ever stepped before.
    """

    step: int
    why: Why
    make: Callable[[], StepMetrics | None]
    in_a_row: int = 0
    has_stepped: bool = True


def unfinished(why: Why) -> str:
    """What a step became, behind its number in a sentence."""
    return "" if why == "noted" else said("step-not-taken") if why == "skipped" else said("step-not-finished")


def judged_attempt(rules: Sequence[Rule], step: Step, attempt: Attempt) -> Iterator[tuple[str, RuleAlert]]:
    """What rules object to, each with the rule's name.

    Numbers of the step as a whole have to be finite, and what a forward pass has made. Gradients of a step that a
    scaler skips need not be, unless that goes on: the scale is too large for them once in a while.
    """
    seen: set[tuple[str, int, str]] = set()
    skips = next((rule for rule in rules if isinstance(rule, SkippedSteps)), SkippedSteps())
    too_often = skips.against(attempt.in_a_row, attempt.has_stepped) if attempt.why == "skipped" and rules else None
    all_count = attempt.why == "unfinished" or too_often is not None
    looked_at = {name: block for name, block in step.blocks.items() if all_count or name == "actv"}
    for rule in rules:
        for objection in _objections(rule, Step(step.number, looked_at), step.blocks.get(SCALARS)):
            if (objection.quantity, objection.at, objection.op) not in seen:
                seen.add((objection.quantity, objection.at, objection.op))
                yield rule.name, objection
    if too_often is not None:
        yield skips.name, too_often


def _objections(rule: Rule, step: Step, scalars: QuantityBlock | None) -> Iterator[RuleAlert]:
    if isinstance(rule, NotANumber):
        yield from rule.judge(
            Step(step.number, {name: block for name, block in step.blocks.items() if name != SCALARS})
        )
    for at, row in enumerate(scalars.rows if scalars is not None else ()):
        assert scalars is not None
        value = float(scalars.values[at, 0])
        is_of_rule = (
            (isinstance(rule, NotANumber) and not rule.quantities)
            or (isinstance(rule, LossSpike) and row.name == "loss")
            or (isinstance(rule, GradNormSpike) and row.name == "grad_norm")
        )
        if is_of_rule and not math.isfinite(value):
            yield RuleAlert(SCALARS, at, "value", value, said("seen-not-finite"), said("limit-finite"))
