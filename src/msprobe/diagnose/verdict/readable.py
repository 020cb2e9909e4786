"""The verdict on what of two dumps can be read, where a part of one cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msprobe.diagnose.findings import Verdict
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import Wording
from msprobe.paths import StrPath
from msprobe.store.damage import broken_parts, lost_parts, missing_from_all, ranks_of_no_step
from msprobe.store.reader import Dump, open_dump


def readable_verdict(
    compare: Callable[[StrPath, StrPath], Verdict], candidate: StrPath, reference: StrPath
) -> tuple[Verdict, StrPath, StrPath]:
    """What ``compare`` says of two dumps, and the dumps without the parts that it could not read.

    These parts are reported in the notes, and counted in the summary (``unread``). Raises what ``compare`` raises if
    that is no fault of single parts, or nothing is left to compare.
    """
    first, other = open_dump(candidate), open_dump(reference)
    lost = {"candidate": _lost(first, other), "reference": _lost(other, first)}
    unread = [Wording("{}: {}", side, text) for side, texts in lost.items() for text in texts]
    try:
        verdict = compare(candidate, reference)
    except (InvalidInputError, PathError):
        # Looked for now only: it means to read all of both.
        broken = {side: broken_parts(dump) for side, dump in _sides(first, other)}
        first, other = first.without(broken["candidate"]), other.without(broken["reference"])
        if not any(broken.values()) or not first.steps or not other.steps:
            raise
        verdict = compare(first, other)
        unread += [Wording("{}: {}", side, text) for side, parts in broken.items() for text in parts.values()]
    if not unread:
        return verdict, candidate, reference
    summary = {**verdict.summary, "unread": len(unread)}
    return replace(verdict, notes=(*unread, *verdict.notes), summary=summary), first, other


def _lost(dump: Dump, other: Dump) -> list[str]:
    # Ranks that the other side has are compared with nothing, which is said where ranks are paired.
    there = {rank for step in other.steps for rank in other.ranks(step)}
    nowhere = [rank for rank in ranks_of_no_step(dump) if rank not in there]
    return [*lost_parts(dump), *([missing_from_all(nowhere)] if nowhere else [])]


def _sides(first: Dump, other: Dump) -> tuple[tuple[str, Dump], ...]:
    return ("candidate", first), ("reference", other)
