"""One number for each node: how far its results are off. Rules: mindstudio-probe 8.1.1.

In statistics: the largest relative error of Max, Min, Mean and Norm over all results. In tensors: how much smaller
the share of values within a thousandth is for the results than for the arguments. In digests: 1 if all are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.graph.differences import NodeDifference
from msprobe.graph.modes import Mode

#: Their results are memory that nobody has written.
UNWRITTEN = frozenset(("empty", "empty_like", "empty_with_format", "new_empty_strided", "new_empty", "empty_strided"))

Pairs = Sequence[NodeDifference | None]


def best_of(mode: Mode) -> int:
    """The index of what agrees."""
    return 1 if mode == "md5" else 0


def index_of(name: str, mode: Mode, inputs: Pairs, outputs: Pairs, surplus: bool) -> float | int:
    """The index of a node with a partner, from 0 to 1; in digests 1 is good.

    ``surplus``: the candidate has an argument or a result that the partner lacks.
    """
    if mode == "structure":
        return 0
    words = name.split(".", 2)
    if len(words) > 1 and words[1] in UNWRITTEN:
        return best_of(mode)
    if mode == "md5":
        return int(not surplus and all(difference is None or difference.same for difference in (*inputs, *outputs)))
    if mode == "all":
        return _index_of_tensors(inputs, outputs)
    worst: float | int = 0
    for output in outputs:
        if output is None:
            continue
        if output.is_bad:
            return 1
        for ratio in output.relative:
            if not math.isnan(ratio) and (ratio > worst or worst == 0):
                worst = max(worst, ratio)
    return min(worst, 1)


def _index_of_tensors(inputs: Pairs, outputs: Pairs) -> float | int:
    if any(row is not None and row.is_bad for row in outputs):
        return 1
    if any(row is not None and row.is_bad for row in inputs):
        return 0
    into = [row.one_thousandth for row in inputs if row is not None and row.one_thousandth is not None]
    out = [row.one_thousandth for row in outputs if row is not None and row.one_thousandth is not None]
    if not into or not out:
        return 0
    return min(max(min(into) - min(out), 0.0), 1.0)
