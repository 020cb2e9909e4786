"""Ranks that hold the same numbers and then no longer do: what the files of several ranks show when laid side by side.

No rank waits for another while it trains, so this is asked of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from msprobe.messages import said
from msprobe.monitor.csv_files import QuantityTable
from msprobe.monitor.files import RunFolder
from msprobe.monitor.trend_reading import read_quantity

# What replicas of a model have in common.
QUANTITIES = ("grad_reduced", "param_updated", "param_origin")


@dataclass(frozen=True, slots=True)
class Divergence:
    """``step``: the first at which ``rank`` has another ``op`` of this tensor than ``reference``, after they had the
    same. ``tensors``: how many differ at that step.
    """

    step: int
    rank: int
    reference: int
    quantity: str
    name: str
    op: str
    value: float
    reference_value: float
    tensors: int

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> str:
        """The divergence in a sentence."""
        values = (self.quantity, self.name, self.op, self.value, self.reference_value, self.tensors)
        return said("rank-diverges", self.rank, self.reference, self.step, *values)


def divergences(ranks: Mapping[int, Sequence[RunFolder]]) -> list[Divergence]:
    """Where each rank leaves the lowest one, the earliest first.

    Tensors that differ from their first common step on are no replicas (parts of a sharded model) and are not compared.
    """
    if len(ranks) < 2:
        return []
    lowest = min(ranks)
    divergences_found = []
    for quantity in QUANTITIES:
        reference = read_quantity(ranks[lowest], quantity)
        for rank in sorted(ranks):
            table = read_quantity(ranks[rank], quantity) if rank != lowest and reference is not None else None
            if table is not None and reference is not None:
                divergence = _first(table, reference, rank, lowest)
                if divergence is not None:
                    divergences_found.append(divergence)
    return sorted(
        divergences_found,
        key=lambda divergence: (divergence.step, QUANTITIES.index(divergence.quantity), divergence.rank),
    )


def _first(table: QuantityTable, reference: QuantityTable, rank: int, other: int) -> Divergence | None:
    ops = [op for op in table.ops if op in reference.ops]
    place = {key: at for at, key in enumerate(reference.keys())}
    pairs = [(at, place[key]) for at, key in enumerate(table.keys()) if key in place]
    if not ops or not pairs:
        return None
    here, there = np.array(pairs).T
    values = table.values[here][:, [table.ops.index(op) for op in ops]]
    expected = reference.values[there][:, [reference.ops.index(op) for op in ops]]
    differs = (values != expected) & ~(np.isnan(values) & np.isnan(expected))
    replicas: dict[tuple[int, str, int], bool] = {}
    hits: list[tuple[int, int]] = []
    steps = table.steps[here]
    for at in np.argsort(steps, kind="stable"):
        row = here[at]
        key = (table.stages[row], table.names[row], int(table.micro_steps[row]))
        apart = bool(differs[at].any())
        if replicas.setdefault(key, not apart) and apart:
            hits.append((int(steps[at]), int(at)))
    if not hits:
        return None
    step, at_first = hits[0]
    op = int(np.flatnonzero(differs[at_first])[0])
    return Divergence(
        step,
        rank,
        other,
        table.quantity,
        table.names[here[at_first]],
        ops[op],
        float(values[at_first, op]),
        float(expected[at_first, op]),
        sum(at_step == step for at_step, _ in hits),
    )
