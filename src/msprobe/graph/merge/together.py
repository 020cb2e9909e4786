"""Ranks of one parallel training as one graph for each copy of the model."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.errors import InvalidInputError
from msprobe.graph.folders import DumpFolders
from msprobe.graph.merge.groups import pipeline_groups, tensor_groups
from msprobe.graph.merge.layout import ParallelLayout
from msprobe.graph.merge.pipeline import merge_stages
from msprobe.graph.merge.tensor_parallel import merge_slices
from msprobe.graph.side import GraphOfSide
from msprobe.messages import said


def check_ranks(layout: ParallelLayout, folders: DumpFolders, field: str) -> None:
    """Raise InvalidInputError unless each step has the ranks that the layout says."""
    for step in dict.fromkeys(rank.step for rank in folders.ranks):
        ranks = sorted(rank.rank for rank in folders.ranks if rank.step == step)
        where = f'"{folders.path}"' + ("" if step is None else f", step {step}")
        if len(ranks) != layout.rank_size:
            raise InvalidInputError(said("rank-size-wrong", field, layout.rank_size, len(ranks), where))
        if ranks != list(range(layout.rank_size)):
            named = ", ".join(map(str, ranks[:8]))
            raise InvalidInputError(said("ranks-not-numbered", field, where, named))


def merge_ranks(sides: Sequence[GraphOfSide], layout: ParallelLayout) -> list[GraphOfSide]:
    """Merge the ranks of one step: first those of tensor parallel groups, then the stages of pipelines.

    Raises InvalidInputError for dumps that hold no statistics.
    """
    wrong = sorted({side.task for side in sides} - {"statistics"})
    if wrong:
        raise InvalidInputError(said("merge-needs-statistics", ", ".join(wrong)))
    by_rank = {side.rank: side for side in sides}
    pipelines = pipeline_groups(by_rank, layout)
    slices = {group[0]: group for group in tensor_groups(by_rank, layout)}
    merged = []
    for group in pipelines:
        # The first rank of a tensor parallel group stands for it.
        stages = [slices[rank] for rank in group if rank in slices]
        if len(stages) == len(group):
            sides_by_stage = [[by_rank[rank] for rank in ranks] for ranks in stages]
            whole = [merge_slices(sides) for sides in sides_by_stage]
            merged.append(merge_stages(whole, [side for sides in sides_by_stage for side in sides]))
    return merged
