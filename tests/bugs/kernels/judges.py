"""What a judge answers on a pair, and whether that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msprobe.diagnose.runs import compare_runs

from .recordings import KernelPair


@dataclass(frozen=True)
class Answer:
    """``diverged``: the pair is called so. ``first``: the record that is named first. ``not_judged``: calls that the
    judge says it could not judge, of ``calls``.
    """

    diverged: bool
    first: str | None
    not_judged: int = 0
    calls: int = 0


Judge = Callable[[KernelPair], Answer]


def today(pair: KernelPair) -> Answer:
    """The verdict of ``msprobe compare``."""
    verdict = compare_runs(pair.candidate / "dump", pair.reference / "dump")
    first = verdict.findings[0].entry if verdict.findings else None
    return Answer(verdict.status == "diverged", first)


@dataclass
class Score:
    """Counts over pairs of one precision."""

    faults: int = 0
    detected: int = 0
    first: int = 0
    healthy: int = 0
    alarms: int = 0
    not_judged: int = 0
    calls: int = 0

    def add(self, pair: KernelPair, answer: Answer) -> str:
        """Count an answer; the word for it."""
        self.not_judged += answer.not_judged
        self.calls += answer.calls
        if pair.truth is None:
            self.healthy += 1
            self.alarms += answer.diverged
            return "alarm" if answer.diverged else "quiet"
        self.faults += 1
        self.detected += answer.diverged
        is_first = answer.diverged and pair.truth.accepts(answer.first)
        self.first += is_first
        return "first" if is_first else "detected" if answer.diverged else "missed"

    def row(self) -> str:
        """The counts as a row of a table."""
        share = f"{100 * self.first / self.faults:.0f} %" if self.faults else "-"
        blind = f"{self.not_judged} of {self.calls}" if self.calls else "-"
        return f"{self.detected} of {self.faults} | {self.first} ({share}) | {self.alarms} of {self.healthy} | {blind}"
