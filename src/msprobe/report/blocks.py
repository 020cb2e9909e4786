"""A finding in full, in parts that every medium lays out in its own way: the terminal in columns, the page in cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msprobe.diagnose.findings import Finding
from msprobe.messages import Wording, said
from msprobe.report import phrases
from msprobe.report.advice import advice_on
from msprobe.report.phrases import EvidenceRow, clean
from msprobe.report.source_frames import Frame, callers_of, source_of

_CALLERS = 2


@dataclass(frozen=True)
class Field:
    """A word and what it is: ``where``, ``source``, ``to do``. ``code``: the line of source that is meant. A field
    without a word goes on with the one before.
    """

    label: str
    text: str
    code: str = ""


@dataclass(frozen=True)
class EvidenceTable:
    """What was measured on both sides."""

    rows: tuple[EvidenceRow, ...]


@dataclass(frozen=True)
class Paragraph:
    """A sentence."""

    text: str


Block = Field | EvidenceTable | Paragraph


def finding_blocks(finding: Finding) -> list[list[Block]]:
    """A finding of a comparison without its message, in groups: where it is, what was measured, what to do."""
    kind = Field("kind", Wording("{}: {}", clean(finding.kind), finding.meaning) + with_code(finding))
    rows = phrases.evidence_rows(finding)
    measured: list[Block] = [EvidenceTable(tuple(rows))] if rows else []
    measured += map(Paragraph, phrases.evidence_lines(finding))
    return groups([kind, *whereabouts(finding)], measured, advice_on(finding))


def groups(where: Sequence[Block], measured: Sequence[Block], advice: str) -> list[list[Block]]:
    """Those of them that say anything."""
    every: list[list[Block]] = [list(where), list(measured), [Field("to do", advice)] if advice else []]
    return [group for group in every if group]


def with_code(finding: Finding) -> str:
    """`` [D204]``: the code of a finding, which ``msprobe explain`` takes; empty for one of an older file."""
    return f" [{finding.code}]" if finding.code else ""


def whereabouts(finding: Finding) -> Iterator[Field]:
    """The call, its module, its line of source and who called it."""
    for label, text in phrases.whereabouts(finding):
        yield Field(label, text)
    source = source_of(finding)
    if source is not None:
        yield _frame("source", source)
    for number, frame in enumerate(callers_of(finding, _CALLERS)):
        yield _frame("" if number else "called by", frame)


def _frame(label: str, frame: Frame) -> Field:
    text = said("line-in-function", frame.place, frame.function) if frame.function else frame.place
    return Field(label, text, frame.code)
