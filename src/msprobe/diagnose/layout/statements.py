"""What is said of a tensor that differs between two layouts: in which ranks' share of it, and how."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msprobe.diagnose.differences.records import fingerprint, is_integer
from msprobe.diagnose.differences.words import NO_RELATION, Relation, listed, ratio_in_words, relation_of_values
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.layout.blocks import Rank, TensorBlock, apart_by_rank, combine, distance, same_parts
from msprobe.diagnose.layout.measured import MeasuredTensor, RecordPair
from msprobe.diagnose.layout.placements import Placement
from msprobe.diagnose.layout.sides import LayoutSide
from msprobe.diagnose.statement import finding_at
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import joined, said
from msprobe.statistics_table import USUAL_KEYS

_KEYS = ("dtype", "shape", *USUAL_KEYS)
_MOST_NAMED = 8


def statement(
    side: LayoutSide,
    kind: FindingKind,
    message: str,
    where: str,
    events: dict[Rank, Event],
    ranks: Sequence[Rank],
    step: int | None,
    evidence: dict[str, Any],
) -> Finding:
    """A finding at a record of the candidate; ``ranks``: those that are at fault, where that is known."""
    rank = ranks[0] if ranks and ranks[0] in events else next(iter(events))
    event, timeline = events[rank], side.timelines[rank]
    return finding_at(
        timeline,
        event,
        kind,
        message,
        where,
        step,
        details={key: value for key, value in evidence.items() if value not in (None, [], "")},
        module=_module_of(side, rank, event, evidence),
        rank=rank if ranks or len(events) == 1 else None,
    )


def _module_of(side: LayoutSide, rank: Rank, event: Event, evidence: dict[str, Any]) -> str | None:
    """The module a record is of, or that a parameter belongs to."""
    parameter = evidence.get("parameter")
    name = side.name(event.parts.path, rank) if event.parts.path else str(parameter or "").rpartition(".")[0]
    return name or None


def how(left: TensorBlock, right: TensorBlock, apart: float) -> Relation:
    """What two whole tensors have to do with each other."""
    mine, theirs = left.values(), right.values()
    if mine is not None and theirs is not None:
        import numpy as np

        relation = relation_of_values(np.ravel(mine), np.ravel(theirs), shape=list(left.shape))
        if relation:
            return relation
    if is_integer(left.described()):
        return Relation("whole numbers differ")
    ratio = ratio_in_words(left.described(), right.described())
    return Relation(ratio) if ratio else Relation(f"{apart:.2g}", is_distance=True)


def at_fault(measured: MeasuredTensor, allowed: float) -> list[Rank]:
    """The ranks whose share differs; none where that is not known, or where all do."""
    if measured.fit is None:
        return []
    apart_of = apart_by_rank(measured.fit.left, measured.fit.right)
    wrong = [rank for rank, apart in apart_of.items() if apart > allowed]
    return [] if len(wrong) == len(measured.fit.left.ranks) else wrong


class TensorApart:
    """A tensor that is further apart than what is ``allowed``, and how that is said. ``ranks``: those whose share
    differs; none where that is not known, or where all do.
    """

    def __init__(self, tensor: MeasuredTensor, allowed: float) -> None:
        self.tensor = tensor
        self.allowed = allowed
        self.ranks = at_fault(tensor, allowed)

    @property
    def places(self) -> str:
        """The ranks in words."""
        return on_ranks(self.ranks)

    @cached_property
    def words(self) -> Relation:
        """What both tensors, whole, have to do with each other."""
        fit = self.tensor.fit
        return NO_RELATION if fit is None else how(fit.left, fit.right, self.tensor.apart)


def evidence_of(measured: MeasuredTensor, allowed: float, **more: Any) -> dict[str, Any]:
    """What was measured: both tensors whole, how far each rank's share is apart, and how they lay on the ranks."""
    fit = measured.fit
    if fit is None:
        return more
    apart_of = apart_by_rank(fit.left, fit.right)
    wrong = at_fault(measured, allowed)
    shown = next((part for part in _copies(fit.left) if wrong and wrong[0] in part.ranks), fit.left)
    return {
        **more,
        "relative_difference": measured.apart,
        "explained": allowed,
        "candidate": {key: value for key, value in shown.described().items() if key in _KEYS},
        "reference": {key: value for key, value in fit.right.described().items() if key in _KEYS},
        "ranks_at_fault": wrong,
        "apart_by_rank": [said("distance-on-rank", rank, apart) for rank, apart in list(apart_of.items())[:_MOST_NAMED]]
        if len(fit.left.ranks) > 1
        else None,
        "compared_by": {"values": "values put together", "mean": "the mean alone"}.get(fit.how, "statistics"),
    }


def on_ranks(ranks: Sequence[Rank]) -> str:
    """`` on rank 1``; nothing for no ranks."""
    if not ranks:
        return ""
    shown = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return said("on-rank", shown) if len(ranks) == 1 else said("on-ranks", shown)


def copies_in_words(block: TensorBlock) -> str:
    """Who has copies of a tensor: ``ranks 0, 1``, or ``ranks 0, 1 as on 2, 3`` where each copy is in parts."""
    copies = [part.ranks for part in block.parts] if block.kind == "replicate" else [block.ranks]
    if all(len(ranks) == 1 for ranks in copies):
        copies = [tuple(rank for ranks in copies for rank in ranks)]
    return said("rank-numbers", joined(" as on ", [listed(ranks, _MOST_NAMED) for ranks in copies]))


def doubled(measured: MeasuredTensor) -> tuple[Rank, Rank] | None:
    """A rank that holds the part of another one, where the reference's parts are all different."""
    if measured.fit is None:
        return None
    doubled_ranks = same_parts(measured.fit.left)
    return doubled_ranks[0] if doubled_ranks and not same_parts(measured.fit.right) else None


def are_terms(measured: MeasuredTensor, pair: RecordPair, allowed: float) -> str:
    """How copies that differ become the tensor of the reference: ``sum`` or ``mean``, if they do."""
    fit = measured.fit
    if fit is None:
        return ""
    copies = _copies(fit.left)
    if len(copies) < 2:
        return ""
    fitting = []
    for placement in (Placement("sum"), Placement("mean")):
        total = combine(copies, placement)
        assert total is not None
        apart, how_known = distance(total, fit.right)
        if how_known and apart <= allowed:
            fitting.append(placement.kind)
    if fitting:
        # A mean next to nothing is that of the sum, too: then the statistics do not say.
        return fitting[0] if len(fitting) == 1 else ""
    bias = next(
        (parameter for parameter in pair.parameters if parameter.slot.endswith(".bias") and parameter.fit is not None),
        None,
    )
    total = combine(copies, Placement("sum"))
    assert total is not None
    if bias is not None and bias.fit is not None:
        # Each rank has added the bias to its own term.
        values, whole, wanted = bias.fit.right.values(), total.values(), fit.right.values()
        if values is not None and whole is not None and wanted is not None:
            import numpy as np

            once = whole - (len(copies) - 1) * values
            size = float(np.linalg.norm(wanted))
            if size and float(np.linalg.norm(once - wanted)) <= allowed * size:
                return "sum"
        means = (bias.fit.right.numbers[2], total.numbers[2], fit.right.numbers[2], fit.right.numbers[3])
        if values is None and None not in means:
            bias_mean, whole_mean, wanted_mean, norm = (mean or 0.0 for mean in means)
            once_mean = whole_mean - (len(copies) - 1) * bias_mean
            if abs(once_mean - wanted_mean) <= allowed * norm / max(fit.right.size, 1) ** 0.5:
                return "sum"
    return ""


def _copies(block: TensorBlock) -> list[TensorBlock]:
    """The copies of the first tensor in a block that is there several times and not the same."""
    if block.kind == "replicate":
        return list(block.parts)
    return []


def collectives_in(event: Event) -> list[str]:
    """The communications in a pass of a module, not those of modules inside it."""
    return [child.name for child in event.children if child.is_collective and child.direction == event.direction]


def received_by(side: LayoutSide, pair: RecordPair, slot: str) -> str | None:
    """The communication that brought what goes into a module, where one did: it comes from another rank."""
    for rank, events in side.records.get(pair.place, {}).items():
        marks = {fingerprint(leaf) for event in events for name, leaf in event.inputs() if name == slot} - {None}
        for timeline in side.timelines[rank]:
            if timeline.is_collective and any(fingerprint(leaf) in marks for _, leaf in timeline.outputs()):
                return timeline.name
    return None
