"""What kind of comparison two dumps allow.

Source: the table of modes of mindstudio-probe 8.1.1.
"""

from __future__ import annotations

from typing import Literal

from msprobe.compare.problems import TaskMismatchError
from msprobe.compare.rows import Rows
from msprobe.store.part import DumpPart

Mode = Literal["tensor", "statistics", "md5"]

_COMPARABLE = ("tensor", "statistics")


def check_tasks(candidate: DumpPart, reference: DumpPart) -> str:
    """The task of both dumps. Raises TaskMismatchError if they differ or nothing can be compared."""
    tasks = []
    for part in (candidate, reference):
        task = part.header.get("task")
        if task is None:
            raise TaskMismatchError(f'"{part.path}": field "task" is missing; it says what kind of dump this is.')
        tasks.append(task)
    if tasks[0] != tasks[1]:
        raise TaskMismatchError(
            f'the dumps were made for different tasks: {tasks[0]!r} in "{candidate.path}", '
            f'{tasks[1]!r} in "{reference.path}"; dump both for the same task.'
        )
    if tasks[0] == "structure":
        raise TaskMismatchError(
            f'the task of "{candidate.path}" and "{reference.path}" is \'structure\': '
            "such dumps hold no values to compare; dump statistics or tensors."
        )
    if tasks[0] not in _COMPARABLE:
        raise TaskMismatchError(
            f'the task of "{candidate.path}" and "{reference.path}" is {tasks[0]!r}; '
            f"dumps of the tasks {' and '.join(_COMPARABLE)} can be compared."
        )
    return str(tasks[0])


def mode_of(task: str, candidate: Rows, reference: Rows, parts: tuple[DumpPart, DumpPart]) -> Mode:
    """The mode for dumps of one task. Raises TaskMismatchError if only one of them has digests."""
    if task == "tensor":
        return "tensor"
    if candidate.has_md5 == reference.has_md5:
        return "md5" if candidate.has_md5 else "statistics"
    with_md5, without = parts if candidate.has_md5 else parts[::-1]
    raise TaskMismatchError(
        f'"{with_md5.path}" was dumped with summary_mode md5 and "{without.path}" with statistics; '
        "dump both with the same summary_mode."
    )
