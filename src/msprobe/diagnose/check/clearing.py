"""Gradients that were not cleared before the step, or that were cleared within it.

Each backward pass adds to a gradient, and the mean of a sum is the sum of the means. So the means of what the backward
passes of a step made, and of what the optimizer got, say whether anything else is in it: nothing, up to one factor
that clipping or scaling gives all gradients, or the gradient that the step before left behind; or whether the last
pass alone is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import has_values, measured
from msprobe.diagnose.differences.records import rms
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.check_limits import counts_in_a_sum, is_explained, is_explained_closely
from msprobe.messages import said

_LEAST = 4


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The optimizer's step, if what it got is this step's gradient and the last one's together."""
    steps = moment.optimizer_steps
    # An optimizer with a closure runs backward passes of its own.
    if any(step.record.get("closure") for step in steps):
        return
    # A step may look at other weights first, and take the gradient there alone (sharpness-aware minimisation).
    if len(steps) == 1 and not moment.weights_move:
        yield from _within(moment, steps[0])
    taken = Counter(plain_path(name) for step in steps for name in parameters_of(step))
    for step in steps:
        # Of several optimizers, each has its own passes before it; which ones is sure where there was one only.
        names = {plain_path(name) for name in parameters_of(step)}
        if len(steps) > 1:
            names = {name for name in names if taken[name] == 1 and _has_one_pass(moment, name)}
        yield from _kept(moment, step, names)


def _has_one_pass(moment: CheckedStep, name: str) -> bool:
    return sum(leaf is not None for leaf in moment.gradients.get(name, ())) == 1


def _kept(moment: CheckedStep, step: Event, wanted: set[str]) -> Iterable[Finding]:
    """What an optimizer got, if the gradient of the step before is in it."""
    before = moment.before.gradients if moment.before is not None else {}
    before = {name: leaf for name, leaf in before.items() if name in wanted}
    names, made, older, arrived, size = _means(moment, before)
    if len(names) < _LEAST:
        return
    weight = 1.0 / size
    alone = _fit(made, arrived, weight)
    together = _fit(made + older, arrived, weight)
    if is_explained(alone, together) or is_explained_closely(alone, together):
        now = moment.at_optimizer
        shown = max(range(len(names)), key=lambda place: abs(older[place]) * weight[place])
        name = names[shown]
        yield moment.finding(
            step,
            "parameter_gradient",
            said("gradients-not-cleared", len(names)),
            evidence={
                "parameter": name,
                "at_optimizer": measured(now[name]),
                "mean_of_this_step": made[shown],
                "mean_of_the_step_before": older[shown],
                "misfit_without": alone,
                "misfit_with": together,
            },
        )


def _within(moment: CheckedStep, step: Event) -> Iterable[Finding]:
    """What the optimizer got, if it is the gradient of the last backward pass alone."""
    now = moment.at_optimizer
    rows: list[tuple[float, float, float, float]] = []
    count = 0
    for name, passes in moment.gradients.items():
        arrived = now.get(name)
        leaves = [leaf for leaf in passes if leaf is not None]
        if arrived is None or len(leaves) < 2 or not all(map(has_values, (*leaves, arrived))):
            continue
        means = [float(leaf["Mean"]) for leaf in leaves]
        size = sum(rms(leaf) for leaf in leaves)
        if all(counts_in_a_sum(mean, size, arrived) for mean in (means[-1], sum(means[:-1]))):
            rows.append((sum(means), means[-1], float(arrived["Mean"]), size))
            count = max(count, len(leaves))
    if len(rows) < _LEAST:
        return
    table = np.array(rows, dtype=np.float64)
    weight = 1.0 / table[:, 3]
    alone = _fit(table[:, 0], table[:, 2], weight)
    last = _fit(table[:, 1], table[:, 2], weight)
    if is_explained(alone, last):
        yield moment.finding(
            step,
            "parameter_gradient",
            said("gradients-cleared-between-passes", count),
            evidence={"passes": count, "misfit_of_the_sum": alone, "misfit_of_the_last": last, "parameters": len(rows)},
        )


def _means(moment: CheckedStep, before: dict[str, Any]) -> tuple[list[str], Any, Any, Any, Any]:
    """For each parameter: mean of this step's gradients, of the older one, of what arrived; and their rounding."""
    names: list[str] = []
    rows: list[tuple[float, float, float, float]] = []
    now = moment.at_optimizer
    for name, passes in moment.gradients.items():
        arrived, older = now.get(name), before.get(name)
        leaves = [leaf for leaf in passes if leaf is not None]
        if arrived is None or older is None or not leaves or not all(map(has_values, (*leaves, arrived, older))):
            continue
        size = sum(rms(leaf) for leaf in leaves) + rms(older)
        mean = sum(float(leaf["Mean"]) for leaf in leaves)
        left = float(older["Mean"])
        # Means that are no more than rounding say nothing.
        if counts_in_a_sum(left, size, arrived):
            names.append(name)
            rows.append((mean, left, float(arrived["Mean"]), size))
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return names, table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _fit(made: Any, arrived: Any, weight: Any) -> float:
    """How far ``arrived`` is from one factor times ``made``, relative to its size."""
    a, b = made * weight, arrived * weight
    norm = float(a @ a)
    size = float(np.linalg.norm(b))
    if not norm or not size:
        return 0.0
    factor = float(a @ b) / norm
    return float(np.linalg.norm(b - factor * a)) / size
