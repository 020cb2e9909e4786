"""What two runs show of their weights, apart from their gradients: facts about the start, about what happens between
steps, and about what a step makes of equal gradients.

Weights in front of a step are those behind the step before, to the last bit, unless something writes to them in
between. Weights that are equal in front of a step, with gradients that are equal up to rounding, are equal behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from msprobe.messages import said
from msprobe.monitor.sketch import Sketch

Pairs = Sequence[tuple[Sketch, Sketch]]
#: By tensor, by how much a step changes norm and projection, and the norm.
_Changes = dict[str, tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", float]]
#: Norm and projection of each tensor.
_Numbers = dict[str, "np.ndarray[tuple[int], np.dtype[np.float64]]"]

_FLOAT32 = 2.0**-23
#: Equal to so many last bits of float32, in which sketches are kept.
EQUAL = 8 * _FLOAT32
# How far what a step does may be apart, as a share of it, where gradients are apart by nothing; and how much more of it
# for each share that they are. An adaptive optimizer makes full steps of elements that are smaller than the rounding of
# the gradient: their share grows with it, and what they do with the root of their number.
_CHANGE = 0.02
_PER_GRADIENT = 20.0
_PER_ROOT = 4.0
_TIMES = 6.0
_LOOKED_BACK = 24
# What a fault does to one tensor's step it does to those behind it: by the same factor, or by the same amount.
_SAME_STEPS, _SAME_TIMES = 5, 3.0
# What is not the factor's may be so much of what a tensor's steps are apart by: half of the way to none of it.
_BESIDE_FACTOR = 0.5
_FIRST_STEPS = 5
# So many steps later something writes soon.
_SOON = 3
# Healthy pairs under autocast, with samples in another order, were 8 standard errors apart at most, decay of norms 70
# at least; less than a hundredth of a step says nothing.
_STEADY = 8
_STEADY_ERRORS = 25.0
_LEAST_STEADY = 1e-2
_LEAST_TENSORS = 3
_SHARE_OF_TENSORS = 0.3


@dataclass(frozen=True, slots=True)
class BrokenRelation:
    """``message``: what holds in one run and not in the other, from this step on."""

    step: int
    message: str


def weight_relations(pairs: Pairs, rounding: float = 0.0) -> list[BrokenRelation]:
    """The earliest of each kind. ``rounding``: of a half type in which gradients were computed."""
    return [
        *_unequal_start(pairs),
        *_written_between_steps(pairs),
        *_unequal_changes(pairs, rounding),
        *_steady_changes(pairs),
    ]


def numbers_of(sketch: Sketch, quantity: str) -> _Numbers:
    """Norm and projection of the groups of a quantity, by the names of their tensors."""
    packed = sketch.numbers.astype(np.float64)
    return {
        str(group).partition(" ")[2]: packed[at] for at, group in enumerate(sketch.groups) if group.quantity == quantity
    }


def _unequal_start(pairs: Pairs) -> list[BrokenRelation]:
    if not pairs or pairs[0][0].step != 0:
        return []
    ours, theirs = (numbers_of(side, "param_origin") for side in pairs[0])
    apart = {name: apart_by(ours[name], theirs[name]) for name in ours if name in theirs}
    names = sorted((name for name, distance in apart.items() if distance > EQUAL), key=lambda name: -apart[name])
    return [BrokenRelation(0, said("weights-differ-before-start", name, apart[name])) for name in names]


def _written_between_steps(pairs: Pairs) -> list[BrokenRelation]:
    """In the second run something writes to weights behind the step; in the first run nothing does, nor has it before
    or does it soon: an average may once move by less than the last bits.
    """
    steps = [(before, now) for before, now in pairwise(pairs) if now[0].step == before[0].step + 1]
    written: set[str] = set()
    seen = 0
    for at, (before, now) in enumerate(steps):
        theirs = _between(before[1], now[1])
        # Each step of the first run is asked once.
        for behind, ahead in steps[seen : at + 1 + _SOON]:
            written.update(name for name, distance in _between(behind[0], ahead[0]).items() if distance > EQUAL)
            seen += 1
        names = [name for name, distance in theirs.items() if distance > EQUAL and name not in written]
        if names:
            names.sort(key=lambda name: -theirs[name])
            step = before[0].step
            return [
                BrokenRelation(step + 1, said("weights-change-between", name, step, theirs[name])) for name in names
            ]
    return []


def _between(before: Sketch, now: Sketch) -> dict[str, float]:
    """By tensor, how far its numbers behind a step are from those in front of the next."""
    behind, ahead = numbers_of(before, "param_updated"), numbers_of(now, "param_origin")
    return {name: apart_by(behind[name], ahead[name]) for name in behind if name in ahead}


def _unequal_changes(pairs: Pairs, rounding: float) -> list[BrokenRelation]:
    """A step changes weights otherwise, and the gradients do not explain it.

    Of elements whose gradient is smaller than its rounding (those of keys in the one bias of an attention) an adaptive
    optimizer makes whole steps either way, and what is seen of a tensor does not say how many it has. So single tensors
    say nothing in a half type, and in float32 only where they are off by the same in the next steps, too.
    """
    history: dict[str, list[float]] = {}
    gradients: dict[str, list[float]] = {}
    sizes = _first_sizes(pairs)
    for at, (ours, theirs) in enumerate(pairs):
        changes = [_changes(side) for side in (ours, theirs)]
        grads = [numbers_of(side, "grad_reduced") or numbers_of(side, "grad_unreduced") for side in (ours, theirs)]
        typical = [apart_by(grads[0][name], grads[1][name]) for name in grads[0] if name in grads[1]]
        level = float(np.median(typical)) if typical else 0.0
        changed: list[tuple[float, str, float]] = []
        for name, (change, size) in changes[0].items():
            if name not in changes[1] or name not in grads[0] or name not in grads[1]:
                continue
            other, other_size = changes[1][name]
            gradient_sizes = gradients.setdefault(name, [])
            gradient_sizes.append(max(apart_by(grads[0][name], grads[1][name]), level))
            del gradient_sizes[:-_LOOKED_BACK]
            step = max(float(np.abs(change).max()), float(np.abs(other).max()))
            tensor_sizes = sizes.setdefault(name, [])
            tensor_sizes.append(step)
            del tensor_sizes[:-_LOOKED_BACK]
            # A projection may be nearly nothing once.
            step = max(step, float(np.median(tensor_sizes)))
            if not step > 200 * _FLOAT32 * max(size, other_size):
                continue
            apart = float(np.abs(other - change).max()) / step
            usual = history.setdefault(name, [])
            off = max(gradient_sizes)
            limit = _CHANGE + max(_PER_GRADIENT * off, _PER_ROOT * off**0.5)
            limit = max(limit, _TIMES * max(usual, default=0.0))
            if apart > limit:
                changed.append((apart, name, limit))
            usual.append(apart)
            del usual[:-_LOOKED_BACK]
        if len(changed) < max(_LEAST_TENSORS, _SHARE_OF_TENSORS * len(changes[0])):
            following = [] if rounding else [(_changes(a), _changes(b)) for a, b in pairs[at : at + _SAME_STEPS]]
            changed = [change for change in changed if following and _is_steady(change[1], change[2], following)]
        if changed:
            return [
                BrokenRelation(ours.step, said("update-differs-of-equal-gradients", name, apart, limit))
                for apart, name, limit in sorted(changed, reverse=True)
            ]
    return []


def _is_steady(name: str, limit: float, pairs: Sequence[tuple[_Changes, _Changes]]) -> bool:
    """True if a tensor's steps in the second run are those of the first times a factor, or more by an amount, which is
    no small part of ``limit``, as a share of a step. A factor shows in the norm and in the projection alike; elements
    whose gradients are rounding alone, and keep their first direction, move the projection.
    """
    factors, amounts, beside = [], [], []
    for ours, theirs in pairs:
        if name not in ours or name not in theirs:
            continue
        change, apart = ours[name][0], theirs[name][0] - ours[name][0]
        squares = float(change @ change)
        factor = float(apart @ change) / squares if squares else 0.0
        factors.append(factor)
        beside.append(float(np.linalg.norm(apart - factor * change)) / max(float(np.linalg.norm(apart)), 1e-300))
        amounts.append(float(apart[0]) / float(np.abs(change).max()) if squares else 0.0)
    return any(
        abs(np.sign(measured).sum()) == len(measured)
        and np.abs(measured).max() <= _SAME_TIMES * np.abs(measured).min()
        and np.abs(measured).min() * _SAME_TIMES > limit
        for measured in (factors if np.median(beside) <= _BESIDE_FACTOR else [], amounts)
        if measured
    )


def _steady_changes(pairs: Pairs) -> list[BrokenRelation]:
    """What a step does to the norm of a tensor is more, or less, by nearly the same in each of the first steps: a decay
    that one run alone has. Rounding, and whole steps that an adaptive optimizer makes of it, vary from step to step.
    """
    if len(pairs) < _STEADY or pairs[0][0].step != 0:
        return []
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for ours, theirs in pairs[:_STEADY]:
        first, second = _changes(ours), _changes(theirs)
        for name, (change, size) in first.items():
            if name in second:
                rows.setdefault(name, []).append((float(change[0]), float(second[name][0][0]), size))
    steady: list[tuple[float, str, float, float]] = []
    for name, numbers in rows.items():
        ours_of, theirs_of, sizes = np.array(numbers).T
        apart = theirs_of - ours_of
        if len(apart) < _STEADY or abs(np.sign(apart).sum()) < _STEADY or not sizes.min() > 0:
            continue
        mean, least = float(apart.mean()), _FLOAT32 * float(sizes.max())
        step = float(np.median(np.maximum(np.abs(ours_of), np.abs(theirs_of))))
        if not abs(mean) > max(_LEAST_STEADY * step, EQUAL * float(sizes.max())):
            continue
        certainty = abs(mean) / (max(float(apart.std(ddof=1)), least) / _STEADY**0.5)
        if certainty > _STEADY_ERRORS:
            steady.append((certainty, name, mean, step))
    return [
        BrokenRelation(0, said("update-adds-steadily", name, _STEADY, mean, step, certainty))
        for certainty, name, mean, step in sorted(steady, reverse=True)
    ]


def _first_sizes(pairs: Pairs) -> dict[str, list[float]]:
    """By tensor: what the first steps do to it. A projection may be nearly nothing in the very first one, and nothing
    is known of earlier ones.
    """
    sizes: dict[str, list[float]] = {}
    for ours, theirs in pairs[:_FIRST_STEPS]:
        changes = [_changes(side) for side in (ours, theirs)]
        for name, (change, _) in changes[0].items():
            other = changes[1].get(name, (change, 0.0))[0]
            sizes.setdefault(name, []).append(max(float(np.abs(change).max()), float(np.abs(other).max())))
    return sizes


def _changes(sketch: Sketch) -> _Changes:
    """By tensor: by how much the step changes norm and projection, and the norm."""
    before, behind = numbers_of(sketch, "param_origin"), numbers_of(sketch, "param_updated")
    return {name: (behind[name] - weight, float(abs(weight[0]))) for name, weight in before.items() if name in behind}


def apart_by(first: np.ndarray[tuple[int], np.dtype[np.float64]], second: object) -> float:
    """The largest distance of two numbers of a group, relative to its norm."""
    with np.errstate(all="ignore"):
        distance = float(np.abs(np.asarray(second) - first).max() / max(abs(float(first[0])), 1e-30))
    # What is not finite is the business of others.
    return distance if np.isfinite(distance) else 0.0
