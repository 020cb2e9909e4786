"""The rules: each looks at a step as a whole and says in which numbers it sees something wrong.

A rule is a frozen set of parameters with what it remembers. Adding one: a class here, and a row in :data:`RULES`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from msprobe.messages import said
from msprobe.monitor.alerts.cells import KeptRows, Mask, QuantityBlock, Step, total_gradient_norm
from msprobe.monitor.csv_text import SCALARS

# Of a normal distribution: the standard deviation is this many times the median absolute deviation.
_DEVIATION = 1.4826
# What numbers of healthy trainings differ by from step to step, as a share of them.
_LEAST_DEVIATION = 0.01
# The level of a number that moves is the median of so many.
_LEVEL_STEPS = 8


@dataclass(frozen=True, slots=True)
class RuleAlert:
    """A number that a rule objects to. ``at``: its row in the block; ``op``: the name of its statistic. ``limit``: what
    it may be, in words.
    """

    quantity: str
    at: int
    op: str
    value: float
    reason: str
    limit: str = ""


class Rule(Protocol):
    """Looks at steps in ascending order, each once."""

    name: ClassVar[str]

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        """What is wrong in this step."""


@dataclass(slots=True)
class Turbulence:
    """``|x| > mean * (1 + threshold)`` of the running mean of ``|x|``, from the value after ``warm_up`` values.

    Not for what is below ``floor``; not for a mean (``op`` mean) that is small beside the elements' size, the root mean
    square: it wanders around zero, and its change says nothing. ``scale_share``: how large the change must be.
    With ``method`` robust: the logarithm of ``|x|`` is more than ``z`` standard deviations above the median of those of
    the last ``window`` values; the deviation is estimated by the median absolute one.
    """

    name: ClassVar[str] = "AnomalyTurbulence"

    threshold: float
    ops: tuple[str, ...] = ("norm", "mean")
    quantities: tuple[str, ...] = ()
    warm_up: int = 2
    floor: float = 1e-20
    scale_share: float = 0.05
    method: str = "mean"
    z: float = 8.0
    window: int = 64
    _kept: dict[str, KeptRows] = field(default_factory=dict)

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        for block in step.blocks.values():
            if self.quantities and block.quantity not in self.quantities:
                continue
            for op in self.ops:
                column = block.column(op)
                if column is not None:
                    yield from self._judge(block, op, column)

    def _judge(self, block: QuantityBlock, op: str, column: int) -> Iterator[RuleAlert]:
        size = np.abs(block.values[:, column])
        mean, seen = block.means[:, column], block.seen[:, column]
        limit = self._robust_limit(block, op, size) if self.method == "robust" else mean * (1 + self.threshold)
        # A comparison with NaN is false: NaN is not for this rule, infinity is.
        fires = (size > limit) & (seen >= self.warm_up) & (size > self.floor)
        if op == "mean":
            fires &= ~self._is_small_beside_elements(block, size - mean)
        for at in np.flatnonzero(fires):
            allowed = float(limit[at])
            yield RuleAlert(
                block.quantity, int(at), op, float(block.values[at, column]), "", said("limit-at-most", allowed)
            )

    def _is_small_beside_elements(self, block: QuantityBlock, change: Any) -> Mask:
        norm = block.column("norm")
        if norm is None:
            return np.zeros(len(block.rows), np.bool_)
        root_mean_square = block.means[:, norm] / np.sqrt(np.maximum(block.elements, 1))
        small: Mask = np.abs(change) < self.scale_share * root_mean_square
        return small

    def _robust_limit(self, block: QuantityBlock, op: str, size: Any) -> Any:
        kept = self._kept.setdefault(f"{block.quantity}/{op}", KeptRows(self.window + 1))
        known = kept.get(block.rows, (op,))[:, 0]
        count = known[:, -1].astype(np.int64)
        window = np.where(np.arange(self.window) < count[:, None], known[:, :-1], np.nan)
        enough = count > 0
        limit = np.full(len(size), math.inf)
        if enough.any():
            median = np.nanmedian(window[enough], axis=1)
            deviation = np.nanmedian(np.abs(window[enough] - median[:, None]), axis=1) * _DEVIATION
            # Values that were the same to the last digit would make anything an outlier.
            limit[enough] = np.exp(median + self.z * np.maximum(deviation, _LEAST_DEVIATION))
        finite = np.isfinite(size) & (size > 0)
        known[finite, count[finite] % self.window] = np.log(size[finite])
        known[finite, -1] += 1
        kept.put(block.rows, (op,), known[:, None])
        return limit


@dataclass(slots=True)
class NotANumber:
    """NaN or infinity in any statistic, and with ``threshold`` what is larger than it. A statistic that has no answer
    for a tensor is not a NaN.
    """

    name: ClassVar[str] = "AnomalyNan"

    threshold: float | None = None
    ops: tuple[str, ...] = ()
    quantities: tuple[str, ...] = ()

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        for block in step.blocks.values():
            if self.quantities and block.quantity not in self.quantities:
                continue
            fires = ~np.isfinite(block.values) & ~block.missing
            if self.threshold is not None:
                fires |= np.abs(block.values) > self.threshold
            if "nans" in block.ops:
                fires[:, block.ops.index("nans")] |= block.values[:, block.ops.index("nans")] > 0
            for at, column in zip(*np.nonzero(fires), strict=True):
                op = block.ops[column]
                if not self.ops or op in self.ops:
                    value = float(block.values[at, column])
                    limit = said("limit-finite") if self.threshold is None else said("limit-at-most", self.threshold)
                    yield RuleAlert(block.quantity, int(at), op, value, "", "0" if op == "nans" else limit)


@dataclass(slots=True)
class _Spike:
    """One number a step that may drift.

    What is wrong: NaN, infinity, or that it is further above its level, the median of the last eight, than ``z``
    standard deviations of how far the last ``window`` were (estimated by the median absolute one).
    """

    z: float = 6.0
    window: int = 64
    warm_up: int = 10
    _last: deque[float] = field(default_factory=deque)
    _distances: deque[float] = field(default_factory=deque)

    def against(self, value: float) -> tuple[str, str] | None:
        """What is wrong with the number, and what it may be; None if nothing is. It counts for those to come."""
        if not math.isfinite(value):
            return said("seen-not-finite"), said("limit-finite")
        reason = None
        if self._last:
            level = float(np.median(self._last))
            if len(self._distances) >= self.warm_up:
                deviation = float(np.median(np.abs(self._distances))) * _DEVIATION
                limit = level + self.z * max(deviation, _LEAST_DEVIATION * abs(level))
                if value > limit:
                    reason = (
                        said("seen-above-median", len(self._last), level, limit),
                        said("limit-at-most", limit),
                    )
            self._distances.append(value - level)
        self._last.append(value)
        while len(self._last) > _LEVEL_STEPS:
            self._last.popleft()
        while len(self._distances) > self.window:
            self._distances.popleft()
        return reason


@dataclass(slots=True)
class LossSpike(_Spike):
    """The loss (the scalar ``loss``) jumps up, or is not finite."""

    name: ClassVar[str] = "LossSpike"

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        block = step.blocks.get(SCALARS)
        for at, row in enumerate(block.rows if block is not None else ()):
            if block is not None and row.name == "loss":
                value = float(block.values[at, 0])
                wrong = self.against(value)
                if wrong is not None:
                    yield RuleAlert(SCALARS, at, "value", value, *wrong)


@dataclass(slots=True)
class GradNormSpike(_Spike):
    """The norm of all gradients together jumps up, or is not finite."""

    name: ClassVar[str] = "GradNormSpike"

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        value = total_gradient_norm(step)
        wrong = None if value is None else self.against(value)
        if value is not None and wrong is not None:
            yield RuleAlert("grad_norm", 0, "norm", value, *wrong)


@dataclass(slots=True)
class DeadGradient:
    """A gradient that is zero in all elements for ``steps`` steps in a row."""

    name: ClassVar[str] = "DeadGradient"

    steps: int = 3
    _runs: dict[str, KeptRows] = field(default_factory=dict)

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        """It fires when the number of steps is reached, and not again before the gradient has lived."""
        block = step.blocks.get("grad_reduced") or step.blocks.get("grad_unreduced")
        if block is None:
            return
        dead = _all_zero(block)
        if dead is None:
            return
        kept = self._runs.setdefault(block.quantity, KeptRows(1))
        length = np.where(dead, kept.get(block.rows, ("dead",))[:, 0, 0] + 1, 0.0)
        kept.put(block.rows, ("dead",), length[:, None, None])
        for at in np.flatnonzero(length == self.steps):
            reason, limit = said("seen-all-zero", self.steps), said("limit-zero-steps", self.steps)
            yield RuleAlert(block.quantity, int(at), "norm", 0.0, reason, limit)


@dataclass(slots=True)
class ExplodingUpdateRatio:
    """A step changes a weight by more than ``threshold`` of its norm.

    By the quantity ``update`` where it was measured; else by the norms of the weight before and after, whose difference
    is at most the norm of the change.
    """

    name: ClassVar[str] = "ExplodingUpdateRatio"

    threshold: float = 0.1

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        block = step.blocks.get("update")
        if block is not None and (column := block.column("ratio")) is not None:
            for large in np.flatnonzero(block.values[:, column] > self.threshold):
                value = float(block.values[large, column])
                reason, limit = said("seen-limit", self.threshold), said("limit-at-most", self.threshold)
                yield RuleAlert("update", int(large), "ratio", value, reason, limit)
            return
        for at, before, after in _before_and_after(step, "norm"):
            ratio = abs(after - before) / before if before > 0 else 0.0
            if ratio > self.threshold:
                reason, limit = said("seen-norm-changes", before, after), said("limit-at-most", self.threshold)
                yield RuleAlert("param_updated", at, "norm", ratio, reason, limit)


@dataclass(slots=True)
class FrozenWeights:
    """A weight whose statistics have all stayed the same for ``steps`` steps, although its gradient is not zero (where
    that was measured).
    """

    name: ClassVar[str] = "FrozenWeights"

    steps: int = 10
    _last: KeptRows = field(default_factory=lambda: KeptRows(1))
    _runs: KeptRows = field(default_factory=lambda: KeptRows(1))

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        """It fires when the number of steps is reached, and not again before the weight has moved."""
        # Before the step: so one whose change is lost behind the step does not move either.
        block = step.blocks.get("param_origin") or step.blocks.get("param_updated")
        if block is None:
            return
        before = self._last.get(block.rows, block.ops)[..., 0]
        self._last.put(block.rows, block.ops, block.values[..., None])
        same = ((before == block.values) | (np.isnan(before) & np.isnan(block.values))).all(axis=1)
        same &= (block.seen > 0).any(axis=1)
        gradients = step.blocks.get("grad_reduced")
        zero = None if gradients is None else _all_zero(gradients)
        if gradients is not None and zero is not None:
            without = {(row.stage, row.name) for row, dead in zip(gradients.rows, zero, strict=True) if dead}
            same &= np.array([(row.stage, row.name) not in without for row in block.rows])
        length = np.where(same, self._runs.get(block.rows, ("same",))[:, 0, 0] + 1, 0.0)
        self._runs.put(block.rows, ("same",), length[:, None, None])
        for at in np.flatnonzero(length == self.steps):
            reason, limit = said("seen-unchanged", self.steps), said("limit-unchanged-steps", self.steps)
            yield RuleAlert(block.quantity, int(at), block.ops[0], float(block.values[at, 0]), reason, limit)


@dataclass(slots=True)
class UnevenGradients:
    """Something between backward and step treats one tensor otherwise: the factor between its unreduced and its reduced
    gradient is off the median of all tensors by more than ``threshold``, and by the same in ``steps`` steps in a row.
    """

    name: ClassVar[str] = "UnevenGradients"

    threshold: float = 0.02
    steps: int = 5
    _kept: KeptRows = field(default_factory=lambda: KeptRows(2))

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        """It fires when the number of steps is reached."""
        reduced, unreduced = step.blocks.get("grad_reduced"), step.blocks.get("grad_unreduced")
        if reduced is None or unreduced is None or "norm" not in reduced.ops or "norm" not in unreduced.ops:
            return
        norms = {(row.stage, row.name): at for at, row in enumerate(unreduced.rows)}
        places = [norms.get((row.stage, row.name), -1) for row in reduced.rows]
        with np.errstate(all="ignore"):
            before = unreduced.values[places, unreduced.ops.index("norm")]
            off = np.log(reduced.values[:, reduced.ops.index("norm")] / before)
        off[(np.array(places) < 0) | ~np.isfinite(off)] = math.nan
        if np.isfinite(off).sum() < 3:
            return
        off -= np.nanmedian(off)
        known = self._kept.get(reduced.rows, ("off",))[:, 0]
        same = np.abs(off - known[:, 0]) <= 0.1 * np.abs(off)
        count = np.where(np.abs(off) > self.threshold, np.where(same, known[:, 1] + 1, 1), 0.0)
        self._kept.put(reduced.rows, ("off",), np.stack([np.nan_to_num(off), count], axis=-1)[:, None])
        for at in np.flatnonzero(count == self.steps):
            reason = said("seen-scaled-alone", math.exp(off[at]))
            limit = said("limit-within-others", self.threshold)
            yield RuleAlert(
                "grad_reduced", int(at), "norm", float(reduced.values[at, reduced.ops.index("norm")]), reason, limit
            )


@dataclass(slots=True)
class SkippedSteps:
    """A scaler skips ``steps`` steps in a row: its scale comes down, and the gradients are still not finite. Before the
    first step that is taken it may skip three times as many, as long as its first scale is too large. In force wherever
    there is any rule.
    """

    name: ClassVar[str] = "SkippedSteps"

    steps: int = 10

    def judge(self, step: Step) -> Iterator[RuleAlert]:
        """Nothing: a step that was taken ends the row."""
        yield from ()

    def against(self, in_a_row: int, has_stepped: bool) -> RuleAlert | None:
        """What is wrong with so many in a row; said at the limit, and at ten times as many."""
        limit = self.steps if has_stepped else 3 * self.steps
        if in_a_row < limit or in_a_row % limit or not math.log10(in_a_row // limit).is_integer():
            return None
        reason = said("seen-not-finite-at-any-scale")
        return RuleAlert("skipped_steps", 0, "count", float(in_a_row), reason, said("limit-in-a-row", limit))


def _all_zero(block: QuantityBlock) -> Mask | None:
    """[rows]: whether all elements are zero, by the first statistic that says; None if none does."""
    norm, low, high = block.column("norm"), block.column("min"), block.column("max")
    dead: Mask
    if norm is not None:
        dead = block.values[:, norm] == 0
    elif low is not None and high is not None:
        dead = (block.values[:, low] == 0) & (block.values[:, high] == 0)
    else:
        return None
    dead &= ~(block.elements == 0)
    return dead


def _before_and_after(step: Step, op: str) -> Iterator[tuple[int, float, float]]:
    """Row after the step, value before it, value after it, for each parameter of both."""
    before, after = step.blocks.get("param_origin"), step.blocks.get("param_updated")
    if before is None or after is None or op not in before.ops or op not in after.ops:
        return
    known = {(row.stage, row.name): at for at, row in enumerate(before.rows)}
    for at, row in enumerate(after.rows):
        other = known.get((row.stage, row.name))
        if other is not None:
            yield at, float(before.values[other, before.ops.index(op)]), float(after.values[at, after.ops.index(op)])


#: Name in the configuration -> the rule.
RULES: dict[str, type[Any]] = {
    rule.name: rule
    for rule in (
        Turbulence,
        NotANumber,
        LossSpike,
        GradNormSpike,
        DeadGradient,
        ExplodingUpdateRatio,
        FrozenWeights,
        SkippedSteps,
        UnevenGradients,
    )
}
