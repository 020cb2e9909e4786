"""What a verdict or a check has looked at, and what of the dumps it has not, as a :class:`Coverage`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msprobe.coverage import Coverage, NotRead

_CANNOT = " cannot be read: "
_OF_ONE_SIDE = "one side alone has them"


def not_read(texts: Iterable[str]) -> tuple[NotRead, ...]:
    """What sentences on unread parts say: ``step 1, rank 0 cannot be read: WHY``, ``step 1: WHY``."""
    found = []
    for text in map(str, texts):
        what, cannot, why = text.partition(_CANNOT)
        if not cannot:
            what, _, why = text.partition(": ")
        found.append(NotRead(what, why))
    return tuple(found)


def comparison_coverage(summary: Mapping[str, Any], notes: Sequence[str]) -> Coverage:
    """What a comparison of two dumps has compared, by its summary; its first notes are the unread parts."""
    count = summary.get("unread")
    missing = list(not_read(notes[: count if isinstance(count, int) else 0]))
    files = summary.get("unread_files")
    if files:
        missing.append(NotRead(_count(files, "tensor file"), "cannot be read"))
    left_out = summary.get("not_compared")
    if isinstance(left_out, dict):
        missing.append(NotRead(f"{left_out['parts']} of {left_out['of_parts']} ranks of steps", "see the notes"))
    for key, word in (
        ("steps_of_one_side", "step"),
        ("ranks_of_one_side", "rank"),
        ("parts_of_one_side", "rank of steps"),
    ):
        if summary.get(key):
            missing.append(NotRead(_count(summary[key], word), _OF_ONE_SIDE))
    if summary.get("interrupted"):
        missing.append(NotRead("what came behind an interruption", "it was not recorded"))
    little = summary.get("little_in_common")
    if isinstance(little, dict):
        missing.append(NotRead(f"{little['of'] - little['pairs']} of {little['of']} calls", "none answers to them"))
    read = {key: summary[name] for key, name in _READ.items() if isinstance(summary.get(name), int)}
    return Coverage(read, tuple(missing))


_READ = {"steps": "steps_compared", "ranks": "ranks", "pairs": "pairs"}


def dump_coverage(read: Mapping[str, Any], unread: Sequence[str]) -> Coverage:
    """What was looked at in one dump; ``read``: numbers by words, others are passed over."""
    return Coverage({key: count for key, count in read.items() if type(count) is int}, not_read(unread))


def _count(count: int, word: str) -> str:
    head, of, tail = word.partition(" of ")
    return f"{count} {head}{'s' if count != 1 else ''}{of}{tail}"
