"""Gradients that all ranks put together where no call was recorded, as wrappers around the model do.

Whichever way they are put together, their sums are those of what the backward passes of all ranks gave, times one
number: on each side by itself, whatever its kernels round otherwise. Where one side's are, and the other's are not, or
times another number, they were changed on the way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msprobe.diagnose.measured.node import GradientPass, TakenGradient
from msprobe.diagnose.measured.own_arguments import SUMMED_IN_SINGLE
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.verdict.conclusion import ComparedRank
from msprobe.store.rows import SUMS

#: In units, over the norms of all that is added up: sums are rounded once for each, and once for what is divided.
_ROUNDED = 2.0
#: What is off by so many times that is no such sum.
_OFF = 4.0
#: Two numbers are one up to this share: a coefficient that clips them is no further apart in half types.
_SAME_FACTOR = 0.1


class _Sum(NamedTuple):
    """Which sum a gradient is: of the last ``passes`` of a parameter, times ``factor``. ``off``: by how much it is
    none, over what rounding makes.
    """

    name: str
    passes: int
    factor: float
    off: float


def settle_gradients(results: Sequence[ComparedRank]) -> list[ComparedRank]:
    """The results of all ranks of a step, of which each names the first gradient at the most that is put together
    otherwise.
    """
    if not any(result.taken_over_ranks for result in results):
        return list(results)
    # Gradients that are known to hold those of the step before are put together as they are.
    are_known = any(suspect.finding.cause == "not_cleared" for result in results for suspect in result.suspects)
    settled = []
    for result in results:
        taken = ((call, each) for call, gradients in result.taken_over_ranks.items() for each in gradients)
        otherwise = ((call, each.slot) for call, each in taken if _is_put_together_otherwise(each, call, results))
        named = next(otherwise, None) if not are_known else None
        suspects = []
        for suspect in result.suspects:
            if not _waits(suspect, result):
                suspects.append(suspect)
            elif _said_of(suspect) == named:
                suspects.append(replace(suspect, waits=False))
        settled.append(replace(result, suspects=suspects))
    return settled


def _waits(suspect: Suspect, result: ComparedRank) -> bool:
    is_of_gradient = suspect.waits and suspect.finding.kind == "parameter_gradient"
    return is_of_gradient and suspect.finding.entry in result.taken_over_ranks


def _said_of(suspect: Suspect) -> tuple[str | None, str]:
    where = suspect.finding.where
    return suspect.finding.entry, where.removeprefix(f"{suspect.finding.entry}, ")


def _is_put_together_otherwise(taken: TakenGradient, call: str, results: Sequence[ComparedRank]) -> bool:
    ranks = [rank.passes for result in results if (rank := _passes_of(result, call, taken.slot)) is not None]
    if not len(ranks) == len(results) > 1:
        return False
    sides = [{(summed.name, summed.passes): summed for summed in _sums(taken, ranks, side)} for side in (0, 1)]
    for side, other in (sides, sides[::-1]):
        nearest = min(side.values(), key=operator.attrgetter("off"), default=None)
        if nearest is None or nearest.off > 1.0:
            continue
        answering = other.get((nearest.name, nearest.passes))
        if answering is None:
            return False
        factors = nearest.factor, answering.factor
        is_scaled = abs(factors[0] - factors[1]) > _SAME_FACTOR * max(map(abs, factors))
        return answering.off > _OFF or (answering.off <= 1.0 and is_scaled)
    return False


def _passes_of(result: ComparedRank, call: str, slot: str) -> TakenGradient | None:
    return next((taken for taken in result.taken_over_ranks.get(call, ()) if taken.slot == slot), None)


def _sums(taken: TakenGradient, ranks: Sequence[Mapping[str, Sequence[GradientPass]]], side: int) -> Iterator[_Sum]:
    """By how much a gradient is not the sum of what all ranks gave a parameter, of each that all of them have."""
    wanted = taken.sums[side]
    size = math.hypot(*wanted)
    names = [name for name in ranks[0] if all(name in rank for rank in ranks)] if size else []
    for name in names:
        passes = [rank[name] for rank in ranks]
        for count in range(1, min(map(len, passes)) + 1):
            added = [each for rank in passes for each in rank[-count:]]
            signed = [math.fsum(column) for column in zip(*(each.sums[side] for each in added), strict=True)]
            squares = math.fsum(each * each for each in signed)
            if not squares:
                continue
            factor = math.fsum(map(operator.mul, signed, wanted)) / squares
            off = math.dist([factor * each for each in signed], wanted)
            norms = math.fsum(each.norms[side] for each in added)
            rounded = math.sqrt(SUMS) * _ROUNDED * max(taken.unit, SUMMED_IN_SINGLE) * abs(factor) * norms
            yield _Sum(name, count, factor, off / rounded if rounded else math.inf)
