"""What a verdict or a check has looked at, and what of the dumps it has not, as a :class:`Coverage`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msprobe.coverage import Coverage, NotRead
from msprobe.messages import Wording, said


def not_read(texts: Iterable[str]) -> tuple[NotRead, ...]:
    """What notes on unread parts say: ``step 1, rank 0 cannot be read: WHY``, ``step 1: WHY``."""
    return tuple(map(_not_read, texts))


def _not_read(text: str) -> NotRead:
    if isinstance(text, Wording) and len(text.values) == 2:
        what, why = text.values
        if f"{what}: {why}" == text:
            return NotRead(what, why)
    what, _, why = text.partition(": ")
    return NotRead(what, why)


def comparison_coverage(summary: Mapping[str, Any], notes: Sequence[str]) -> Coverage:
    """What a comparison of two dumps has compared, by its summary; its first notes are the unread parts."""
    count = summary.get("unread")
    missing = list(not_read(notes[: count if isinstance(count, int) else 0]))
    files = summary.get("unread_files")
    if files:
        missing.append(NotRead(_count(files, "one-tensor-file", "so-many-tensor-files"), said("no-files-read")))
    left_out = summary.get("not_compared")
    if isinstance(left_out, dict):
        missing.append(NotRead(said("ranks-of-steps", left_out["parts"], left_out["of_parts"]), said("see-the-notes")))
    for key, *words in (
        ("steps_of_one_side", "one-step", "so-many-steps"),
        ("ranks_of_one_side", "one-rank", "so-many-ranks"),
        ("parts_of_one_side", "one-rank-of-steps", "so-many-ranks-of-steps"),
    ):
        if summary.get(key):
            missing.append(NotRead(_count(summary[key], *words), said("gaps-one-side")))
    if summary.get("interrupted"):
        missing.append(NotRead(said("behind-interruption"), said("was-not-recorded")))
    little = summary.get("little_in_common")
    if isinstance(little, dict):
        missing.append(
            NotRead(said("calls-of-calls", little["of"] - little["pairs"], little["of"]), said("none-answers-to-them"))
        )
    read = {key: summary[name] for key, name in _READ.items() if isinstance(summary.get(name), int)}
    return Coverage(read, tuple(missing))


_READ = {"steps": "steps_compared", "ranks": "ranks", "pairs": "pairs"}


def dump_coverage(read: Mapping[str, Any], unread: Sequence[str]) -> Coverage:
    """What was looked at in one dump; ``read``: numbers by words, others are passed over."""
    return Coverage({key: count for key, count in read.items() if type(count) is int}, not_read(unread))


def _count(count: int, single: str, many: str) -> str:
    return said(many, count) if count != 1 else said(single)
