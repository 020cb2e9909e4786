"""Gradients that were not cleared before the step, or that were cleared within it.

Each backward pass adds to a gradient, and the mean of a sum is the sum of the means. So the means of what the backward
passes of a step made, and of what the optimizer got, tell whether anything else is in it: nothing, up to one factor
that clipping or scaling gives all gradients, or the gradient that the step before left behind; or whether the last
pass alone is in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from msprobe.diagnose.check.moment import Moment
from msprobe.diagnose.check.values import has_values, measured
from msprobe.diagnose.differences import numel, rms
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.noise import eps_of
from msprobe.diagnose.timeline import Event, Timeline

_LEAST = 4
#: How well the sums must fit (of the size of the means), and how badly without the older gradient.
_FITS = 0.02
_FAILS = 0.2


def check(moment: Moment) -> Iterable[Finding]:
    """The optimizer's step, if what it got is this step's gradient and the last one's together."""
    for rank, timeline in moment.timelines.items():
        steps = moment.optimizer_steps(timeline)
        # An optimizer with a closure runs backward passes of its own.
        if len(steps) != 1 or steps[0].record.get("closure"):
            continue
        yield from _within(moment, timeline, steps[0])
        before = moment.before.gradients.get(rank, {}) if moment.before is not None else {}
        names, made, older, arrived, size = _means(moment, timeline, before)
        if len(names) < _LEAST:
            continue
        weight = 1.0 / size
        alone = _fit(made, arrived, weight)
        together = _fit(made + older, arrived, weight)
        if alone > _FAILS and together < _FITS:
            now = moment.at_optimizer(timeline)
            shown = max(range(len(names)), key=lambda place: abs(older[place]) * weight[place])
            name = names[shown]
            yield moment.finding(
                timeline,
                steps[0],
                "parameter_gradient",
                "the gradients hold those of the step before too: they were not cleared (no zero_grad between the "
                f"steps); shown by the means of {len(names)} parameters",
                evidence={
                    "parameter": name,
                    "at_optimizer": measured(now[name]),
                    "mean_of_this_step": made[shown],
                    "mean_of_the_step_before": older[shown],
                    "misfit_without": alone,
                    "misfit_with": together,
                },
            )


def _within(moment: Moment, timeline: Timeline, step: Event) -> Iterable[Finding]:
    """What the optimizer got, if it is the gradient of the last backward pass alone."""
    now = moment.at_optimizer(timeline)
    rows: list[tuple[float, float, float, float]] = []
    count = 0
    for name, passes in moment.gradients(timeline).items():
        arrived = now.get(name)
        leaves = [leaf for leaf in passes if leaf is not None]
        if arrived is None or len(leaves) < 2 or not all(map(has_values, (*leaves, arrived))):
            continue
        means = [float(leaf["Mean"]) for leaf in leaves]
        size = sum(rms(leaf) for leaf in leaves)
        error = size * eps_of(arrived) * (0.25 + 1.0 / math.sqrt(numel(arrived)))
        if error > 0 and min(abs(means[-1]), abs(sum(means[:-1]))) > 100 * error:
            rows.append((sum(means), means[-1], float(arrived["Mean"]), size))
            count = max(count, len(leaves))
    if len(rows) < _LEAST:
        return
    table = np.array(rows, dtype=np.float64)
    weight = 1.0 / table[:, 3]
    alone = _fit(table[:, 0], table[:, 2], weight)
    last = _fit(table[:, 1], table[:, 2], weight)
    if alone > _FAILS and last < _FITS:
        yield moment.finding(
            timeline,
            step,
            "parameter_gradient",
            f"the optimizer gets the gradient of the last of {count} backward passes alone: gradients were cleared "
            "between the passes (micro-batches) of one step",
            evidence={"passes": count, "misfit_of_the_sum": alone, "misfit_of_the_last": last, "parameters": len(rows)},
        )


def _means(moment: Moment, timeline: Timeline, before: dict[str, Any]) -> tuple[list[str], Any, Any, Any, Any]:
    """For each parameter: mean of this step's gradients, of the older one, of what arrived; and their rounding."""
    names: list[str] = []
    rows: list[tuple[float, float, float, float]] = []
    now = moment.at_optimizer(timeline)
    for name, passes in moment.gradients(timeline).items():
        arrived, older = now.get(name), before.get(name)
        leaves = [leaf for leaf in passes if leaf is not None]
        if arrived is None or older is None or not leaves or not all(map(has_values, (*leaves, arrived, older))):
            continue
        size = sum(rms(leaf) for leaf in leaves) + rms(older)
        error = size * eps_of(arrived) * (0.25 + 1.0 / math.sqrt(numel(arrived)))
        mean = sum(float(leaf["Mean"]) for leaf in leaves)
        left = float(older["Mean"])
        # Means that are no more than rounding tell nothing.
        if error > 0 and max(abs(mean), abs(left)) > 100 * error and abs(left) > 100 * error:
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
