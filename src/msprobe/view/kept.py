"""What a comparison knew of the steps that it looked at last: the page shows those without judging them again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from msprobe.diagnose.origin.step_facts import StepFacts
from msprobe.diagnose.verdict.common import Rank, Step
from msprobe.view.judged import JudgedStep, of_facts

#: The step in which runs part is looked at last, but for the next, which tells if it has an effect.
_LAST_STEPS = 2
_At = tuple[Step, Rank]


class Kept:
    """The facts of the last steps of a comparison, by step and rank of the candidate.

    ``most``: so many records at most. It is called by the comparison, one step after the other.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[_At, tuple[StepFacts, tuple[str, ...]]] = {}
        self._lock = threading.Lock()

    def __call__(self, facts: StepFacts, notes: tuple[str, ...]) -> bool:
        """Keep a step, and let go of what is too long ago or too much."""
        timeline = facts.pairing.candidate
        with self._lock:
            at = (timeline.step, timeline.rank)
            if at in self._found:
                _close(self._found.pop(at)[0])
            self._found[at] = facts, notes
            steps = list(dict.fromkeys(step for step, _ in self._found))[-_LAST_STEPS:]
            for other in list(self._found):
                is_too_much = sum(map(_records, self._facts())) > self._most and len(self._found) > 1
                if other != at and (other[0] not in steps or is_too_much):
                    _close(self._found.pop(other)[0])
        return True

    def take(self, at: _At) -> JudgedStep | None:
        """A step that was kept; it is the caller's from now on. None if it was not."""
        with self._lock:
            found = self._found.pop(at, None)
        return of_facts(*found) if found is not None else None

    def close(self) -> None:
        """Let go of all that nobody took."""
        with self._lock:
            for facts in self._facts():
                _close(facts)
            self._found.clear()

    def _facts(self) -> Iterator[StepFacts]:
        return (facts for facts, _ in self._found.values())


def _records(facts: StepFacts) -> int:
    return len(facts.pairing.candidate) + len(facts.pairing.reference)


def _close(facts: StepFacts) -> None:
    for timeline in (facts.pairing.candidate, facts.pairing.reference):
        timeline.close()
        timeline.part.close()
