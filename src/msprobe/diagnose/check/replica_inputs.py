"""Replicas that all work on the same batch."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.diagnose.check.across import Across
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.communication import Rank
from msprobe.messages import said


def check(across: Across, copies: set[str]) -> Iterable[Finding]:
    """The model's first pass, if all ranks hold copies of the whole model, train it, and give it the same tensors.

    Ranks that divide the work of one batch take the same tensors rightly: they hold shares of parameters, or exchange
    data in the forward pass (shares of a sequence).
    """
    replicas = list(across.replicas.values())
    if not all(replica.optimizers and replica.trains and not replica.divides for replica in replicas):
        return
    if any(set(replica.weights) - copies or not replica.weights for replica in replicas):
        return
    firsts = [replica.first_pass for replica in replicas]
    first, last = firsts[0], firsts[-1]
    if (
        first is None
        or last is None
        or any(first_pass is None or first_pass.marks != first.marks for first_pass in firsts)
    ):
        return
    ranks: list[Rank] = list(across.replicas)
    yield across.finding(
        ranks[-1],
        last.name,
        "replica",
        said("batch-same-on-ranks", ", ".join(map(str, ranks[:8])), " and more" if len(ranks) > 8 else "", first.name),
        evidence={"cause": "same_batch", "ranks": [str(rank) for rank in ranks], "input": list(first.given)},
    )
