"""How far two sketches of a step are apart, number by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from msprobe.messages import said
from msprobe.monitor.sketch import Sketch

#: Channel -> quantity, name, distance relative to the size of what is compared.
Distances = dict[object, tuple[str, str, float]]

#: What weights and what an optimizer keeps are made of over many steps.
ACCUMULATED = frozenset(("exp_avg", "exp_avg_sq", "param_origin", "update", "param_updated", "state"))


def place_in(group: str) -> str:
    """The tensors of a group, whatever is compared of them: ``norm of grad_reduced fc1.weight`` -> ``fc1.weight``."""
    return group.removeprefix("norm of ").partition(" ")[2]


def typical_distance(now: Iterable[tuple[str, str, float]]) -> float:
    """The median over tensors of how far the norms of gradients and activations are apart; of whatever there is, where
    there are none of them.
    """
    every = [(kind, name, distance) for kind, name, distance in now if name.startswith("norm of ")]
    first = [distance for kind, name, distance in every if kind not in ACCUMULATED and name != "norm of all gradients"]
    distances = first or [distance for _, _, distance in every]
    return float(np.median(distances)) if distances else 0.0


def least_distance(now: Iterable[tuple[str, str, float]]) -> float:
    """How far nine of ten gradients and activations are apart at least, in norm or projection."""
    largest_by_group: dict[str, float] = {}
    for kind, name, distance in now:
        group = place_full(name)
        if kind not in ACCUMULATED and " " in group and group != "all gradients":
            largest_by_group[group] = max(largest_by_group.get(group, 0.0), distance)
    return float(np.quantile(list(largest_by_group.values()), 0.1)) if largest_by_group else 0.0


def place_full(name: str) -> str:
    """A group's quantity and tensors."""
    return name.removeprefix("norm of ")


def distances_of(ours: Sketch, theirs: Sketch, quanta: Mapping[str, float]) -> Distances:
    """The distances of a step. ``quanta``: the least step between two numbers of a quantity that was rounded."""
    distances: Distances = {}
    for name, a, b in (("loss", ours.loss, theirs.loss), ("norm of all gradients", ours.norm, theirs.norm)):
        if a == a or b == b:
            quantity = "loss" if name == "loss" else "grad_reduced"
            distances[name] = (quantity, name, _apart(a, b, quanta.get(quantity, 0.0) * len(ours.groups)))
    same = ours.groups if ours.groups == theirs.groups else tuple(g for g in ours.groups if g in set(theirs.groups))
    here = [ours.groups.index(group) for group in same] if same is not ours.groups else slice(None)
    there = [theirs.groups.index(group) for group in same] if same is not ours.groups else slice(None)
    first, second = ours.numbers[here].astype(np.float64), theirs.numbers[there].astype(np.float64)
    with np.errstate(all="ignore"):
        rounding = np.array([[quanta.get(group.quantity, 0.0) * group.count] for group in same]).reshape(-1, 1)
        apart = np.maximum(np.abs(second - first) - rounding, 0.0) / np.maximum(np.abs(first[:, :1]), 1e-30)
    apart[(first == second) | (np.isinf(first) & np.isinf(second))] = 0.0
    apart[np.isnan(apart)] = np.inf
    for group, (norm, projection) in zip(same, apart.tolist(), strict=True):
        distances[group, 0] = (group.quantity, said("norm-of", str(group)), norm)
        distances[group, 1] = (group.quantity, str(group), projection)
    return distances


def _apart(a: float, b: float, rounding: float) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    distance = (abs(b - a) - rounding) / max(abs(a), 1e-30)
    return distance if distance == distance else float("inf")


_LOOKED_BACK = 24


# A gradient that is nothing in exact numbers (of a bias in front of a norm) is so many roundings of what most tensors
# have; of a half type, and of float32, in which sums are longer than that.
_NOTHING_OF_HALF = 4.0
_NOTHING = 512.0 * 2.0**-23


def rounding_alone(sizes: Iterable[float], rounding: float) -> float:
    """The size below which a gradient may be nothing but rounding. ``sizes``: of all tensors, of one quantity."""
    known = [size for size in sizes if np.isfinite(size)]
    return max(_NOTHING, _NOTHING_OF_HALF * rounding) * float(np.median(known)) if known else 0.0


def beside_usual_sizes(
    first: Sequence[Sketch], distances: Sequence[Distances], rounding: float = 0.0
) -> list[Distances]:
    """The same, of gradients and activations relative to the size that they usually have, where they are smaller now:
    what rounding leaves of a gradient that is nearly nothing is no large part of it; and relative to what rounding
    makes of nothing.
    """
    sizes: dict[object, list[float]] = {}
    scaled: list[Distances] = []
    for sketch, now in zip(first, distances, strict=True):
        shares: dict[object, float] = {}
        sizes_by_kind: dict[str, list[float]] = {}
        for group, (norm, _) in zip(sketch.groups, sketch.numbers.tolist(), strict=True):
            if "grad" in group.quantity:
                sizes_by_kind.setdefault(group.quantity, []).append(norm)
        least = {kind: rounding_alone(norms, rounding) for kind, norms in sizes_by_kind.items()}
        for group, (norm, _) in zip(sketch.groups, sketch.numbers.tolist(), strict=True):
            if group.quantity in ACCUMULATED or not np.isfinite(norm):
                continue
            before = sizes.setdefault(group, [])
            usual = max(float(np.median(before)) if before else norm, least.get(group.quantity, 0.0))
            shares[group] = min(1.0, norm / usual) if usual > 0 else 1.0
            before.append(norm)
            del before[:-_LOOKED_BACK]
        whole = sizes.setdefault("all", [])
        usual = float(np.median(whole)) if whole else sketch.norm
        share = min(1.0, sketch.norm / usual) if usual > 0 and np.isfinite(sketch.norm) else 1.0
        if np.isfinite(sketch.norm):
            whole.append(sketch.norm)
            del whole[:-_LOOKED_BACK]
        scaled.append(
            {
                channel: (kind, name, distance * shares.get(channel[0], 1.0) if np.isfinite(distance) else distance)
                if isinstance(channel, tuple)
                else (
                    kind,
                    name,
                    distance * share if name == "norm of all gradients" and np.isfinite(distance) else distance,
                )
                for channel, (kind, name, distance) in now.items()
            }
        )
    return scaled
