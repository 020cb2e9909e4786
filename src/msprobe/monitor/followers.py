"""State that no optimizer owns (averages of weights, running statistics of a norm, biases of a router), from the first
step on: it follows weights and activations, and is no further apart than what it follows has been.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from msprobe.messages import said
from msprobe.monitor.sketch import Sketch
from msprobe.monitor.weights import EQUAL, BrokenRelation, numbers_of

Pairs = Sequence[tuple[Sketch, Sketch]]

_WEIGHTS = ("param_origin", "param_updated")
_PASSES = ("actv", "grad_unreduced", "grad_reduced")
# Only here do weights agree by themselves; later a jump shows it.
_FIRST_STEPS = 9
_TIMES = 6.0
# Statistics are sums over a batch: of healthy runs in float32 they were apart by 1e-5 at most, under autocast by a
# third of what most gradients were.
_LEAST = 1e-3
_TIMES_ROUNDING = 12.0
# A discrete choice, as of a router, moves the state of its own layer; so one tensor alone says nothing.
_FEWEST = 2
_SHARE = 0.5


def follower_relations(pairs: Pairs, rounding: float = 0.0, weights_rounding: float = 0.0) -> list[BrokenRelation]:
    """State that is further apart than what it follows, at the earliest step. ``rounding``: of the gradients;
    ``weights_rounding``: of the type that weights are stored in, 0 for float32.
    """
    if not pairs or pairs[0][0].step != 0:
        return []
    weights: dict[str, float] = {}
    typical = 0.0
    before: set[str] = set()
    for ours, theirs in pairs[:_FIRST_STEPS]:
        for quantity in _WEIGHTS:
            for name, distance in _apart(ours, theirs, quantity).items():
                weights[name] = max(weights.get(name, 0.0), distance)
        passes = [distance for quantity in _PASSES for distance in _apart(ours, theirs, quantity).values()]
        typical = max(typical, float(np.median(passes)) if passes else 0.0)
        states = _apart(ours, theirs, "state")
        followed = {name: _followed(name, weights) for name in states}
        averages, statistics = {}, {}
        for name, apart in states.items():
            of = followed[name]
            if of is not None:
                averages[name] = apart, _TIMES * max(EQUAL, weights_rounding, weights[of])
            else:
                statistics[name] = (
                    apart,
                    max(_LEAST, _TIMES_ROUNDING * max(rounding, weights_rounding), _TIMES * typical),
                )
        beyond = _beyond(averages)
        more = _beyond(statistics)
        # A kink moves a statistic once; it takes two steps to be more.
        lasting = {name: entry for name, entry in more.items() if name in before}
        before = set(more)
        if len(lasting) >= max(_FEWEST, _SHARE * len(statistics)):
            beyond |= lasting
        if beyond:
            return [
                BrokenRelation(ours.step, said("state-leaves-what-it-follows", name, apart, limit))
                for name, (apart, limit) in sorted(beyond.items(), key=lambda item: -item[1][0] / item[1][1])
            ]
    return []


def _beyond(distances: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {name: (apart, limit) for name, (apart, limit) in distances.items() if apart > limit}


def _apart(ours: Sketch, theirs: Sketch, quantity: str) -> dict[str, float]:
    """By tensor, how far norm or projection are apart, relative to the larger norm."""
    first, second = numbers_of(ours, quantity), numbers_of(theirs, quantity)
    distances: dict[str, float] = {}
    for name, numbers in first.items():
        other = second.get(name)
        size = 0.0 if other is None else max(abs(float(numbers[0])), abs(float(other[0])))
        if other is not None and size > 0 and np.isfinite(size):
            apart = float(np.abs(other - numbers).max() / size)
            distances[name] = apart if np.isfinite(apart) else 0.0
        elif other is not None and size == 0:
            distances[name] = 0.0
    return distances


def _followed(state: str, weights: Iterable[str]) -> str | None:
    """The weight that a state is an average of: that whose name ends as its own does, the longest; None if none."""
    own = state.split(".")
    best, longest = None, 0
    for name in weights:
        parts = name.split(".")
        alike = next((n for n, (a, b) in enumerate(zip(reversed(own), reversed(parts), strict=False)) if a != b), None)
        count = min(len(own), len(parts)) if alike is None else alike
        if count > longest:
            best, longest = name, count
    return best
