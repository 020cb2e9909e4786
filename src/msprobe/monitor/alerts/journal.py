"""``alerts.jsonl`` of a run: which rules looked at its steps, and each alert, on the disk before the next step begins.

One object in a line: ``{"kind": "rules"}`` when judging begins, ``{"kind": "alert"}`` with all fields of both files
of alerts, ``{"kind": "end"}`` when it ends, with the last step that was judged. What a killed process leaves torn at
its end is passed over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.errors import MsprobeError, PathError, reason_of
from msprobe.foreign.budget import Budget, Limits
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import is_regular, read_bounded
from msprobe.foreign.plain_numbers import count_or_none
from msprobe.messages import said
from msprobe.paths import StrPath, create_file

JOURNAL = "alerts.jsonl"
_MOST_BYTES = 1 << 30


class AlertJournal:
    """Writes the file of one run; each call ends with all of it handed to the system. Raises PathError."""

    def __init__(self, folder: StrPath, rank: int, rules: Sequence[str]) -> None:
        self._path = Path(folder, JOURNAL)
        create_file(self._path, append=True).close()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        self._put([{"kind": "rules", "rank": rank, "rules": list(rules), "seconds": time.time()}])

    def add(self, alerts: Iterable[Mapping[str, Any]]) -> None:
        """These alerts were raised."""
        self._put([{"kind": "alert", **alert} for alert in alerts])

    def end(self, judged: int, last_step: int | None, held_back: int) -> None:
        """Nothing more is judged. ``judged``: how many steps were, ``last_step`` the last of them."""
        descriptor = self._descriptor
        if descriptor >= 0:
            self._put([{"kind": "end", "judged": judged, "last_step": last_step, "held_back": held_back}])
            self._descriptor = -1
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _put(self, entries: Sequence[Mapping[str, Any]]) -> None:
        # The line end comes first, too: behind a line that a killed process has torn.
        lines = "".join("\n" + json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n"
        data = lines.encode("utf-8", "replace")
        try:
            if os.write(self._descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as problem:
            raise PathError(said("file-not-written", self._path, problem.strerror or problem)) from problem


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """What a journal says. ``rules``: those that were in force; ``is_ended``: whether judging came to its end;
    ``damaged``: lines that cannot be read, a torn last one not among them.
    """

    rules: tuple[str, ...] = ()
    alerts: tuple[Mapping[str, Any], ...] = ()
    is_ended: bool = False
    last_step: int | None = None
    held_back: int = 0
    damaged: int = 0


def read_journal(folder: StrPath) -> JudgedRun | None:
    """What the journal in a run's folder says; None if there is none. Raises PathError."""
    path = Path(folder, JOURNAL)
    if not is_regular(path):
        return None
    try:
        data = read_bounded(path, Budget(path, Limits(bytes=_MOST_BYTES)))
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from None
    rules: dict[str, None] = {}
    alerts: list[Mapping[str, Any]] = []
    end: Mapping[str, Any] | None = None
    damaged, held_back = 0, 0
    lines = data.split(b"\n")
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            entry = parse_json(line, path)
        except (ValueError, MsprobeError):
            entry = None
        kind = entry.get("kind") if isinstance(entry, dict) else None
        if kind == "rules":
            given = entry.get("rules")
            rules.update((str(name), None) for name in given) if isinstance(given, list) else None
            end = None
        elif kind == "alert":
            alerts.append({name: value for name, value in entry.items() if name != "kind"})
        elif kind == "end":
            end = entry
            held_back += count_or_none(entry.get("held_back")) or 0
        elif at < len(lines) - 1:
            damaged += 1
    last = None if end is None else count_or_none(end.get("last_step"))
    return JudgedRun(tuple(rules), tuple(alerts), end is not None, last, held_back, damaged)
