"""Weights that the step before moved otherwise, between two frameworks.

Their optimizers round otherwise, and add epsilon in other places; so after a step no weight is the same. What
distinguishes an optimizer that does something else is how far it moved a weight: not much further on one side than on
the other, if gradients agreed.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from msprobe.diagnose.differences.records import numbers, numel
from msprobe.diagnose.differences.words import quoted
from msprobe.diagnose.effect.movement import places_of_weights, weights_of
from msprobe.diagnose.evidence import Because, Listed, NamedFact, Setting
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.tolerance import frameworks
from msprobe.messages import said
from msprobe.statistics_table import USUAL_KEYS

#: A factor that is nearer to 1 is not reported.
_SHOWN = 0.02


def look_at_movements(scene: Scene) -> None:
    """Suspect the optimizer, if the step before moved weights otherwise than its gradients explain."""
    if not (scene.comparer.crossing and scene.before.weights):
        return
    makers = scene.candidate.makers
    now = weights_of(scene.pairing.partner.items(), makers)
    apart: dict[str, tuple[float, float]] = {}
    for name, pair in now.items():
        before = scene.before.weights.get(name)
        if before is None or frameworks.gradients_explain(scene.before.apart.get(name, 0.0)):
            continue
        part = _apart(before, pair)
        if part is not None and frameworks.may_be_moved_otherwise(part[0]):
            apart[name] = part
    if 2 * len(apart) <= len(now) and not any(event.is_module for event in scene.judged):
        return  # what a call takes from outside may as well be data
    if 2 * len(apart) <= len(now):
        apart = {name: part for name, part in apart.items() if frameworks.is_moved_otherwise(part[1])}
    if not apart:
        return
    first = next(iter(apart))
    left, right = now[first]
    factor = median(_factor(scene.before.weights[name], now[name]) for name in apart)
    judged = next(
        call for call in scene.judged.values() if first in places_of_weights(call.event, call.partner, makers)
    )
    times = said("times-as-far", factor) if math.isfinite(factor) and abs(factor - 1) > _SHOWN else ""
    scene.say(
        ("movement",),
        judged,
        "optimizer",
        said("update-differs-by-framework", len(apart), len(now), quoted(list(apart), 1), times),
        where=first,
        facts=(
            Because("movement"),
            Listed("parameters", list(apart)),
            NamedFact("part_of_movement", max(largest for largest, _ in apart.values())),
            NamedFact("factor", factor if math.isfinite(factor) else None),
            Setting(_shown(left), _shown(right)),
        ),
        place=-1.0,
        matters=True,
    )
    for name in apart:
        scene.ledger.close(("weight", name))


def _apart(before: tuple[Any, Any], now: tuple[Any, Any]) -> tuple[float, float] | None:
    """How far a weight is apart, as a part of what a step moved it by: by the statistic that is furthest apart, and by
    the next (one element alone may have a gradient as small as epsilon). None if it is apart by rounding.
    """
    measures = [_measures(leaf) for leaf in (*before, *now)]
    if any(measure is None for measure in measures):
        return None
    old, other_old, new, other_new = (measure for measure in measures if measure is not None)
    moved = max(abs(a - b) for pair in ((new, old), (other_new, other_old)) for a, b in zip(*pair, strict=True))
    was = [a - b for a, b in zip(old, other_old, strict=True)]
    *_, second, distance = sorted(abs(a - b - c) for a, b, c in zip(new, other_new, was, strict=True))
    rounding = frameworks.movement_limit((*new, *other_new), now)
    return (distance / moved, second / moved) if distance > rounding and moved else None


def _factor(before: tuple[Any, Any], now: tuple[Any, Any]) -> float:
    """How many times as far the candidate moved a weight."""
    mine, theirs = (_distance(old, new) for old, new in zip(before, now, strict=True))
    return mine / theirs if theirs else math.inf


def _distance(before: Any, now: Any) -> float:
    start, other = _measures(before), _measures(now)
    return max(abs(a - b) for a, b in zip(start, other, strict=True)) if start and other else 0.0


def _measures(leaf: Any) -> tuple[float, ...] | None:
    """Largest, smallest, mean and typical element."""
    statistics = numbers(leaf)
    if statistics is None or not all(map(math.isfinite, statistics)):
        return None
    return (*statistics[:3], statistics[3] / math.sqrt(max(numel(leaf), 1)))


def _shown(leaf: Any) -> dict[str, Any]:
    return {key: leaf.get(key) for key in ("dtype", "shape", *USUAL_KEYS)}
