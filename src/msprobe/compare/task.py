"""What kind of comparison two dumps allow.

Source: the table of modes of mindstudio-probe 8.1.1.
"""

from __future__ import annotations

from typing import Literal

from msprobe.compare.problems import TaskMismatchError
from msprobe.compare.rows import Rows
from msprobe.messages import joined, said
from msprobe.store.part import DumpPart

Mode = Literal["tensor", "statistics", "md5"]

_COMPARABLE = ("tensor", "statistics")


def check_tasks(candidate: DumpPart, reference: DumpPart) -> str:
    """The task of both dumps. Raises TaskMismatchError if they differ or nothing can be compared."""
    tasks = []
    for part in (candidate, reference):
        task = part.header.get("task")
        if task is None:
            raise TaskMismatchError(said("task-missing", part.path))
        tasks.append(task)
    if tasks[0] != tasks[1]:
        raise TaskMismatchError(said("tasks-differ", tasks[0], candidate.path, tasks[1], reference.path))
    if tasks[0] == "structure":
        raise TaskMismatchError(said("task-structure-has-no-values", candidate.path, reference.path))
    if tasks[0] not in _COMPARABLE:
        raise TaskMismatchError(
            said("task-not-comparable", candidate.path, reference.path, tasks[0], joined(" and ", _COMPARABLE))
        )
    return str(tasks[0])


def mode_of(task: str, candidate: Rows, reference: Rows, parts: tuple[DumpPart, DumpPart]) -> Mode:
    """The mode for dumps of one task. Raises TaskMismatchError if only one of them has digests."""
    if task == "tensor":
        return "tensor"
    if candidate.has_md5 == reference.has_md5:
        return "md5" if candidate.has_md5 else "statistics"
    with_md5, without = parts if candidate.has_md5 else parts[::-1]
    raise TaskMismatchError(said("digests-on-one-side", with_md5.path, without.path))
