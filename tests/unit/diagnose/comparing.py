"""Compare two small trainings, and say in short what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unit.diagnose.training import Plan, train

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Finding, Verdict
from msprobe.report.verdict_file import verdict_bytes

Plans = Plan | Sequence[Plan]


def compare(folder: Path, candidate: Plans, reference: Plans | None = None, **more: Any) -> Verdict:
    """The verdict of two trainings, each with one plan for each rank; the reference has nothing planted."""
    one = train(folder / "candidate", *_each(candidate))
    other = train(folder / "reference", *_each(Plan() if reference is None else reference))
    verdict = compare_runs(one, other, **more)
    json.loads(verdict_bytes(verdict), parse_constant=_refuse)
    return verdict


def told(verdict: Verdict) -> list[tuple[str, str | None]]:
    """Kind and entry of all findings, in order."""
    return [(finding.kind, finding.entry) for finding in verdict.findings]


def first(verdict: Verdict, status: str = "diverged") -> Finding:
    """The first finding of a verdict that has this status, and no finding is harmless unless all are."""
    assert verdict.status == status, told(verdict)
    assert verdict.findings
    assert {finding.harmless for finding in verdict.findings} == {status == "harmless"}
    return verdict.findings[0]


def agrees(verdict: Verdict) -> bool:
    """True if a verdict says that nothing differs."""
    return (verdict.status, verdict.findings, verdict.exit_code) == ("agree", (), 0)


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    """For :attr:`Plan.edit`: change the records in place."""

    def edit(data: Any) -> Any:
        change(data)
        return data

    return edit


def _each(plans: Plans) -> Sequence[Plan]:
    return (plans,) if isinstance(plans, Plan) else plans


def _refuse(word: str) -> Any:
    raise AssertionError(f"verdict.json holds {word}")
