"""What a verdict needs to know of all steps: each is folded in when it is judged, and nothing grows with their number.

Of a run of 1,000 steps on 64 ranks, what is kept is as much as of one step: counts, remarks without repetition, and the
first places of what was left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.effect.reach import EFFECTS
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.places import Places
from msprobe.diagnose.verdict.common import Rank, Step
from msprobe.diagnose.verdict.conclusion import MOST_FINDINGS, ComparedRank, agreeing_of, rounding_of
from msprobe.diagnose.verdict.recordings import is_little
from msprobe.messages import Wording, said
from msprobe.store.damage import place_in_words

if TYPE_CHECKING:
    from msprobe.diagnose.layout.compare import ComparedLayouts

#: So many harmless findings are kept of a whole run. What diverges ends the search, and is kept besides.
MOST_HARMLESS = 1000
_MOST_REASONS = 20
_OTHER_REASONS = "for further reasons"
_NO_PAIR = said("no-calls-match")
_NO_TENSOR = said("no-tensor-comparable")
_NOTHING_RECORDED = said("nothing-recorded")


class Counts:
    """How many calls were compared and how they were judged, how far they are apart at most, and in how many steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.parts = 0
        self.values = True
        self._ranks: set[Rank] = set()
        self._calls: Counter[str] = Counter()
        self._answering: Counter[str] = Counter()
        self._interrupted: set[str] = set()
        self._precision: dict[str, dict[str, Any]] = {}
        self._precision_in_words: dict[str, None] = {}
        self._reached = 0.0
        self._tolerance = 0.0
        self._calls_explain_effect = False
        self._effects: set[str] = set()

    def add(self, results: Sequence[ComparedRank]) -> None:
        """One step more, with these of its ranks."""
        self.steps += bool(results)
        self.parts += len(results)
        for result in results:
            self._ranks.add(result.rank)
            self._calls.update(result.summary)
            self._answering.update(result.answering)
            self._interrupted.update(result.interrupted)
            self._reached = max(self._reached, result.reach.size)
            if result.values and not result.interrupted:
                self._effects |= result.reach.compared
            self._tolerance = max(self._tolerance, rounding_of(result))
            self._calls_explain_effect |= rounding_of(result) < result.reach.size <= agreeing_of(result)
            self.values &= result.values
            for name, mine, theirs in result.precision:
                self._precision[name] = {"candidate": mine, "reference": theirs}
            self._precision_in_words.update(dict.fromkeys(result.precision_in_words))

    def summary(self, steps: int, compared: int, one_side: dict[str, int]) -> dict[str, Any]:
        """For :attr:`Verdict.summary`. ``steps``: how many both sides have; ``compared``: of how many that is;
        ``one_side``: how many steps and ranks one of them has alone.
        """
        return {
            **({"interrupted": sorted(self._interrupted)} if self._interrupted else {}),
            **({} if self.values else {"values_recorded": False}),
            **({"precision_in_words": list(self._precision_in_words)} if self._precision_in_words else {}),
            **({"precision": self._precision} if self._precision else {}),
            "steps_in_common": steps,
            **one_side,
            "steps_compared": compared,
            "ranks": len(self._ranks),
            **self._calls,
            **({"little_in_common": dict(self._answering)} if self._answering and is_little(self._answering) else {}),
            "largest_effect": self._reached if math.isfinite(self._reached) else "infinite",
            "effect_on": [name for name in EFFECTS if name in self._effects],
            "rounding_tolerance": self._tolerance,
            **({"calls_explain_effect": True} if self._calls_explain_effect else {}),
        }


class Running:
    """The running summary of a comparison. ``findings`` holds what is kept of the findings, in order."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self.findings = list(findings)
        self.compared = Counts()
        self.crossing = False
        #: The steps in which something differs beyond rounding, or one side calls something alone.
        self.apart: list[Step] = []
        #: The steps that cannot be compared at all.
        self.not_compared: list[Step] = []
        self._not_compared = Counts()
        self._left_out: dict[str, Places] = {}
        self._whole_steps = 0
        self._parts_left_out = 0
        self._notes: dict[str, None] = {}
        self._levels: dict[str, Places] = {}
        self._lone: dict[str, None] = {}
        self._unread: dict[str, Places] = {}
        self._harmless_left_out = 0
        self._first_reach = self._later_reach = 0.0

    def add(self, results: Sequence[ComparedRank]) -> list[ComparedRank]:
        """Fold the ranks of a step in; gives those that can be compared."""
        why_not = [_why_not(result) for result in results]
        step = results[0].step
        if len(set(why_not)) == 1 and why_not[0]:
            self.leave_out(step, why_not[0], len(results))
        else:
            if all(why_not):
                self._whole_steps += 1
                self.not_compared.append(step)
            for result, why in zip(results, why_not, strict=True):
                if why:
                    self._leave_out(why, place_in_words(step, result.rank), 1)
        begun = bool(self.compared.steps)
        self.compared.add([result for result, why in zip(results, why_not, strict=True) if not why])
        self._not_compared.add([result for result, why in zip(results, why_not, strict=True) if why])
        for result in results:
            self._add_remarks(result, begun)
        usable = [result for result in results if not result.unlike]
        if any(map(_is_apart, usable)):
            self._is_apart(step)
        return usable

    def _add_remarks(self, result: ComparedRank, begun: bool) -> None:
        self.crossing |= result.crossing
        if begun:
            self._later_reach = max(self._later_reach, result.reach.size)
        else:
            self._first_reach = max(self._first_reach, result.reach.size)
        place = place_in_words(result.step, result.rank)
        for note in result.notes:
            self._notes.setdefault(note)
        if result.levels:
            self._levels.setdefault(result.levels, Places()).add(place)
        for name in result.lone:
            self._lone.setdefault(name)
        for side, files in result.unread.items():
            unread = self._unread.setdefault(side, Places())
            for file in files:
                unread.add(f"{place}: {file}")

    def add_layouts(self, step: Step, result: ComparedLayouts) -> None:
        """Fold a step in that was compared whole, in other layouts."""
        self.keep(step, result.findings[:MOST_FINDINGS])
        if not result.compared:
            self.leave_out(step, _NO_TENSOR, 0)
        for side, files in result.unread.items():
            for file in files:
                self._unread.setdefault(side, Places()).add(file)

    def leave_out(self, step: Step, why: str, ranks: int = 1) -> None:
        """Say that a step of both sides is not compared at all."""
        self._whole_steps += 1
        self.not_compared.append(step)
        if why != _NOTHING_RECORDED:
            self._is_apart(step)
        self._leave_out(why, "the step" if step is None else said("step", step), ranks)

    def _leave_out(self, why: str, place: str, parts: int) -> None:
        if why not in self._left_out and len(self._left_out) >= _MOST_REASONS:
            why = _OTHER_REASONS
        self._left_out.setdefault(why, Places()).add(place)
        self._parts_left_out += parts

    def keep(self, step: Step, findings: Sequence[Finding]) -> None:
        """Keep the findings of a step; of harmless ones no more than :data:`MOST_HARMLESS` in all."""
        if findings:
            self._is_apart(step)
        room = max(0, MOST_HARMLESS - len(self.findings))
        kept = [finding for number, finding in enumerate(findings) if number < room or not finding.harmless]
        self._harmless_left_out += len(findings) - len(kept)
        self.findings += kept

    def _is_apart(self, step: Step) -> None:
        if step not in self.apart[-1:]:
            self.apart.append(step)

    @property
    def lone(self) -> list[str]:
        """The calls that one side alone makes, each once."""
        return list(self._lone)

    @property
    def effect(self) -> float:
        """How far loss, gradients and weights are apart at most."""
        return max(self._first_reach, self._later_reach)

    def reasons(self) -> list[str]:
        """Why what is left out was not compared."""
        return [why for why in self._left_out if why not in (_NO_PAIR, _NO_TENSOR, _NOTHING_RECORDED)]

    def notes(self) -> list[str]:
        """Remarks on single steps and ranks, each once."""
        levels = {note: places for note, places in self._levels.items() if places.count < self.compared.parts}
        return [Wording("{}: {}", levels[note], note) if note in levels else note for note in self._notes]

    def notes_on_gaps(self) -> list[str]:
        """What was left out, where and why."""
        notes: list[str] = [said("not-compared", _are(places), why) for why, places in self._left_out.items()]
        for side, files in self._unread.items():
            number = said("tensor-files", files.count) if files.count > 1 else "a tensor file"
            notes.append(said("tensor-files-unread", side, number, files))
        if self._harmless_left_out:
            notes.append(said("harmless-left-out", self._harmless_left_out))
        return notes

    def reach_in_words(self) -> str:
        """How far two frameworks are apart, which agree: less than a mistake would make, and not nothing."""
        first, later = self._first_reach, self._later_reach
        text = said("effect-of-differences", first)
        return text + (said("effect-in-later-steps", later) if later > first else "")

    def summary(self, steps: int, one_side: dict[str, int]) -> dict[str, Any]:
        """For :attr:`Verdict.summary`. ``steps``: how many both sides have; ``one_side``: how many steps and ranks one
        of them has alone.
        """
        counts = self.compared if self.compared.steps else self._not_compared
        summary = counts.summary(steps, self.compared.steps, one_side)
        unread = sum(files.count for files in self._unread.values())
        if self._parts_left_out:
            of = self.compared.parts + self._parts_left_out
            summary["not_compared"] = {"steps": self._whole_steps, "parts": self._parts_left_out, "of_parts": of}
        if unread:
            summary["unread_files"] = unread
        if self._levels:
            summary["levels_differ"] = sum(places.count for places in self._levels.values())
        return summary


def _why_not(result: ComparedRank) -> str:
    """Why one rank of a step says nothing of how the runs compare; empty if it does."""
    if result.unlike:
        return result.unlike
    # What an interruption left is reported as that.
    if result.summary["pairs"] or result.interrupted:
        return ""
    alone = result.summary.get("candidate_only", 0) + result.summary.get("reference_only", 0)
    return _NO_PAIR if alone else _NOTHING_RECORDED


def _is_apart(result: ComparedRank) -> bool:
    return any(result.summary.get(key) for key in ("unexplained", "candidate_only", "reference_only"))


def _are(places: Places) -> str:
    return said("place-is", places) if places.count == 1 else said("places-are", places)
