"""Collectives that no rank explains by itself: what all ranks of a group put in together does, or nothing does."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from msprobe.diagnose.measured.judge import is_settled
from msprobe.diagnose.verdict.conclusion import Compared

_Key = tuple[str, tuple[int, ...]]


def settle_exchanges(results: Sequence[Compared]) -> list[Compared]:
    """The results of all ranks of a step without what was said of collectives that are explained. Where a rank of a
    group is not there, nothing can be said.
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
    found = []
    for result in results:
        explained = set()
        for name, node in result.waiting.items():
            assert node.exchange is not None
            ranks, distance, coherent = together[node.exchange.key, node.exchange.number]
            missing = ranks < len(node.exchange.key[1])
            if missing or is_settled(node, math.nan if missing else distance, coherent):
                explained.add(name)
        kept = [one for one in result.suspects if not (one.waits and one.finding.entry in explained)]
        found.append(replace(result, suspects=kept))
    return found
