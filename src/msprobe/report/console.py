"""A verdict for the terminal: plain lines that read well without colour and in 80 columns."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msprobe.diagnose.findings import Finding, Verdict
from msprobe.foreign.console import discard, flush_output, harmless, say
from msprobe.messages import said, translated
from msprobe.messages.lines import columns, lines
from msprobe.report import phrases
from msprobe.report.blocks import Block, EvidenceTable, Field, finding_blocks
from msprobe.report.counts import counts
from msprobe.report.phrases import EvidenceRow, clean

#: What a line is; those who print decide how it looks. The text alone says everything.
Style = Literal["", "bad", "good", "heading", "strong", "dim"]

WIDTH = 80
_WIDEST = 110
_FURTHER = 5
_LONGEST_RANKS = 34
_LABEL = 11
_CELL = 24


@dataclass(frozen=True)
class Line:
    """One line of text."""

    text: str
    style: Style = ""


def verdict_lines(verdict: Verdict, written: Sequence[str] = (), width: int = WIDTH) -> list[Line]:
    """The whole verdict: headline, first finding in full, further ones in a line each, notes, counts, what to open.

    ``written`` names the files that hold more. Lines are at most ``width`` long, paths and names excepted.
    """
    return list(_verdict(verdict, written, width))


def verdict_text(verdict: Verdict, written: Sequence[str] = (), width: int = WIDTH) -> str:
    """The same as one text."""
    return "".join(f"{line.text}\n" for line in verdict_lines(verdict, written, width))


def finding_lines(finding: Finding, width: int = WIDTH) -> list[Line]:
    """One finding in full."""
    return list(_finding(finding, width))


def _verdict(verdict: Verdict, written: Sequence[str], width: int) -> Iterator[Line]:
    yield Line(translated(phrases.headline(verdict)), "bad" if verdict.exit_code else "good")
    yield Line(f"  {translated('candidate')}  {clean(verdict.candidate)}", "dim")
    yield Line(f"  {translated('reference')}  {clean(verdict.reference)}", "dim")
    for number, text in enumerate(phrases.settings_apart(verdict)):
        yield from labelled("" if number else "settings", text, width)
    findings = phrases.leading(verdict)
    if findings:
        if verdict.status in ("agree", "incomparable"):
            yield from _further(verdict, findings, 1, width, mixed=False)
        else:
            yield Line("")
            number = _numbers(verdict)[id(findings[0])]
            if number > 1:  # harmless ones stand before it there
                yield Line("  " + translated(said("finding-of-verdict", number)), "dim")
            yield from _finding(findings[0], width)
            follows = "further-stand-alone" if "lockstep" in verdict.summary else "further-may-follow"
            yield from _further(verdict, findings[1:], 2, width, verdict.status == "diverged", follows)
    yield from section("Notes", phrases.further_notes(verdict), width)
    yield from section("Compared", counts(verdict), width)
    yield from section("Open" if written else "", written, width)


def finding_in_lines(message: str, blocks: Sequence[Sequence[Block]], width: int) -> Iterator[Line]:
    """A finding in full: its message, and what is said of it below."""
    for line in wrapped(translated(clean(message)), "  ", width, hang=""):
        yield Line(line.text, "strong")
    for group in blocks:
        yield Line("")
        for block in group:
            if isinstance(block, Field):
                yield from labelled(block.label, block.text, width)
                if block.code:
                    yield from code_lines(block.code, width)
            elif isinstance(block, EvidenceTable):
                yield from _table(block.rows, width)
            else:
                yield from wrapped(translated(block.text), "  ", width)


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    yield from finding_in_lines(finding.message, finding_blocks(finding), width)
    if finding.ranks:
        on_ranks = phrases.Alike(finding, ranks=finding.ranks).on_ranks
        yield from wrapped(translated(said("finding-on", on_ranks)), "  ", width)


def _numbers(verdict: Verdict) -> dict[int, int]:
    """Of each finding, by its id, the number by which ``--finding`` takes it."""
    return {id(finding): number for number, finding in enumerate(verdict.findings, 1)}


def _further(
    verdict: Verdict, findings: Sequence[Finding], first: int, width: int, mixed: bool, follows: str = ""
) -> Iterator[Line]:
    """Each by its number in ``verdict.json``, by which other commands take it."""
    numbers = _numbers(verdict)
    groups = phrases.alike(findings)
    if not groups:
        return
    several = len({finding.rank for finding in findings}) > 1
    # Of a step beyond the last in common there is nothing but its number to give, which its words have.
    stepped = len({finding.step for finding in findings if finding.kind != "step_count"}) > 1
    yield Line("")
    yield Line(translated(said(follows) if first > 1 else "Findings"), "heading")
    for group in groups[:_FURTHER]:
        finding = group.first
        harmless = translated(" (harmless)") if mixed and finding.harmless else ""
        head = f"  {numbers[id(finding)]}. {clean(finding.kind)}{harmless}: "
        tail = translated(said("alike", "", group.count)) if group.count > max(1, len(group.ranks)) else ""
        if stepped and finding.step is not None:
            tail += f" [step {finding.step}]"
        if group.on_ranks:
            ranks = translated(group.on_ranks)
            tail += f" [{ranks if len(ranks) <= _LONGEST_RANKS else ranks[: _LONGEST_RANKS - 3] + '...'}]"
        elif several and isinstance(finding.rank, int):
            tail += f" [rank {finding.rank}]"
        yield Line(f"{head}{phrases.brief(finding, width - len(head) - len(tail))}{tail}")
    kinds = [group.first for group in groups[_FURTHER:]]
    if kinds:
        count = sum(finding.harmless for finding in kinds) if mixed else 0
        tail = said("harmless-of-them", count) if count else ""
        more = said("further-kinds", len(kinds), tail, phrases.kinds_in_words(kinds))
        yield Line(f"  {translated(more)}"[:width], "dim")


def section(title: str, texts: Sequence[str], width: int) -> Iterator[Line]:
    """A heading and what stands below it; nothing if there is nothing."""
    if not texts:
        return
    yield Line("")
    yield Line(translated(title), "heading")
    for text in texts:
        yield from wrapped(translated(clean(text)), "  ", width)


def labelled(label: str, text: str, width: int) -> Iterator[Line]:
    """A word at the left and a text beside it."""
    indent = " " * (_LABEL + 2)
    text = translated(text)
    rows = lines(text, max(width - len(indent), 20)) or [""]
    yield Line(f"  {padded(translated(label), _LABEL)}{rows[0]}".rstrip())
    for line in rows[1:]:
        yield Line(f"{indent}{line}")


def code_lines(code: str, width: int) -> Iterator[Line]:
    """A line of source, below what is beside a label."""
    for line in wrapped(code, " " * (_LABEL + 6), width):
        yield Line(line.text, "dim")


def wrapped(text: str, indent: str, width: int, hang: str = "  ") -> Iterator[Line]:
    """A text in lines of at most ``width``."""
    for line in lines(text, width, indent, indent + hang):
        yield Line(line)


def _table(rows: Sequence[EvidenceRow], width: int) -> Iterator[Line]:
    label = min(max(len(row.label) for row in rows), 24) + 2
    cell = max(_CELL, (width - 2 - label) // 2 - 2)
    sides = translated("candidate"), translated("reference")
    yield Line(f"  {'':<{label}}{padded(sides[0], cell + 2)}{sides[1]}", "heading")
    for row in rows:
        if len(row.candidate) <= cell and len(row.reference) <= cell:
            yield Line(f"  {padded(translated(row.label), label)}{row.candidate:<{cell + 2}}{row.reference}".rstrip())
        else:
            yield Line(f"  {translated(row.label)}")
            for side, text in zip(sides, (row.candidate, row.reference), strict=True):
                yield from wrapped(f"{side}  {text}", "    ", width)


def padded(text: str, width: int) -> str:
    """A text with spaces behind it, up to so many columns; letters of Chinese take two."""
    return text + " " * (width - columns(text))


def print_lines(render: Callable[[int], Iterable[Line]]) -> None:
    """Print lines on stdout, in colour and as wide as the terminal if it is one. ``render``: the lines for a width.
    Where nobody reads them any more (``| head``) the rest is left out: the caller has found what it found.
    """
    try:
        _print_lines(render)
        flush_output()
    except BrokenPipeError:
        discard(sys.stdout)


def _width(terminal: bool) -> int:
    """As wide as the user says (COLUMNS); else as the terminal, up to what reads well; else 80."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked):
        return max(int(asked), 40)
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, 40), _WIDEST) if terminal else WIDTH


def _print_lines(render: Callable[[int], Iterable[Line]]) -> None:
    terminal = sys.stdout.isatty()
    width = _width(terminal)
    if terminal:
        from rich.console import Console
        from rich.text import Text

        styles = {"bad": "bold red", "good": "bold green", "heading": "bold", "strong": "bold", "dim": "dim", "": ""}
        console = Console(highlight=False, soft_wrap=True)
        for line in render(width):
            console.print(Text(harmless(line.text), styles[line.style]))
        return
    for line in render(width):
        say(line.text)
