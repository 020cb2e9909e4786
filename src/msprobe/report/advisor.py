"""The advice that goes with a sheet: what the verdict on the same two dumps says, and the row that shows it.

Source of the form (three lines ``key: value``): mindstudio-probe 8.1.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from msprobe.compare.comparison import RowComparison
from msprobe.compare.mapping import Mappings
from msprobe.diagnose.findings import Finding, Verdict
from msprobe.diagnose.runs import compare_runs
from msprobe.messages import said, translated
from msprobe.report.advice import advice_on
from msprobe.report.phrases import clean, headline, leading

_MOST_NAMED = 5


def advice_text(comparison: RowComparison, mappings: Mappings | None = None) -> str:
    """The content of the advisor's file. ``mappings`` of functions and modules serve the verdict, too.

    Where there is no verdict (saved variables, dumps of which nothing answers to the other), the row is the first that
    differs. Raises the errors of :func:`msprobe.diagnose.compare_runs`.
    """
    verdict = None if comparison.parts[0].kind == "debug" else _verdict_on(comparison, mappings)
    if verdict is None or verdict.status == "incomparable":
        differing = np.flatnonzero(comparison.failing)
        row = int(differing[0]) if len(differing) else None
    else:
        row = _row_of(comparison, leading(verdict)[0]) if verdict.findings else None
    advice = "\n".join([*_sentences(verdict, row), *map(translated, unmatched_lines(comparison))])
    line, name = ("NA", "NA") if row is None else (str(row), comparison.candidate.name[row])
    return f"Line: {line}\nSuspect Nodes: {name}\nExpert Advice: {advice}\n"


def unmatched_lines(comparison: RowComparison) -> list[str]:
    """What one side alone has, in a sentence for each side; empty if all rows have a partner."""
    lines: list[str] = []
    for side, other, rows, unmatched in (
        ("side-target", "side-bench", comparison.candidate, (~comparison.pairing.matched).nonzero()[0]),
        ("side-bench", "side-target", comparison.reference, comparison.pairing.reference_only),
    ):
        if not len(unmatched):
            continue
        names = list(dict.fromkeys(rows.entries[number] for number in rows.entry[unmatched].tolist()))
        shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        lines.append(said("rows-without-partner", len(unmatched), said(side), said(other), shown))
    return lines


def _verdict_on(comparison: RowComparison, mappings: Mappings | None) -> Verdict:
    known = replace(mappings, data=None) if mappings is not None else None
    ours, theirs = (part.folder for part in comparison.parts)
    return compare_runs(ours, theirs, mappings=known or None)


def _sentences(verdict: Verdict | None, row: int | None) -> list[str]:
    if verdict is None:
        differs = said("no-saved-value-differs") if row is None else said("first-saved-value-that-differs")
        return [translated(differs)]
    lines = [translated(headline(verdict))]
    if verdict.findings:
        first = leading(verdict)[0]
        lines += [translated(clean(first.message)), translated(advice_on(first))]
    return [line for line in lines if line]


def _row_of(comparison: RowComparison, finding: Finding) -> int | None:
    """The row that a finding is about: of its call, that of its slot, else the first that differs, else the first."""
    ours = comparison.candidate
    if finding.entry not in ours.entries:
        return None
    rows = np.flatnonzero(ours.entry == ours.entries.index(finding.entry))
    if not len(rows):
        return None
    arguments = finding.evidence.get("arguments") or [finding.evidence]
    slots = {str(argument.get("slot")) for argument in arguments if isinstance(argument, dict)}
    named = [row for row in rows.tolist() if ours.slot[row] in slots]
    return int(next(iter([*named, *rows[comparison.failing[rows]].tolist(), *rows.tolist()])))
