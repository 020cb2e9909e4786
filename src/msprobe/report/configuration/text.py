"""The console's summary of two packs: the answer, the parts, and what most likely explains a divergence."""

from __future__ import annotations

from msprobe.environment.configuration.comparison import Comparison
from msprobe.environment.configuration.differences import Finding, clean
from msprobe.report.configuration.workbook import note_of

_SHOWN = 12


def headline(result: Comparison) -> str:
    """The answer in one sentence."""
    errors = sum(one.level == "error" for one in result.findings)
    warnings = sum(one.level == "warning" for one in result.findings)
    not_compared = result.coverage.sentence()
    if errors:
        return f"The configurations differ: {_count(errors, 'error')}, {_count(warnings, 'warning')}. {not_compared}"
    if warnings:
        return f"No difference that must change the numbers; {_count(warnings, 'warning')}. {not_compared}"
    return f"No difference in what was compared. {not_compared}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def lines(result: Comparison) -> list[str]:
    """All lines, clean of what could drive a terminal."""
    found = [f"bench {result.bench}", f"cmp   {result.cmp}", "", headline(result), ""]
    width = max((len(part.name) for part in result.parts), default=0)
    found += [f"  {part.name:<{width}}  {part.level:<7}  {note_of(part)}".rstrip() for part in result.parts]
    if result.findings:
        found += ["", "What most likely explains a divergence, first:"]
        found += [f"  {number:>2}. {told(one)}" for number, one in enumerate(result.findings[:_SHOWN], 1)]
    if len(result.findings) > _SHOWN:
        found.append(f"      and {len(result.findings) - _SHOWN} more, see sheet findings")
    if result.notes:
        found.append("")
        found += [f"  note: {note}" for note in result.notes]
    return [clean(line) for line in found]


def told(one: Finding) -> str:
    """A finding in a line."""
    values = f": {one.bench or '-'} | {one.cmp or '-'}" if one.bench or one.cmp else ""
    why = f"  ({one.why})" if one.why else ""
    return f"{one.level:<7}  {one.part}: {one.name}{values}{why}"
