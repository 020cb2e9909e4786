"""What holds between the numbers of one step, whatever their rounding: where it holds in one run and not in the other.

Between backward and step the gradients of all tensors are treated alike (averaged, unscaled, clipped), so the factor
between reduced and unreduced norm is the same for all tensors. What a step does to weights follows from the gradients:
weights part no further than gradients have. In the first steps both runs have the same weights, so gradients are apart
by what their type can say, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from msprobe.messages import said
from msprobe.monitor.apart import ACCUMULATED, place_in, rounding_alone
from msprobe.monitor.followers import follower_relations
from msprobe.monitor.sketch import Sketch
from msprobe.monitor.weights import BrokenRelation, apart_by, numbers_of, weight_relations

Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Pairs = Sequence[tuple[Sketch, Sketch]]

# Factors of healthy runs were at most 1.4e-3 apart (data parallel in bfloat16).
_FACTOR = 3e-3
_TIMES = 6.0
_LOOKED_BACK = 24
# Adaptive optimizers magnify what gradients that are nothing but rounding differ by.
_TIMES_OF_WEIGHTS = 12.0
# A step changes weights by some thousandths of their size.
_LEAST_RATIO = 3e-3
# The distance from 1 to the next number of float32, of which healthy gradients were apart by 1 at step 2 and by 8 at
# step 8 in the median over tensors, and by ten times as much in single pairs with Adam.
_FLOAT32 = 2.0**-23
_LEVELS = {1: 16.0, 2: 24.0, 3: 40.0, 4: 64.0, 5: 96.0, 6: 140.0, 7: 210.0, 8: 300.0}
# Steps in a row in which a tensor is off by the same sign.
_STEADY = 8
_TIMES_STEADY = 4.0
_LEAST_STEADY = 1e-3
# By how much most gradients of a healthy first step are apart under autocast, in float16 and bfloat16.
_LEAST_OF_HALF = 2.0**-13
_MOST_OF_HALF = 2.0**-6


class ByGradients:
    """Whether what gradients of the last steps were apart by explains how far weights are."""

    def __init__(self, rounding: float) -> None:
        self._rounding = max(rounding, _FLOAT32)
        self._recent: dict[str, list[float]] = {}
        self._most: dict[tuple[str, str], float] = {}
        self._all: float = 0.0

    def begin(self, now: Iterable[tuple[str, str, float]]) -> None:
        """A step with these distances: its gradients count already."""
        here: dict[str, float] = {}
        for kind, name, distance in now:
            if kind in ("grad_unreduced", "grad_reduced", "actv", "actv_grad") and " " in name.removeprefix("norm of "):
                place = place_in(name)
                here[place] = max(here.get(place, 0.0), distance)
        for place, distance in here.items():
            recent = self._recent.setdefault(place, [])
            recent.append(distance)
            del recent[: -2 * _LOOKED_BACK]
        self._all = float(np.median(list(here.values()))) if here else 0.0

    def holds(self, kind: str, name: str, distance: float) -> bool:
        """True if gradients do not explain that weights (or moments) are so far apart."""
        if kind not in ACCUMULATED or kind == "param_origin":
            return False
        ratio = self._most.get((kind, place_in(name)))
        if ratio is None:
            return False
        explained: float = _TIMES_OF_WEIGHTS * (ratio * self._gradient(name) + self._rounding)
        return distance > explained

    def end(self, now: Iterable[tuple[str, str, float]]) -> None:
        """The step was healthy: remember how weights and gradients went together."""
        for kind, name, distance in now:
            if kind in ACCUMULATED:
                ratio = max(distance - self._rounding, 0.0) / self._gradient(name)
                place = kind, place_in(name)
                self._most[place] = max(self._most.get(place, _LEAST_RATIO), ratio)

    def _gradient(self, name: str) -> float:
        recent: list[float] = self._recent.get(place_in(name), [])
        return max([self._rounding, self._all, *recent])


def rounding_of_first_step(pairs: Pairs) -> float:
    """How far gradients of the very first step are apart, in the median of those that are, where most are as far apart
    as the rounding of a half type makes them: the weights are equal there, and under autocast no type in the files says
    in which type they were computed.
    """
    if not pairs or pairs[0][0].step != 0:
        return 0.0
    ours, theirs = (numbers_of(side, "grad_unreduced") or numbers_of(side, "grad_reduced") for side in pairs[0])
    distances = [apart_by(ours[name], theirs[name]) for name in ours if name in theirs]
    level = float(np.median(distances)) if len(distances) >= 3 else 0.0
    # Behind the last call that a different device computes otherwise, gradients are equal, and say nothing.
    return float(np.median([size for size in distances if size])) if _LEAST_OF_HALF < level < _MOST_OF_HALF else 0.0


def first_relation(pairs: Pairs, rounding: float = 0.0, weights_rounding: float = 0.0) -> list[BrokenRelation]:
    """What does not hold at the earliest step at which anything does not. ``rounding``: of a half type that gradients
    are computed in, ``weights_rounding``: of one that weights are stored in.
    """
    relations = [
        *weight_relations(pairs, rounding),
        *_uneven_factors(pairs),
        *_steady_factors(pairs, rounding),
        *_levels(pairs, rounding),
        *follower_relations(pairs, rounding, weights_rounding),
    ]
    first = min((relation.step for relation in relations), default=0)
    return [relation for relation in relations if relation.step == first]


def _uneven_factors(pairs: Pairs) -> list[BrokenRelation]:
    """A tensor whose factor between unreduced and reduced gradient leaves that of the others, in the second run."""
    history: list[float] = []
    for ours, theirs in pairs:
        first, second = factors(ours), factors(theirs)
        names = [name for name in first if name in second]
        if len(names) < 3:
            continue
        apart = np.array([second[name] - first[name] for name in names])
        known = np.isfinite(apart)
        if known.sum() < 3:
            continue
        apart = np.where(known, apart - np.median(apart[known]), 0.0)
        history.append(float(np.median(np.abs(apart[known]))))
        # What the other tensors show: one that is off from the first step on is not taken for usual.
        limit = max(2 * _TIMES * max(history[-_LOOKED_BACK:]), _FACTOR)
        worst = np.flatnonzero(np.abs(apart) > limit)
        if 0 < len(worst) <= len(names) // 2:
            return [
                BrokenRelation(
                    ours.step,
                    said("gradient-scaled-between", names[at], float(np.exp(apart[at])), float(np.expm1(limit))),
                )
                for at in sorted(worst, key=lambda at: -abs(apart[at]))
            ]
    return []


def _steady_factors(pairs: Pairs, rounding: float) -> list[BrokenRelation]:
    """A gradient that is larger, or smaller, than in the first run in each of so many steps, where it was not before
    and most others are not.
    """
    for quantity in ("grad_unreduced", "grad_reduced"):
        names = [group for group in (pairs[0][0].groups if pairs else ()) if group.quantity == quantity]
        if len(names) < 3:
            continue
        least_steady = max(_LEAST_STEADY, _TIMES_STEADY * rounding)
        ratios = np.array([_log_ratios(ours, theirs, names) for ours, theirs in pairs])
        sizes = [_sizes(ours, names) for ours, _ in pairs]
        is_informative = np.array(
            [sizes_of_step > rounding_alone(sizes_of_step.tolist(), rounding) for sizes_of_step in sizes]
        )
        for begin in range(len(ratios) - _STEADY + 1):
            now = ratios[begin : begin + _STEADY]
            before = np.abs(ratios[max(0, begin - _LOOKED_BACK) : begin])
            least = np.abs(now).min(axis=0)
            typical = float(np.nanmedian(np.abs(now)))
            # Not the largest: what creeps in was there, too small to be seen, a few steps before.
            usual = 3 * np.median(np.nan_to_num(before), axis=0) if len(before) else np.zeros(len(names))
            limit = np.maximum(np.maximum(_TIMES_STEADY * usual, 2 * _TIMES_STEADY * typical), least_steady)
            with np.errstate(all="ignore"):
                steady = (np.abs(np.sign(now).sum(axis=0)) == _STEADY) & (least > limit)
                steady &= least > 0.1 * np.abs(now).max(axis=0)
                steady &= is_informative[begin : begin + _STEADY].all(axis=0)
            at = [int(column) for column in np.flatnonzero(steady)]
            if at:
                at.sort(key=lambda column: -float(least[column]))
                return [
                    BrokenRelation(
                        pairs[begin][0].step,
                        said(
                            "norm-scaled-steadily",
                            names[column],
                            float(np.exp(float(np.median(now[:, column])))),
                            _STEADY,
                            float(usual[column]) / 3,
                            typical,
                        ),
                    )
                    for column in at
                ]
    return []


def _levels(pairs: Pairs, rounding: float) -> list[BrokenRelation]:
    """In the first steps the gradients of most tensors are further apart than their rounding explains, in two steps one
    after the other: a kink makes some of them jump in one, and what comes behind it may be of that kink.
    """
    levels: list[tuple[int, float]] = []
    medians: list[float] = []
    for ours, theirs in pairs[: max(_LEVELS) + 2]:
        first, second = numbers_of(ours, "grad_unreduced"), numbers_of(theirs, "grad_unreduced")
        if not first:
            first, second = numbers_of(ours, "grad_reduced"), numbers_of(theirs, "grad_reduced")
        distances = [apart_by(first[name], second[name]) for name in first if name in second]
        levels.append((ours.step, float(np.quantile(distances, 0.25)) if len(distances) >= 3 else np.nan))
        medians.append(float(np.median(distances)) if len(distances) >= 3 else np.nan)
    if len(levels) < 3 or levels[0][0] != 0 or np.isnan(levels[0][1]):
        return []
    # What the first step shows, before any step was taken, is the rounding of these runs.
    unit = max(_FLOAT32, rounding, levels[0][1])
    for number, (step, level) in enumerate(levels[1:-1], 1):
        limit = _LEVELS.get(number, 0.0) * unit
        if limit and level > limit and levels[number + 1][1] > limit:
            text = said("gradients-differ-generally", level, limit, levels[0][1])
            return [BrokenRelation(step, text)]
        if limit and medians[number] > limit >= level:
            return []
    return []


def factors(sketch: Sketch) -> dict[str, float]:
    """The logarithm of reduced over unreduced norm, by tensor."""
    unreduced, reduced = numbers_of(sketch, "grad_unreduced"), numbers_of(sketch, "grad_reduced")
    with np.errstate(all="ignore"):
        return {name: float(np.log(reduced[name][0] / unreduced[name][0])) for name in reduced if name in unreduced}


def _sizes(sketch: Sketch, names: Sequence[object]) -> Doubles:
    """The norm of each; NaN where there is none."""
    places = {group: at for at, group in enumerate(sketch.groups)}
    rows = [places.get(name) for name in names]  # type: ignore[call-overload]
    return np.array([np.nan if at is None else float(sketch.numbers[at, 0]) for at in rows])


def _log_ratios(ours: Sketch, theirs: Sketch, names: Sequence[object]) -> Doubles:
    """The logarithm of the norm in the second run over that in the first; NaN where there is none."""
    with np.errstate(all="ignore"):
        ratios: Doubles = np.log(_sizes(theirs, names) / _sizes(ours, names))
    return np.where(np.isfinite(ratios), ratios, np.nan)
