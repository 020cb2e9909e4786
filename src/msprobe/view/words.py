"""Verdicts and checks as the page shows them, in the words of the console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.findings import Finding, Verdict
from msprobe.report import check_text, console, phrases
from msprobe.report.counts import counts
from msprobe.report.phrases import clean

if TYPE_CHECKING:
    from msprobe.diagnose.check import CheckResult
    from msprobe.report.console import Line

#: Lines of a finding are at most so long, as on a wide terminal.
WIDTH = 100
#: Further findings are counted, not told: nobody reads them.
MOST_FINDINGS = 500

Places = Callable[[Finding], int | None]


def verdict_in_words(verdict: Verdict, place_of: Places) -> dict[str, Any]:
    """The verdict of a comparison. ``place_of`` leads from a finding to the number of its step and rank."""
    findings = phrases.leading(verdict)
    # As the console groups them: the first by itself, what is alike among the others once.
    groups = [(one, 1) for one in findings[:1]] + phrases.alike(findings[1:])
    return {
        "status": verdict.status,
        "headline": phrases.headline(verdict),
        "exit_code": verdict.exit_code,
        "notes": [clean(note) for note in (*phrases.settings_apart(verdict), *phrases.further_notes(verdict))],
        "compared": counts(verdict),
        "findings": _findings(groups, console.finding_lines, place_of),
    }


def check_in_words(result: CheckResult, place_of: Places) -> dict[str, Any]:
    """What the checks of a single run found."""
    return {
        "status": result.status,
        "headline": check_text.check_headline(result),
        "exit_code": result.exit_code,
        "notes": [clean(note) for note in (*result.unread, *result.notes)],
        "compared": check_text.counts(result),
        "findings": _findings([(one, 1) for one in result.findings], check_text.finding_lines, place_of),
    }


def without_name(rank: int | str | None) -> int | str | None:
    """A rank as the page names it: the only rank of a run, whose folder is called ``rank``, has no name."""
    return None if rank == "rank" else rank


def _findings(
    groups: Sequence[tuple[Finding, int]], lines_of: Callable[[Finding, int], list[Line]], place_of: Places
) -> list[dict[str, Any]]:
    return [_finding(one, count, lines_of(one, WIDTH), place_of(one)) for one, count in groups[:MOST_FINDINGS]]


def _finding(finding: Finding, count: int, lines: Sequence[Line], place: int | None) -> dict[str, Any]:
    texts = [line.text for line in lines]
    # The message is the first paragraph.
    rest = texts[texts.index("") + 1 :] if "" in texts else []
    source = phrases.source_of(finding)
    of_reference = finding.evidence.get("side") == "reference"
    return {
        "title": f"{clean(finding.message)} ({count} alike)" if count > 1 else clean(finding.message),
        "lines": rest,
        "kind": clean(finding.kind),
        "harmless": finding.harmless,
        "name": None if of_reference else finding.entry,
        "twin": finding.entry if of_reference else None,
        "step": finding.step,
        "rank": without_name(finding.rank),
        "place": place,
        "reason": phrases.place(finding),
        "source": [f"{frame.place} {frame.code}".rstrip() for frame in (source,) if frame is not None],
    }
