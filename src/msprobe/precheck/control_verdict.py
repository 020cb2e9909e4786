"""The verdict on one call beside a control: errors that the control has, too, are allowed.

The control is an executor that runs each call as well, or the details file of a check on another machine. The verdict
is that of the rows of ``api_precision_compare``, so what people read, the exit status and those files agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.precheck import precision_compare
from msprobe.precheck.columns import BLANK, DETAILS_HEADER, STATUS
from msprobe.precheck.details_table import DetailsTable
from msprobe.precheck.executors import is_details_file
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.precision_compare import ARGUMENTS, compare_row, results_of
from msprobe.precheck.standards import PROFILES
from msprobe.precheck.writer import CheckFiles, call_of

_SEED = DETAILS_HEADER.index("Seed")
_FIRST_CALLS = 20


class Control:
    """The control of one check, as the task names it. ``made``: arguments are made from the task's seed.

    Raises PathError or InvalidInputError for a details file that is not one of the same calls.
    """

    def __init__(self, task: Task, made: bool) -> None:
        self._task = task
        self.name = task.control_name
        self._table = DetailsTable(task.control, "--control") if is_details_file(task.control) else None
        if self._table is None:
            return
        self._table.demand_standard(PROFILES[task.standard])
        seeds = {row.get(DETAILS_HEADER[_SEED], "").strip() for row in self._table.rows} - {""}
        if made and seeds - {str(task.seed)}:
            raise InvalidInputError(said("control-seed-differs", task.control, ", ".join(sorted(seeds)), task.seed))

    def __bool__(self) -> bool:
        return bool(self.name)

    @property
    def runs(self) -> bool:
        """True for an executor, whose rows are a file of the check."""
        return bool(self.name) and self._table is None

    def demand_calls(self, keys: Collection[str], arguments_of: Callable[[str], str] = lambda key: "") -> None:
        """Raises InvalidInputError for a file with rows of none of these calls, with some of them twice, or, as the
        first of them show, of a call with other arguments. ``arguments_of``: what distinguishes those of a call from
        others.
        """
        if self._table is None:
            return
        shared = {name for name in self._table.by_name if call_of(name) in keys}
        if not shared:
            raise InvalidInputError(said("control-without-calls", self._task.control))
        self._table.demand_single(shared)
        recorded = {call_of(name): row.get(ARGUMENTS, "").strip() for name, row in self._table.by_name.items()}
        known = [key for key in keys if recorded.get(key)][:_FIRST_CALLS]
        if known and not any(arguments_of(key) in ("", recorded[key]) for key in known):
            raise InvalidInputError(said("control-of-different-dump", self._task.control))

    def judge(self, answer: Answer) -> Answer:
        """The answer beside this control; as it is without one."""
        if not self:
            return answer
        return beside_control(answer, self._task.standard, None if self._table is None else self._table.by_name)

    def compare(self, files: CheckFiles, folder: Path) -> tuple[Path, ...]:
        """Write the verdict of three parties; gives the paths of its files, none without a control."""
        if not self:
            return ()
        other = files.control if self._table is None else self._table.path
        rows = precision_compare.judged(files.details, other, self._task.standard, same_arguments=True)
        return precision_compare.write(rows, folder, files.stamp)

    def settled(self, answer: Answer) -> Answer:
        """The answer as it is written: by a standard that judges beside the control alone, with that verdict."""
        if not self or not PROFILES[self._task.standard].by_control:
            return answer
        verdict = self.judge(answer)
        details = [[*row] for row in answer.details]
        for row, (_, status, reason, _) in zip(details, verdict.details, strict=True):
            row[STATUS], row[STATUS + 1] = status, reason or BLANK
        return replace(answer, result=verdict.result, details=details)


def beside_control(answer: Answer, standard: str, controls: Mapping[str, dict[str, str]] | None = None) -> Answer:
    """The answer with the statuses of three parties; ``details`` are cut to name, status, reason and largest ratio.

    ``controls``: the control's rows by name; those of the answer by default. ``worst`` is the largest ratio of an error
    to the control's, where a standard of ratios says it.
    """
    if controls is None:
        controls = {row[0]: _cells(row) for row in answer.control}
    profile = PROFILES[standard]
    rows = [compare_row(_cells(row), controls.get(row[0]), profile, same_arguments=True) for row in answer.details]
    if not rows:
        return answer
    ratio = max((row.largest_ratio for row in rows if row.status == "error"), default=0.0)
    return replace(
        answer,
        result=results_of(rows)[0],
        details=[
            [row.name, row.status, row.reason if row.status == "error" else row.message, str(row.largest_ratio)]
            for row in rows
        ],
        worst=ratio or answer.worst,
    )


def _cells(row: list[str]) -> dict[str, str]:
    return dict(zip(DETAILS_HEADER, row, strict=False))
