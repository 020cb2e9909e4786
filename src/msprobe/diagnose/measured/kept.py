"""What a call keeps, whatever it is given: a norm gives all rows, or channels, one size, a softmax one sum, and a sum
over some dimensions has the sum of all.

How far its arguments are apart says nothing of these: a kernel that is wrong by a hundredth is seen behind a network
that has made ten of it. What is compared are norms and sums of whole results.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from msprobe.diagnose import operators
from msprobe.diagnose.measured.node import FEW_ELEMENTS
from msprobe.diagnose.measured.own_arguments import SUMMED_IN_SINGLE, OneCall, numbers_of_finite
from msprobe.diagnose.steps.tensor_info import numel
from msprobe.diagnose.steps.timeline import is_tensor
from msprobe.store.rows import Numbers, StoredRows

#: In units of what two sides do: kernels keep what they divide by in single precision, as torch's do, or round it to
#: their type, each row once.
ROUNDED_BY_ONE = 0.5**0.5
#: What is added to a variance before it divides, where the call does not say; no larger number is one.
_EPSILON, _LARGEST_EPSILON = 1e-5, 1e-2


class KeptSize(NamedTuple):
    """How far what two calls should keep is apart (``apart``), and how much of that their arguments may explain
    (``given``), each as a share of the norm of the result; and how many numbers are rounded by themselves (``alone``).
    """

    apart: float
    given: float
    alone: int


def kept_size(
    call: OneCall, other: OneCall, candidate: StoredRows, reference: StoredRows, given: float
) -> KeptSize | None:
    """What two calls keep; None for calls that keep nothing, or where that is not known. ``given``: the relative
    distance of the tensor that is normalised.
    """
    if call.name != other.name or len(call.outputs) != 1 or len(other.outputs) != 1:
        return None
    (_, leaf), (_, its) = call.outputs[0], other.outputs[0]
    mine, theirs = numbers_of_finite(leaf, candidate), numbers_of_finite(its, reference)
    if mine is None or theirs is None or (count := numel(leaf)) != numel(its):
        return None
    norm = math.sqrt(max(mine[1], theirs[1]))
    if not norm:
        return None
    if call.name in operators.KEEPS_SUM:
        return KeptSize(abs(mine[0] - theirs[0]) / math.sqrt(count) / norm, 0.0, _fewest_rows(call, count))
    if call.name in operators.SUMS:
        our_total, its_total = _total_apart(call, mine, candidate), _total_apart(other, theirs, reference)
        if our_total is None or its_total is None:
            return None
        (ours, in_doubt), (its, _) = our_total, its_total
        scale = math.sqrt(count) * norm
        return KeptSize(abs(ours - its) / scale, in_doubt / scale, count)
    if call.name not in operators.KEEPS_SIZE:
        return None
    pairs = _weights(call, other)
    sizes = [(numbers_of_finite(leaf, candidate), numbers_of_finite(its, reference)) for leaf, its in pairs or ()]
    follows = _follows(call, candidate, [numbers for numbers, _ in sizes], [numel(leaf) for leaf, _ in pairs or ()])
    if pairs is None or follows is None:
        return None
    apart = abs(math.sqrt(mine[1]) - math.sqrt(theirs[1])) / norm
    return KeptSize(apart, math.hypot(follows * given, _share_apart(sizes)), _fewest_rows(call, count))


def _total_apart(call: OneCall, made: Numbers, rows: StoredRows) -> tuple[float, float] | None:
    """The sum of what a call gives, less that of what it is given, and how far that may be off; None where what it is
    given is not known, or a few numbers are given, whose rounding does not average out.
    """
    if not call.inputs or numel(result := call.outputs[0][1]) < FEW_ELEMENTS:
        return None
    first: Any = call.inputs[0][1]
    numbers = numbers_of_finite(first, rows)
    if numbers is None:
        return None
    taken = numel(first)
    share = numel(result) / taken if call.name == "mean" else 1.0
    return made[0] - share * numbers[0], share * SUMMED_IN_SINGLE * math.sqrt(taken * numbers[1])


def _weights(call: OneCall, other: OneCall) -> list[tuple[Any, Any]] | None:
    """The pairs of tensors that rows are multiplied by, and that are added to them; None where they do not answer to
    each other, or cannot be distinguished from averages of earlier steps.
    """
    theirs = dict(other.inputs)
    pairs = [(leaf, theirs.get(slot)) for slot, leaf in call.inputs[1:] if is_tensor(leaf)]
    if call.name in operators.AVERAGING and pairs:
        pairs = [pair for pair in pairs if pair[0].get("requires_grad")]
        if not pairs:
            return None
    return pairs if all(is_tensor(its) for _, its in pairs) else None


def _follows(call: OneCall, rows: StoredRows, weights: list[Numbers | None], counts: list[int]) -> float | None:
    """How much of what its first argument is apart by its size follows: nothing where all elements have one weight and
    are divided by the size of their own row alone. None where they are divided by something else.
    """
    (_, first), *rest = call.inputs
    numbers = numbers_of_finite(first, rows)
    given = dict(rest)
    if call.name == "normalize" and _value(given.get("input.1", given.get("input.p", 2.0))) != 2.0:
        return None  # by a size that is not the norm
    if numbers is None or any(weight is None for weight in weights):
        return None
    count = max(numel(first), 1)
    mean_square = numbers[1] / count - (numbers[0] / count) ** 2 * (call.name in operators.SUBTRACTS_MEAN)
    small = [value for _, leaf in rest if 0.0 < (value := _float(leaf)) <= _LARGEST_EPSILON]
    added = min(small, default=_EPSILON)
    share = added / (added + max(mean_square, 0.0))
    if call.name in operators.AVERAGING:
        truths = [value for _, leaf in rest if isinstance(value := _value(leaf), bool)]
        return share if truths and truths[0] else None
    known = [(numbers, size) for numbers, size in zip(weights, counts, strict=True) if numbers is not None]
    if known:
        (weight, length), *terms = known
        size = math.sqrt(weight[1] / max(length, 1))
        if not size:
            return None
        # The norm counts squares of weights; what is added has signs of its own.
        spread = max(weight[1] / max(length, 1) - (weight[0] / max(length, 1)) ** 2, 0.0)
        share += 2.0 * math.sqrt(spread) / size
        share += sum(math.sqrt(term[1] / max(length, 1)) for term, length in terms) / size
    return min(share, 1.0)


def _share_apart(sizes: list[tuple[Numbers | None, Numbers | None]]) -> float:
    """How far the sizes of weights are apart, over the largest."""
    norms = [(math.sqrt(ours[1]), math.sqrt(its[1])) for ours, its in sizes if ours is not None and its is not None]
    largest = max((max(pair) for pair in norms), default=0.0)
    return max(abs(ours - its) for ours, its in norms) / largest if largest else 0.0


def _fewest_rows(call: OneCall, count: int) -> int:
    """How many rows, or channels, the result has at least: what they are divided by is rounded once for each."""
    small = [size for _, leaf in call.inputs if is_tensor(leaf) and 1 < (size := numel(leaf)) < count]
    shape = call.outputs[0][1].get("shape") or [1]
    sizes = small or [size for size in shape[-1:] if isinstance(size, int) and size > 0]
    return min((min(size, max(count // size, 1)) for size in sizes), default=1)


def _value(leaf: Any) -> Any:
    return leaf.get("value") if isinstance(leaf, dict) else leaf


def _float(leaf: Any) -> float:
    value = _value(leaf)
    return value if isinstance(value, float) else 0.0
