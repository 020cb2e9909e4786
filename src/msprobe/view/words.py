"""Verdicts and checks as the page shows them: in the words of the console, and in Chinese."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msprobe.diagnose.findings import Finding, Verdict
from msprobe.messages import Said, Wording, in_both, said
from msprobe.report import check_text, phrases, source_frames
from msprobe.report.blocks import Block, EvidenceTable, Field, finding_blocks
from msprobe.report.counts import counts
from msprobe.report.phrases import clean
from msprobe.view import protocol

if TYPE_CHECKING:
    from msprobe.diagnose.check import CheckResult

#: Further findings are counted, not reported: nobody reads them.
MOST_FINDINGS = 500

Places = Callable[[Finding], int | None]


def verdict_in_words(verdict: Verdict, place_of: Places) -> protocol.VerdictAnswer:
    """The verdict of a comparison. ``place_of`` leads from a finding to the number of its step and rank."""
    findings = phrases.leading(verdict)
    groups = phrases.grouped(findings)
    return {
        "status": verdict.status,
        "headline": in_both(phrases.headline(verdict)),
        "exit_code": verdict.exit_code,
        "coverage": verdict.coverage.as_json(),
        "notes": _all([*phrases.settings_apart(verdict), *phrases.further_notes(verdict)]),
        "compared": _all(counts(verdict)),
        "findings": _findings(groups, finding_blocks, place_of),
    }


def check_in_words(result: CheckResult, place_of: Places) -> protocol.VerdictAnswer:
    """What the checks of a single run found."""
    return {
        "status": result.status,
        "headline": in_both(check_text.check_headline(result)),
        "exit_code": result.exit_code,
        "coverage": result.coverage.as_json(),
        "notes": _all([*result.unread, *result.notes]),
        "compared": _all(check_text.counts(result)),
        "findings": _findings(
            [phrases.Alike(finding) for finding in result.findings], check_text.check_blocks, place_of
        ),
    }


def without_name(rank: protocol.Rank) -> protocol.Rank:
    """A rank as the page names it: the only rank of a run, whose folder is called ``rank``, has no name."""
    return None if rank == "rank" else rank


def _findings(
    groups: Sequence[phrases.Alike],
    blocks_of: Callable[[Finding], Sequence[Sequence[Block]]],
    place_of: Places,
) -> list[protocol.FindingAnswer]:
    return [_finding(group, blocks_of(group.first), place_of(group.first)) for group in groups[:MOST_FINDINGS]]


def _finding(group: phrases.Alike, blocks: Sequence[Sequence[Block]], place: int | None) -> protocol.FindingAnswer:
    finding = group.first
    message = clean(finding.message)
    title = message
    if group.on_ranks:
        title = said("on-those-ranks", message, group.on_ranks)
    elif group.count > 1:
        title = said("alike", message, group.count)
    source = source_frames.source_of(finding)
    is_reference = finding.evidence.get("side") == "reference"
    return {
        "title": in_both(title),
        "blocks": [_block(block) for group in blocks for block in group],
        "kind": clean(finding.kind),
        "harmless": finding.harmless,
        "name": None if is_reference else finding.entry,
        "twin": finding.entry if is_reference else None,
        "step": finding.step,
        "rank": without_name(finding.rank),
        "place": place,
        "reason": in_both(phrases.place(finding)),
        "source": [f"{frame.place} {frame.code}".rstrip() for frame in (source,) if frame is not None],
    }


def _block(block: Block) -> protocol.Block:
    if isinstance(block, Field):
        return {"type": "field", "name": in_both(block.label), "text": in_both(block.text), "code": block.code}
    if isinstance(block, EvidenceTable):
        # Values are those of the program: one that is a single word, as "mean", is none of ours.
        rows = [(in_both(row.label), _value(row.candidate), _value(row.reference)) for row in block.rows]
        return {"type": "table", "rows": rows}
    return {"type": "text", "text": in_both(block.text)}


def _value(text: str) -> Said:
    return in_both(Wording("{}", text))


def _all(texts: Iterable[str]) -> list[Said]:
    return [in_both(clean(text)) for text in texts]
