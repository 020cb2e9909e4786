"""What a check found, for people: counts, and the calls that failed, the worst first, each with what reproduces it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msprobe.precheck.executors import RECORDED
from msprobe.precheck.job import Answer
from msprobe.precheck.requests import api_name


@dataclass(frozen=True)
class Entry:
    """One call that failed: the worst result that is named, why, the line of the program, and what reproduces it."""

    name: str
    why: str
    frame: str
    command: str


@dataclass
class Ranking:
    """Gathers answers. ``stack_of`` gives the innermost frames of a call, ``command_of`` what reproduces it."""

    stack_of: Callable[[str], Sequence[str]]
    command_of: Callable[[str, str], str]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {"forward": Counter(), "backward": Counter()})
    failed: list[Answer] = field(default_factory=list)
    warned: list[Answer] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        for direction, status in zip(("forward", "backward"), answer.result[1:3], strict=True):
            if status.strip():
                self.counts[direction][status.lower()] += 1
        if answer.failed:
            self.failed.append(answer)
        elif "warning" in (answer.result[1].lower(), answer.result[2].lower()):
            self.warned.append(answer)
        if answer.result[1] == "SKIP":
            self.skipped[answer.result[3]] += 1
        self.notes += [f"{answer.key}: {note}" for note in answer.notes]

    @property
    def worst_first(self) -> list[Answer]:
        """Failed calls, the largest error first; among equals in the order of the dump."""
        return sorted(self.failed, key=lambda answer: -answer.worst)

    def lines(self, top: int) -> list[str]:
        """The summary: one line of counts for each direction, and the ``top`` worst calls."""
        found = []
        for direction, counts in self.counts.items():
            parts = [f"{counts[word]} {word}" for word in ("pass", "warning", "error", "skip") if counts[word]]
            if parts:
                found.append(f"{direction}: {', '.join(parts)}")
        for reason, count in self.skipped.most_common(5):
            found.append(f"  skipped {count}: {reason[:160]}")
        by_api = Counter(_api_of(answer.key) for answer in self.failed)
        if self.failed:
            found.append(
                "APIs with errors: " + ", ".join(f"{name} ({count})" for name, count in by_api.most_common(12))
            )
        for number, entry in enumerate(self.entries(top), 1):
            found.append(f"{number}. {entry.name}: {entry.why}")
            if entry.frame:
                found.append(f"   called in {entry.frame}")
            found.append(f"   reproduce: {entry.command}")
        if len(self.failed) > top:
            found.append(f"and {len(self.failed) - top} more calls with errors in the result file")
        found += [f"note: {note}" for note in self.notes[:10]]
        return found

    def entries(self, most: int) -> list[Entry]:
        """The worst calls that failed."""
        return [self._entry(answer) for answer in self.worst_first[:most]]

    def _entry(self, answer: Answer) -> Entry:
        bad = next((row for row in answer.details if "error" in row), [answer.key, "error", ""])
        why = bad[bad.index("error") + 1].strip() or "error"
        direction = "backward" if ".backward." in bad[0] else "forward"
        frame = next((frame for frame in self.stack_of(answer.key) if "site-packages" not in frame), "")
        return Entry(bad[0], why, " ".join(frame.split())[:200], self.command_of(answer.key, direction))


def _api_of(key: str) -> str:
    name = api_name(key)
    return f"{name.prefix}.{name.name}"


def reproduction_command(dump: str, candidate: str, load: str = "") -> Callable[[str, str], str]:
    """How a call of this dump is reproduced with a script of its own."""

    def command(key: str, direction: str) -> str:
        words = ["msprobe", "op_generate", "--dump", dump, "--api", key, "--propagation", direction, "-o", "."]
        words += ["--load", load] if load else []
        # What was recorded runs nowhere, and a script in the Python that starts it: it chooses the device then.
        chooses = candidate == RECORDED or candidate.startswith("python:")
        return shlex.join(words if chooses else [*words, "--device", candidate])

    return command
