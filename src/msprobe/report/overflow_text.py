"""What ``msprobe nan_analyze`` found, for the terminal, in the voice of :mod:`msprobe.report.console`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from msprobe.diagnose.check.first_overflow import FirstNode, OverflowAnswer
from msprobe.diagnose.places import ranks_in_words
from msprobe.messages import joined, said, translated
from msprobe.report import phrases
from msprobe.report.check_text import HEADLINES, check_blocks
from msprobe.report.console import WIDTH, Line, finding_in_lines, section, wrapped
from msprobe.report.phrases import clean

_SHOWN_IN_FULL = 3
_SHOWN = 20


def overflow_lines(answer: OverflowAnswer, written: Sequence[str] = (), width: int = WIDTH) -> list[Line]:
    """The whole answer: where bad values come from first, how they reached other ranks, what was looked at."""
    return list(_answer(answer, written, width))


def _answer(answer: OverflowAnswer, written: Sequence[str], width: int) -> Iterator[Line]:
    where = translated(said("at-place", phrases.place(answer.nodes[0].finding))) if answer.nodes else ""
    readable = " IN WHAT COULD BE READ" if answer.unread and not answer.nodes else ""
    yield Line(f"{HEADLINES[answer.status]}{readable}{where}", "bad" if answer.nodes else "good")
    yield Line(f"  dump  {clean(answer.dump)}", "dim")
    yield from section("Not read", answer.unread, width)
    for node in answer.nodes[:_SHOWN_IN_FULL]:
        yield Line("")
        # What the blocks would say of other ranks stands below, of all of them.
        rest = {key: value for key, value in node.finding.evidence.items() if key not in ("reached", "first_bad")}
        yield from finding_in_lines(node.finding.message, check_blocks(replace(node.finding, evidence=rest)), width)
        yield from _spread(node, width)
    if len(answer.nodes) > 1:
        yield Line("")
        yield Line(translated(said("origins-apart")), "heading")
        for number, node in enumerate(answer.nodes[:_SHOWN], 1):
            text = f"{number}. {phrases.place(node.finding)}: {clean(node.finding.message)}"
            yield from wrapped(text, "  ", width)
        if len(answer.nodes) > _SHOWN:
            yield Line("  " + translated(said("more-lines", len(answer.nodes) - _SHOWN)), "dim")
    mismatch = [answer.mismatch] if answer.mismatch else []
    yield from section("Notes", [*answer.notes, *mismatch], width)
    ranks, steps = answer.ranks, answer.steps
    counts = (
        said("so-many-steps", steps) if steps > 1 else said("one-step"),
        said("so-many-ranks", ranks) if ranks > 1 else said("one-rank"),
        said("records-searched", answer.records),
    )
    counted = joined(", ", counts)
    yield from section("Searched", [counted], width)
    yield from section("Open", written, width)


def _spread(node: FirstNode, width: int) -> Iterator[Line]:
    if not node.arrivals:
        return
    yield Line("")
    yield Line(translated(said("how-it-spread")), "heading")
    arrivals_by_path: dict[tuple[str, str | None], list[int | str]] = {}
    for arrival in node.arrivals:
        arrivals_by_path.setdefault((arrival.through, arrival.first_bad), []).append(arrival.rank)
    for (through, first_bad), ranks in list(arrivals_by_path.items())[:_SHOWN]:
        then = said("first-to-compute-with-it", clean(first_bad)) if first_bad else ""
        yield from wrapped(
            translated(said("spread-to-rank", clean(ranks_in_words(ranks)), clean(through), then)), "  ", width
        )
    if len(arrivals_by_path) > _SHOWN:
        yield Line("  " + translated(said("more-ways", len(arrivals_by_path) - _SHOWN)), "dim")
