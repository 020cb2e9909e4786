"""Calls that compare two tensors: what is left of these counts, in relation to which they may be far apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msprobe.diagnose import operators
from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.tables import DeviationTable, Tensors
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.store.rows import SUMS


def norm_of_difference(operation: str, compared: Tensors, table: DeviationTable) -> float:
    """The norm of the difference of the two tensors that a call compares, element by element, by the side where it is
    smaller; infinite for another call, or where it is not known. ``compared``: the arguments of the forward call.
    """
    if operation not in operators.DISTANCES or len(compared.places) < 2:
        return math.inf
    first, second = compared.places[:2]
    if min(first, second) < 0 or table.of(first).count != table.of(second).count:
        return math.inf
    norms = []
    for side in (0, 1):
        numbers, others = table.numbers(first, side), table.numbers(second, side)
        if numbers is None or others is None:
            return math.inf
        norms.append(math.dist(numbers[2], others[2]) / math.sqrt(SUMS))
    smaller = min(norms)
    return smaller if math.isfinite(smaller) else math.inf


def size_beside_difference(argument: Deviation, difference: float, size: float) -> float:
    """What the deviation of an argument is divided by: ``size``, or the norm of the difference where that is less; the
    deviation itself where the difference is not even that, and the result may be anything.
    """
    return min(size, max(difference, argument.distance))


class RowsApart(NamedTuple):
    """Of a call that gives how far rows are from each other: by how much the result is apart, over its norm, where each
    of the two is by its whole norm (``sides``), and where squares of distances are by a share of their terms.
    """

    sides: tuple[float, float]
    by_terms: Callable[[float], float]


def rows_apart(
    operation: str, direction: str, forward: Event, given: Sequence[Deviation], distances: Deviation
) -> RowsApart | None:
    """None for another call. A row that is off by a length is so much further from any other, at the most. Kernels take
    the squares of distances for sums of products, so these are off by a share of all terms, and their roots by half of
    that over the root, but by no more than the root of it: at the smallest of them.
    """
    if operation not in operators.DISTANCES_OF_ROWS or len(given) < 2 or not distances.norm:
        return None
    taken = dict(forward.inputs()).get("input.0", {})
    shape = taken.get("shape") if is_tensor(taken) else None
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        return None
    count, width, sides = max(distances.count, 1), shape[-1], given[:2]
    others = [math.sqrt(count * width / max(side.count, 1)) for side in sides]
    square = width * sum(side.norm**2 / max(side.count, 1) for side in sides)
    least = max(distances.least, 0.0)

    def by_terms(share: float) -> float:
        off = math.sqrt(square * share)
        off = min(off, off * off / (2.0 * least)) if least else off
        if direction == "backward":
            return min(off / least, 1.0) if least else 1.0
        return off * math.sqrt(count) / distances.norm

    return RowsApart((sides[0].norm * others[0] / distances.norm, sides[1].norm * others[1] / distances.norm), by_terms)


def terms_of_relative_entropy(operation: str, forward: Event, given: Sequence[Deviation]) -> float:
    """The norm of what is added up by a relative entropy, were its terms unrelated: each is a probability times a
    logarithm, of which little is left where both distributions are nearly the same. 0 for another call.
    """
    if operation not in operators.RELATIVE_ENTROPIES or len(given) < 2:
        return 0.0
    logarithms, target = given[:2]
    taken = dict(forward.inputs())
    shape = taken["input.0"].get("shape") if is_tensor(taken.get("input.0")) else None
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        return 0.0
    # Of logarithms of probabilities, these themselves have at most the norm of rows with one 1.
    norm = math.sqrt(logarithms.count / shape[-1]) if taken.get("input.log_target") is True else target.norm
    terms = logarithms.norm * norm / math.sqrt(max(logarithms.count, 1))
    counted_once: dict[str, int] = {"mean": max(logarithms.count, 1), "batchmean": shape[0]}
    return float(terms / counted_once.get(str(taken.get("input.reduction", "mean")), 1))
