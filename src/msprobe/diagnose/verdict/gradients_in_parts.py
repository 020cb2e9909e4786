"""Gradients that the optimizers of both sides get in other parts: all ranks together say whether they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from msprobe.diagnose.effect.in_parts import GradientsInParts
from msprobe.diagnose.verdict.conclusion import ComparedRank, allowed_of

#: What flat parameters are filled up with is so much of them at the most.
_FILLED_UP = 0.1


def settle_parts(results: Sequence[ComparedRank]) -> list[ComparedRank]:
    """The results of all ranks of a step. What they say of gradients in other parts stays with the first of them, if
    the norm of all is another one.
    """
    parts = [result.in_parts for result in results if result.in_parts is not None]
    if not parts:
        return list(results)
    ours, others = [pair[0] for pair in parts], [pair[1] for pair in parts]
    differ = len(parts) == len(results) and _norms_differ(ours, others, max(map(allowed_of, results)))
    settled = []
    for result in results:
        kept = []
        for suspect in result.suspects:
            is_of_parts = suspect.waits and suspect.finding.cause == "in_parts"
            if not is_of_parts:
                kept.append(suspect)
            elif differ:
                kept.append(replace(suspect, waits=False))
                differ = False
        settled.append(replace(result, suspects=kept))
    return settled


def _norms_differ(ours: Sequence[GradientsInParts], others: Sequence[GradientsInParts], allowed: float) -> bool:
    """True if the norms of one copy of all gradients differ by more than rounding. A side that has all of them on each
    rank has as many copies as ranks.
    """
    model = max(part.elements for part in (*ours, *others))
    norms = []
    for side in (ours, others):
        count = sum(part.elements for part in side) / model if model else 0.0
        copies = round(count)
        if not copies or abs(count - copies) > _FILLED_UP:
            return False  # parts that are not known all, or of a model that is spread over stages
        norms.append(math.sqrt(math.fsum(part.squares for part in side) / copies))
    return all(map(math.isfinite, norms)) and abs(norms[0] - norms[1]) > allowed * max(norms)
