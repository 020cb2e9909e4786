"""The console's summary of two packs: the answer, the parts, and what most likely explains a divergence."""

from __future__ import annotations

from msprobe.environment.configuration.comparison import ConfigurationComparison
from msprobe.environment.configuration.differences import ConfigurationFinding
from msprobe.foreign.letters import printable
from msprobe.messages import joined, said, translated
from msprobe.report.configuration.workbook import note_of

_SHOWN = 12


def headline(result: ConfigurationComparison) -> str:
    """The answer in one sentence."""
    errors = sum(finding.level == "error" for finding in result.findings)
    warnings = sum(finding.level == "warning" for finding in result.findings)
    counted = said("one-warning") if warnings == 1 else said("warnings", warnings)
    not_compared = result.coverage.sentence()
    if errors:
        answer = said("configurations-differ", said("one-error") if errors == 1 else said("errors", errors), counted)
    elif warnings:
        answer = said("no-decisive-difference", counted)
    else:
        answer = said("no-difference-in-compared")
    return joined(" ", filter(None, (answer, not_compared)))


def lines(result: ConfigurationComparison) -> list[str]:
    """All lines, clean of what could drive a terminal."""
    printed = [f"bench {result.bench}", f"cmp   {result.cmp}", "", headline(result), ""]
    width = max((len(part.name) for part in result.parts), default=0)
    printed += [
        f"  {part.name:<{width}}  {part.level:<7}  {translated(note_of(part))}".rstrip() for part in result.parts
    ]
    if result.findings:
        printed += ["", translated(said("most-likely-cause")) + ":"]
        printed += [f"  {number:>2}. {line_of(finding)}" for number, finding in enumerate(result.findings[:_SHOWN], 1)]
    if len(result.findings) > _SHOWN:
        printed.append("      " + said("more-in-findings-sheet", len(result.findings) - _SHOWN))
    if result.notes:
        printed.append("")
        printed += ["  " + said("note-before", note) for note in result.notes]
    return [printable(translated(line)) for line in printed]


def line_of(finding: ConfigurationFinding) -> str:
    """A finding in a line."""
    name, bench, cmp, why = map(translated, (finding.name, finding.bench, finding.cmp, finding.why))
    values = f": {bench or '-'} | {cmp or '-'}" if bench or cmp else ""
    return f"{finding.level:<7}  {finding.part}: {name}{values}{f'  ({why})' if why else ''}"
