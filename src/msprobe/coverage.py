"""What a command has looked at, and what of its input it has not: one type and one sentence for all commands.

"No difference" and "no problem" are said of what was read. What was not read stands in the headline, with the reason,
and as ``coverage`` in JSON; where a command found nothing in an incomplete input its status is 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from msprobe.messages import Wording, joined, said
from msprobe.paths import StrPath, write_atomically

#: The status of a command that found nothing wrong in what it read, and did not read all of it.
INCOMPLETE_STATUS = 2
_SHOWN = 4
_LONGEST = 240


class NotReadJson(TypedDict):
    """A part that nobody looked at, as files say it."""

    what: str
    why: str


class CoverageJson(TypedDict):
    """What was looked at, as files say it; ``read`` has counts by word."""

    complete: bool
    read: dict[str, int]
    not_read: list[NotReadJson]


@dataclass(frozen=True)
class NotRead:
    """A part of the input that nobody looked at: which one, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"


@dataclass(frozen=True)
class Coverage:
    """What was read, as counts by word (``{"weights": 53}``), and what was not."""

    read: Mapping[str, int] = field(default_factory=dict)
    not_read: tuple[NotRead, ...] = ()

    @property
    def is_complete(self) -> bool:
        """True if nothing of the input was passed over."""
        return not self.not_read

    def sentence(self, verb: str = "compared") -> str:
        """``Not compared: WHAT (WHY); ...``, or an empty text where nothing was passed over."""
        if not self.not_read:
            return ""
        shown: list[str] = [_shortened(not_read) for not_read in self.not_read[:_SHOWN]]
        if len(self.not_read) > _SHOWN:
            shown.append(said("and-so-many-more", len(self.not_read) - _SHOWN))
        return said("not-done-with", said(f"done-{verb}"), joined("; ", shown))

    def status(self, has_findings: bool) -> int:
        """The exit status: 1 where something was found, 2 where nothing was and not all was read, else 0."""
        return 1 if has_findings else 0 if self.is_complete else INCOMPLETE_STATUS

    def as_json(self) -> CoverageJson:
        """For files."""
        return {
            "complete": self.is_complete,
            "read": dict(self.read),
            "not_read": [{"what": entry.what, "why": entry.why} for entry in self.not_read],
        }


def _shortened(entry: NotRead) -> str:
    return str(entry)[:_LONGEST] if len(str(entry)) > _LONGEST else Wording("{} ({})", entry.what, entry.why)


def coverage_from_json(content: Mapping[str, Any]) -> Coverage:
    """What :meth:`Coverage.as_json` was made of."""
    return Coverage(content["read"], tuple(NotRead(entry["what"], entry["why"]) for entry in content["not_read"]))


def together(parts: Iterable[Coverage]) -> Coverage:
    """Several coverages as one: counts are added up, and what was not read is named once."""
    read: dict[str, int] = {}
    not_read: dict[NotRead, None] = {}
    for part in parts:
        for word, count in part.read.items():
            read[word] = read.get(word, 0) + count
        not_read.update(dict.fromkeys(part.not_read))
    return Coverage(read, tuple(not_read))


def write(coverage: Coverage, path: StrPath) -> Path:
    """Write ``{"coverage": ...}`` to a file of its own, for commands whose results are tables. Raises PathError."""
    write_atomically(path, json.dumps({"coverage": coverage.as_json()}, indent=1).encode() + b"\n", fsync=False)
    return Path(path)
