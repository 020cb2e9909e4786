"""The first step at which a second run is not the first one with other rounding.

Two healthy runs drift apart: rounding errors grow with the steps, smoothly. A fault shows as a jump: from one step to
the next a number is several times further from that of the other run than it has been in the steps before. A slow one
shows as a rise: less than a jump, but it does not come back, and other numbers of its kind do not rise with it. What is
certain goes first: a batch or a learning rate that is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from msprobe.compare.number_types import EPSILON
from msprobe.messages import said
from msprobe.monitor.apart import (
    ACCUMULATED,
    Distances,
    beside_usual_sizes,
    distances_of,
    least_distance,
    place_in,
    typical_distance,
)
from msprobe.monitor.loss_scale import without_loss_scale
from msprobe.monitor.relations import ByGradients, first_relation, rounding_of_first_step
from msprobe.monitor.series import place_of
from msprobe.monitor.sketch import Sketch

#: A distance is a jump if it is this many times the largest of the last steps.
JUMP = 6.0
_LOOKED_BACK = 24
# Rounding alone: float32 sums in another order. An update is the difference of two weights a thousand times as large,
# and Adam makes steps of full size of gradients that are nothing but rounding (bench/monitor/localise.py).
_ROUNDING = 1e-6
_ROUNDING_OF = {"update": 1e-3}
# A training that computes in half precision differs by what its type can distinguish, the distance from 1 to the next
# number: healthy pairs with another kernel were 0.024 apart at most where 0.002 was usual before.
HALF = {name: EPSILON[name] for name in ("bfloat16", "float16")}
_SEVERAL = 3
# One tensor's jump is its own, unless it is of its size: where a relu, a maximum or a router chooses otherwise, a
# gradient jumps from 1e-6 to 1e-2. Healthy networks were below this in the median over their tensors.
_ALONE = 0.5
_GENERAL = 5e-3
_TIMES_TYPICAL = 6.0
_TIMES_SPREAD = 20.0
_TIMES_ALONE = 20.0
_PARTED = 0.2
# A tensor that rises beside the others is no fault before they are so far apart.
_RISEN = 2e-2
_FIRST_STEPS = 8
_OF_FIRST_STEPS = 1e-3

# An update that differs by so much in healthy steps is of a gradient that is noise; Adam magnifies its outliers.
_OF_NOISE_ONLY = 0.05
_NOISE_ONLY = 10.0
# In a half type, a choice in a loss (which sample is the hardest, whether a ratio is cut off) falls otherwise now and
# then: gradients jump, by less than their size in most tensors, the loss does not, and soon they are back.
_LASTS, _IS_BACK, _TIMES_LOSS = 4, 4.0, 2.0
_OF_A_CHOICE, _MOST_OF_A_CHOICE = 1.0, 4.0
# A rise: for so many steps, each distance is so many times the largest before, and their median so many times. The
# first names the step at which it begins; the second is for what rises so slowly that it begins below the noise.
_RISES = ((8, 1.5, 3.0), (32, 1.0, 3.0))


@dataclass(frozen=True, slots=True)
class FirstBadStep:
    """``what``: the facts and numbers that are wrong at this step, the strongest first. ``certain``: a fact is among
    them (another batch, another learning rate).
    """

    step: int
    what: tuple[str, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class Jump:
    """``distance``: relative to the group's norm; ``usual``: the largest of the steps before, 0 if all were equal."""

    step: int
    group: str
    quantity: str
    distance: float
    usual: float

    @property
    def message(self) -> str:
        """The jump in a sentence."""
        before = said("before-at-most", self.usual) if self.usual else said("before-equal")
        return said("tensor-jumps", self.group, f"{self.distance:.3g}", before)


def first_bad_step(
    first: Sequence[Sketch],
    second: Sequence[Sketch],
    steps_of_numbers: Mapping[str, float] | None = None,
    rounding: float = 0.0,
) -> FirstBadStep | None:
    """The first bad step of the second run; None if it does what the first does, up to rounding. ``rounding``: by how
    much, relatively, numbers may differ for their type alone (:data:`HALF`).

    ``steps_of_numbers``: by quantity, the least step between two numbers that the sketches were made of, where these
    were rounded to decimals.
    """
    known = {sketch.step: sketch for sketch in first}
    pairs = [
        (known[sketch.step], sketch)
        for sketch in sorted(second, key=lambda sketch: sketch.step)
        if sketch.step in known
    ]
    pairs = without_loss_scale(pairs)
    weights_rounding, rounding = rounding, max(rounding, rounding_of_first_step(pairs))
    facts = _first_facts(pairs)
    distances = [distances_of(ours, theirs, steps_of_numbers or {}) for ours, theirs in pairs]
    distances = beside_usual_sizes([ours for ours, _ in pairs], distances, rounding)
    for name, place in (("loss", "loss"), ("norm of all gradients", "norm")):
        if any(all(np.isnan(getattr(pair[side], place)) for pair in pairs) for side in (0, 1)):
            # Only one of them has it.
            for distance in distances:
                distance.pop(name, None)
    steps = [ours.step for ours, _ in pairs]
    jumps = _first_difference(steps, distances) or _first_jumps(steps, distances, rounding)
    before = steps.index(jumps[0].step) if jumps else len(steps)
    jumps = _first_rises(steps, distances, before, rounding) or jumps
    relations = first_relation(pairs, rounding, weights_rounding)
    candidates = [*(jump.step for jump in jumps), *(relation.step for relation in relations)]
    at = min([facts[0]] * bool(facts[1]) + candidates, default=None)
    if at is None:
        return None
    what = list(facts[1]) if facts[0] == at else []
    # What holds between numbers of a step names the place; a jump may be anywhere behind it.
    what += [relation.message for relation in relations if relation.step == at]
    what += [jump.message for jump in jumps if jump.step == at]
    return FirstBadStep(at, tuple(what), facts[0] == at and bool(facts[1]))


def _first_facts(pairs: Sequence[tuple[Sketch, Sketch]]) -> tuple[int, list[str]]:
    before: dict[str, int] = {}
    for ours, theirs in pairs:
        facts: list[str] = []
        more = _tensors(theirs)
        more.subtract(_tensors(ours))
        for quantity, difference in more.items():
            # What one of them measures from its first step on and the other does not is of the monitors.
            if difference != before.setdefault(quantity, difference):
                more_now = difference > before[quantity]
                name = "tensors-appear" if more_now else "tensors-vanish"
                facts.append(said(name, quantity, abs(difference - before[quantity])))
        if any(ours.batch) and any(theirs.batch) and ours.batch != theirs.batch:
            facts.append(said("batch-differs"))
        if ours.rate != theirs.rate and ours.rate == ours.rate and theirs.rate == theirs.rate:
            facts.append(said("rate-differs", theirs.rate, ours.rate))
        if facts:
            return ours.step, facts
    return -1, []


def _tensors(sketch: Sketch) -> Counter[str]:
    """How many tensors of each quantity there are."""
    counts: Counter[str] = Counter()
    for group in sketch.groups:
        counts[group.quantity] += group.count
    return counts


def _first_difference(steps: Sequence[int], distances: Sequence[Distances]) -> list[Jump]:
    """What differs at the first step at which anything does, by more than rounding in float32, where the first steps
    were equal to the last bit: two such runs round alike, also in half types.
    """
    at = next((count for count, now in enumerate(distances) if any(entry[2] for entry in now.values())), 0)
    if at < _FIRST_STEPS:
        return []
    return _strongest_first(
        [
            Jump(steps[at], name, kind, distance, 0.0)
            for kind, name, distance in distances[at].values()
            if distance > JUMP * _rounding_of(kind, 0.0)
        ]
    )


def _first_jumps(steps: Sequence[int], distances: Sequence[Distances], rounding: float) -> list[Jump]:
    """The jumps at the earliest step that has any, the strongest first."""
    history: dict[object, list[float]] = {}
    unexplained = ByGradients(rounding)
    general: list[float] = []
    every: list[float] = []
    for count, now in enumerate(distances):
        jumps = []
        unexplained.begin(now.values())
        usual_of_kind = _medians(
            (kind, max(history.get(at, [0.0])[-_LOOKED_BACK:])) for at, (kind, _, _) in now.items()
        )
        beginning = count < _FIRST_STEPS
        typical = typical_distance(now.values())
        spread = least_distance(now.values())
        # A kink changes what is in front of it, and nothing behind it.
        is_general = typical > max(
            _GENERAL, JUMP * rounding, _TIMES_TYPICAL * _largest(general)
        ) and spread > _TIMES_TYPICAL * _largest(every)
        is_general |= typical > max(_OF_FIRST_STEPS, JUMP * rounding) and spread > _TIMES_SPREAD * max(
            _largest(every), _ROUNDING
        )
        # Two runs that have parted altogether, as where a loss has come down to nothing, say no more about a step.
        have_parted = _largest(general) > _PARTED
        general.append(typical)
        every.append(spread)
        level = _medians((kind, distance) for kind, _, distance in now.values()) if beginning else {}
        for channel, (kind, name, distance) in now.items():
            before = history.setdefault(channel, [])
            usual = max([*before[-_LOOKED_BACK:], usual_of_kind.get(kind, 0.0), _rounding_of(kind, rounding)])
            if beginning or len(before) < 2:
                usual = max(usual, _OF_FIRST_STEPS)
            # What one number does in the first steps may be noise alone: the gradient of a bias that has no effect,
            # which an optimizer makes a step of full size. What most of them do is not.
            least = JUMP * usual * (_NOISE_ONLY if kind == "update" and usual > _OF_NOISE_ONLY else 1.0)
            is_of_most = level.get(kind, np.inf) > JUMP * _OF_FIRST_STEPS or distance == np.inf
            is_its_own = is_general and distance >= spread
            if kind in ACCUMULATED:
                is_its_own = unexplained.holds(kind, name, distance)
            is_its_own |= distance >= max(_ALONE, _TIMES_ALONE * typical)
            if distance > least and is_of_most and (distance == np.inf or (is_its_own and not have_parted)):
                jumps.append(Jump(steps[count], name, kind, distance, usual))
            before.append(min(distance, 1e30))
            del before[: -2 * _LOOKED_BACK]
        if (
            rounding
            and len({place_in(jump.group) for jump in jumps}) < _SEVERAL
            and all(jump.distance < _ALONE for jump in jumps)
        ):
            # In a half type, one number alone jumps where its elements are nearly nothing.
            continue
        if rounding and _is_a_choice(jumps, count, distances):
            continue
        if jumps:
            return _strongest_first(jumps)
        unexplained.end(now.values())
    return []


def _is_a_choice(jumps: Sequence[Jump], count: int, distances: Sequence[Distances]) -> bool:
    """True for gradients that jump in one step, and most of which are back soon, while the loss is that of the other
    run.
    """
    *before, now = (step["loss"][2] if "loss" in step else np.inf for step in distances[: count + 1])
    if not jumps or not now <= _TIMES_LOSS * _largest(before):
        return False
    jumped = {(jump.quantity, jump.group) for jump in jumps}
    sizes = [jump.distance for jump in jumps if jump.quantity not in ACCUMULATED]
    if len(sizes) < len(jumps) or np.median(sizes) >= _OF_A_CHOICE or max(sizes) >= _MOST_OF_A_CHOICE:
        return False
    least: dict[tuple[str, str], float] = {}
    for behind in distances[count + 1 : count + 1 + _LASTS]:
        for kind, name, distance in behind.values():
            if (kind, name) in jumped:
                least[kind, name] = min(distance, least.get((kind, name), np.inf))
    back = [least.get((jump.quantity, jump.group), np.inf) < jump.distance / _IS_BACK for jump in jumps]
    return sum(back) > len(back) / 2


def _first_rises(steps: Sequence[int], distances: Sequence[Distances], before: int, rounding: float) -> list[Jump]:
    """The rises that begin at the earliest of the first ``before`` steps at which any does, the strongest first."""
    channels = {channel: (kind, name) for now in distances for channel, (kind, name, _) in now.items()}
    jumps: list[tuple[int, Jump]] = []
    for kind in sorted({kind for kind, _ in channels.values()} - ACCUMULATED):
        channels_of_kind = [channel for channel, (other, _) in channels.items() if other == kind]
        values = np.array([[now[at][2] if at in now else np.nan for at in channels_of_kind] for now in distances])
        general = np.array([typical_distance(now.values()) for now in distances])
        for length, least, least_level in _RISES:
            for count in range(2 * _FIRST_STEPS, min(before, len(values) - length + 1)):
                usual = np.maximum(
                    values[max(0, count - _LOOKED_BACK) : count].max(axis=0), _rounding_of(kind, rounding)
                )
                now = values[count : count + length]
                with np.errstate(all="ignore"):
                    level = np.median(now, axis=0)
                    if np.isnan(level).all() or np.isnan(usual).all():
                        continue
                    alike = max(1.0, float(np.nanmedian(level) / np.nanmedian(usual)))
                    rises = (now.min(axis=0) > least * usual * alike) & (level > least_level * usual * alike)
                typical = float(np.median(general[count : count + length]))
                if not max(_RISEN, JUMP * rounding) < typical < _PARTED:
                    # A kink raises the level of some tensors, and of no others.
                    continue
                rises &= level >= typical
                if rises.any():
                    jumps += [
                        (
                            count,
                            Jump(
                                steps[count],
                                channels[channels_of_kind[at]][1],
                                kind,
                                float(level[at]),
                                float(usual[at]),
                            ),
                        )
                        for at in np.flatnonzero(rises)
                    ]
                    break
    first = min((count for count, _ in jumps), default=0)
    return _strongest_first([rise for count, rise in jumps if count == first])


def _largest(values: Sequence[float]) -> float:
    return max(values[-_LOOKED_BACK:], default=0.0)


def _strongest_first(jumps: Sequence[Jump]) -> list[Jump]:
    return sorted(
        jumps,
        key=lambda jump: (place_of(jump.quantity), -jump.distance / (jump.usual or _rounding_of(jump.quantity, 0.0))),
    )


def _rounding_of(kind: str, rounding: float) -> float:
    return max(_ROUNDING_OF.get(kind, _ROUNDING), rounding)


def _medians(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The median of the values of each quantity: one of them alone may have been lucky."""
    values_by_kind: dict[str, list[float]] = {}
    for kind, value in values:
        values_by_kind.setdefault(kind, []).append(value)
    return {kind: float(np.median(values_of_kind)) for kind, values_of_kind in values_by_kind.items()}
