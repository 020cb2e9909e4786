"""What gradients become between the backward pass and the step of the optimizer."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Comparer, Difference
from msprobe.diagnose.differences.words import ratio_of
from msprobe.diagnose.steps import optimizer
from msprobe.diagnose.steps.parameter_names import parameter_name
from msprobe.diagnose.steps.tensor_info import rms
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance import effect
from msprobe.diagnose.tolerance.judge import Judged

#: So near are two factors of gradients that are one, in the norms of float16 (2**-10).
SAME_FACTOR = 1e-3
#: What they give times a number is what they give of what they take times that number.
_LINEAR = operators.FACTORS | operators.MOVES | operators.CASTS | operators.SUMS_TERMS
#: So many deviations are passed once in 16,000 draws; of fewer gradients their deviation says nothing.
_DEVIATIONS, _FEWEST_SCALED = 4.0, 4
#: The tensors that describe gradients, by the names of their parameters.
_Gradients = dict[str, Any]


@dataclass(frozen=True)
class OptimizerGradients:
    """The gradients that the optimizers of both sides get.

    ``known``: they were recorded, on both sides. ``differ``: those that differ. ``factor``: what all of them differ by,
    if that is one number. ``clean``: but for rounding they agree, and so does what all calls after the backward pass
    take and give that are not linear in gradients, and of a factor that all had in the backward pass next to nothing is
    left. So what was done to gradients on one side alone was undone there, and not hidden by clipping. Where no calls
    were recorded (L0), what clipping makes of gradients is a number like no other: none if one side's optimizer gets
    what its backward pass gave, or both get it times a power of two, as scalers take it. ``scaled``: all of them are
    larger or smaller by a share that stands out from how much these shares differ among themselves, which rounding does
    not do, and those of the backward pass are not.
    """

    known: bool = False
    differ: tuple[Difference, ...] = ()
    factor: float | None = None
    clean: bool = False
    scaled: bool = False
    #: The mean logarithm of the ratio of their sizes.
    larger: float = 0.0
    #: What gradients may be apart by where they agree.
    rounding: float = 0.0

    def undo(self, distance: float) -> bool:
        """True if what gradients were apart by before is taken back: less may be left as it is."""
        return self.clean and distance > self.rounding

    def keep(self, factor: float) -> bool:
        """True if a factor of the loss is still in them: the ratio of their sizes is nearer to it than to 1."""
        return factor > 0.0 and abs(self.larger - math.log(factor)) < abs(self.larger)


def arrival_of(judged: Collection[Judged], comparer: Comparer) -> OptimizerGradients:
    """What the optimizers get. ``judged``: all pairs, in the order of execution."""
    differ: list[Difference] = []
    known = after = calls = False
    clean = True
    limit = effect.step_limit(judged)
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
        elif after and pair.event.direction == "forward" and not _is_linear(pair.event):
            changed = (*pair.changed_inputs, *pair.changed_outputs)
            clean &= all(difference.what == "value" and difference.delta <= limit for difference in changed)
    clean &= calls or _is_unscaled(*map(_ratios, backward, at_optimizer))
    factor = common_factor(differ)
    before, larger = (_times_larger(*gradients) for gradients in (backward, at_optimizer))
    scaled = _are_scaled(larger) and not _are_scaled(before)
    clean &= factor is None or abs(factor - 1.0) <= SAME_FACTOR
    clean &= effect.is_taken_back(_middle(before), max(abs(_middle(larger)) - SAME_FACTOR, 0.0))
    clean &= _largest_difference(differ, at_optimizer[1].values(), effect.unit_of(judged), limit) <= limit
    return OptimizerGradients(known, tuple(differ), factor, known and clean, scaled, _middle(larger), limit)


def _times_larger(ours: _Gradients, others: _Gradients) -> list[float]:
    """The logarithm of the ratio of sizes of each gradient."""
    sizes = [
        (rms(ours[name]), rms(leaf)) for name, leaf in others.items() if is_tensor(leaf) and is_tensor(ours.get(name))
    ]
    return [math.log(mine / theirs) for mine, theirs in sizes if mine and theirs and math.isfinite(mine / theirs)]


def _middle(shares: Sequence[float]) -> float:
    return math.fsum(shares) / len(shares) if shares else 0.0


def _are_scaled(shares: Sequence[float]) -> bool:
    """True if the sizes of gradients differ by a share that is more than four deviations of those of single ones."""
    if len(shares) < _FEWEST_SCALED:
        return False
    middle = _middle(shares)
    spread = math.sqrt(math.fsum((share - middle) ** 2 for share in shares) / (len(shares) - 1))
    return abs(middle) > max(_DEVIATIONS * spread, SAME_FACTOR)


def _is_linear(event: Event) -> bool:
    """True for a call outside of modules that a factor of gradients goes through."""
    word = operation(event.stem).removeprefix("_foreach_")
    return event.module is None and (word in _LINEAR or event.is_collective)


def _largest_difference(differ: Iterable[Difference], others: Iterable[Any], unit: float, limit: float) -> float:
    """How far gradients are apart, by their size beside the largest of ``others``."""
    largest = max((size for leaf in others if is_tensor(leaf) and math.isfinite(size := rms(leaf))), default=0.0)
    small = effect.small_gradient(unit, limit)
    return max((effect.gradient_difference(difference, largest, small) for difference in differ), default=0.0)


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
    return _one_number(ratios, SAME_FACTOR)


def have_common_factor(differences: Iterable[Difference], rounding: float) -> bool:
    """True if the sizes of all these tensors differ by one number, but for ``rounding`` (relative)."""
    ratios = [
        rms(difference.left) / size if difference.what == "value" and (size := rms(difference.right)) else None
        for difference in differences
    ]
    return _one_number(ratios, max(rounding, SAME_FACTOR)) is not None


def _one_number(ratios: Sequence[float | None], apart: float) -> float | None:
    if not ratios or ratios[0] is None:
        return None
    first = ratios[0]
    alike = all(ratio is not None and abs(ratio - first) <= apart * abs(first) for ratio in ratios)
    return first if alike else None
