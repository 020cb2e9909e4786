"""Micro steps: the passes over the model that one step takes before its optimizer runs (gradient accumulation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from msprobe.graph.node_kinds import MODULE

Numbers = npt.NDArray[np.int32]


def count(
    top: Sequence[int], names: Sequence[str], kinds: Sequence[int], given: Mapping[str, int]
) -> tuple[list[int], int]:
    """The micro step of each node at the top, and how many there are.

    A forward pass of a module begins a new one if a module that is no forward pass came before it; all else belongs
    to the current one. ``given``: what the dump itself says of nodes, which goes first.
    """
    steps: list[int] = []
    step, in_backward = 0, False
    for node in top:
        if kinds[node] == MODULE:
            if ".forward." not in names[node]:
                in_backward = True
            elif in_backward:
                step += 1
                in_backward = False
        steps.append(given.get(names[node], step))
    return steps, max(steps, default=-1) + 1


def spread(top: Sequence[int], steps: Sequence[int], order: Numbers, nodes: int) -> Numbers:
    """The micro step of every node: that of the node at the top that it is in; 0 for the root."""
    by_order = np.zeros(nodes, np.int32)
    start = 0
    for node, step in zip(top, steps, strict=True):
        # Children stand before their parent, so all between two nodes at the top belong to the second.
        end = int(order[node]) + 1
        by_order[start:end] = step
        start = end
    step_numbers: Numbers = by_order[order]
    return step_numbers
