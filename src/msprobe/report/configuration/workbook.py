"""``result.xlsx``: the sheets of mindstudio-probe 8.1.1 with the levels of 26.2, and one with what matters first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msprobe.environment.configuration.comparison import ConfigurationComparison
from msprobe.environment.configuration.differences import DifferenceSheet
from msprobe.messages import said, translated
from msprobe.paths import StrPath
from msprobe.report.workbook import MOST_ROWS, PLAIN, RED, YELLOW, Cell, Sheet, write_workbook

SUMMARY = ("filename", "pass_check", "note")
FINDINGS = ("order", "level", "part", "what", "bench", "cmp", "why it matters")
_COLOURS = {"error": RED, "warning": YELLOW}


def write_result(path: StrPath, result: ConfigurationComparison) -> None:
    """Write the workbook. Raises PathError."""
    write_workbook(path, _sheets(result))


def _sheets(result: ConfigurationComparison) -> Iterator[Sheet]:
    rows = [(part.name, part.level, translated(note_of(part))) for part in result.parts]
    yield _sheet("summary", SUMMARY, rows, [_COLOURS.get(part.level, PLAIN) for part in result.parts])
    ranked = [
        (number, finding.level, finding.part, *map(translated, (finding.name, finding.bench, finding.cmp, finding.why)))
        for number, finding in enumerate(result.findings, 1)
    ]
    for part in result.parts:
        if not part.missing_in:
            yield from _split(part.name, part.header, part.rows, _colours(part))
    yield from _split("findings", FINDINGS, ranked, [_COLOURS.get(finding.level, PLAIN) for finding in result.findings])


def note_of(part: DifferenceSheet) -> str:
    """What the summary says of a part beside its level."""
    if part.missing_in:
        return said("missing-in-side", part.missing_in)
    if part.level == "pass":
        return said("rows-for-information", part.differing) if part.differing else ""
    if part.differing > 1:
        return said("rows-differ", part.differing)
    return said("one-row-differs") if part.differing else ""


def _colours(part: DifferenceSheet) -> list[int]:
    if part.header[-1] == "level":
        return [_COLOURS.get(row[-1], PLAIN) for row in part.rows]
    column = 6 if part.name == "random" else 3
    return [PLAIN if row[column] is True else RED for row in part.rows]


def _split(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]], colours: Sequence[int]) -> Iterator[Sheet]:
    if len(rows) <= MOST_ROWS:
        yield _sheet(name, header, rows, colours)
        return
    for number, start in enumerate(range(0, len(rows), MOST_ROWS)):
        end = start + MOST_ROWS
        yield _sheet(f"{name}_part_{number}", header, rows[start:end], colours[start:end])


def _sheet(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]], colours: Sequence[int]) -> Sheet:
    columns: list[list[Cell]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in header]
    return Sheet(name, header, [columns], len(rows), colours)
