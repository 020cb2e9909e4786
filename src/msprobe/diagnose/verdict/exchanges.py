"""Collectives that no rank explains by itself: what all ranks of a group put in together does, or nothing does."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from msprobe.diagnose.measured.judge import is_settled
from msprobe.diagnose.verdict.conclusion import ComparedRank

_Key = tuple[str, tuple[int, ...]]


def settle_exchanges(results: Sequence[ComparedRank]) -> list[ComparedRank]:
    """The results of all ranks of a step without what was said of collectives that are explained. Where a rank of a
    group was not compared, or what it puts in is not known, nothing is said of one, and it explains nothing either.
    """
    if not any(result.waiting for result in results):
        return list(results)
    together: defaultdict[tuple[_Key, int], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for result in results:
        for key, sizes in result.put_in.items():
            for number in range(len(sizes) // 2):
                whole = together[key, number]
                whole[0] += 1
                whole[1] += sizes[2 * number]
                whole[2] += sizes[2 * number + 1]
    settled_results = []
    for result in results:
        settled, reach = set(), result.reach
        for name, node in result.waiting.items():
            assert node.exchange is not None
            ranks, distance, coherent = together[node.exchange.key, node.exchange.number]
            is_known = ranks >= len(node.exchange.key[1]) and math.isfinite(distance) and math.isfinite(coherent)
            if not is_known or is_settled(node, distance, coherent):
                settled.add(name)
            if not is_known:
                reach = replace(reach, explained=False)
        kept = [suspect for suspect in result.suspects if not (suspect.waits and suspect.finding.entry in settled)]
        settled_results.append(replace(result, suspects=kept, reach=reach))
    return settled_results
