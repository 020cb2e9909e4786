"""The verdict on one call that was run by a control as well: errors that the control has, too, are allowed.

It is that of the rows of ``api_precision_compare``, so what people are told, the exit status and those files agree.
"""

from __future__ import annotations

from dataclasses import replace

from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.job import Answer
from msprobe.precheck.precision_compare import compare_row, results_of
from msprobe.precheck.standards import PROFILES


def beside_control(answer: Answer, standard: str) -> Answer:
    """The answer with the statuses of three parties; ``details`` are cut to name, status and reason of each row.

    ``worst`` is the largest ratio of an error to the control's, where a standard of ratios says it.
    """
    controls = {row[0]: _cells(row) for row in answer.control}
    rows = [compare_row(_cells(row), controls.get(row[0]), PROFILES[standard]) for row in answer.details]
    if not rows:
        return answer
    ratio = max((row.largest_ratio for row in rows if row.status == "error"), default=0.0)
    return replace(
        answer,
        result=results_of(rows)[0],
        details=[[row.name, row.status, row.message if row.status == "SKIP" else row.reason] for row in rows],
        worst=ratio or answer.worst,
    )


def _cells(row: list[str]) -> dict[str, str]:
    return dict(zip(DETAILS_HEADER, row, strict=False))
