"""Ranks of one parallel training as one graph each copy of the model."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.graph.folders import DumpFolders
from msprobe.graph.merge.layout import Layout
from msprobe.graph.side import Side


def check_ranks(layout: Layout, folders: DumpFolders, field: str) -> None:
    """Raise InvalidInputError unless a step has as many ranks as the layout says."""
    for step in dict.fromkeys(rank.step for rank in folders.ranks):
        count = sum(rank.step == step for rank in folders.ranks)
        if count != layout.rank_size:
            where = f'"{folders.path}"' + ("" if step is None else f", step {step}")
            raise InvalidInputError(f"{field}: rank_size {layout.rank_size} but {count} rank folders in {where}.")


def merge_ranks(sides: Sequence[Side], layout: Layout) -> list[Side]:
    """Merge the ranks of one step: first those of tensor parallel groups, then the stages of pipelines."""
    raise NotAvailableError("ranks cannot be merged in this version; leave out --rank_size and parallel_merge.")
