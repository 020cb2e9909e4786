"""What two dumps let us compare: statistics, tensors, digests, or the structure alone."""

from __future__ import annotations

from typing import Literal

from msprobe.compare.frameworks import crosses
from msprobe.compare.problems import TaskMismatchError
from msprobe.graph.side import GraphOfSide
from msprobe.messages import said

#: The words are those of the graph files: ``all`` means tensors.
Mode = Literal["summary", "md5", "all", "structure"]


def mode_of(candidate: GraphOfSide, reference: GraphOfSide, mapped: bool) -> Mode:
    """How two sides are compared. Raises TaskMismatchError if they are of different kinds.

    ``mapped``: a layer mapping is given, without which dumps of different frameworks do not answer to each other.
    """
    kinds = [_kind(side) for side in (candidate, reference)]
    if kinds[0] != kinds[1]:
        raise TaskMismatchError(said("graph-tasks-differ", kinds[0], kinds[1]))
    frameworks = candidate.framework, reference.framework
    if None not in frameworks and not mapped and crosses(frameworks[0] or "pytorch", frameworks[1] or "pytorch"):
        raise TaskMismatchError(said("graph-frameworks-differ", frameworks[0], frameworks[1]))
    if candidate.task == "structure":
        return "structure"
    if candidate.task == "tensor":
        return "all"
    return "md5" if candidate.has_md5 else "summary"


def _kind(side: GraphOfSide) -> str:
    return f"{side.task} with md5" if side.has_md5 and side.task == "statistics" else side.task
