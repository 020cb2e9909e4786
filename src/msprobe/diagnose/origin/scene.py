"""One step of one rank while its origins are looked for: how far the search has come, and what it has said."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose.differences.records import Comparer, Difference
from msprobe.diagnose.differences.words import relation_of, settings_in_words
from msprobe.diagnose.evidence import Fact, SeenFact, Setting
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.measured.judge import Judgement
from msprobe.diagnose.origin.ledger import Ledger, Suspect
from msprobe.diagnose.origin.step_facts import StepBefore, StepFacts
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.statement import finding_at
from msprobe.diagnose.steps.phases import phase_of
from msprobe.diagnose.steps.public_functions import public_function
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said, with_first

#: What is so many times as large follows from nothing smaller.
_BY_FAR = 100.0


class Scene(StepFacts):
    """The facts of a step, and what changes while they are gone through.

    ``seen`` and ``tainted`` are the directions (forward, backward, ...) that have begun, and that differ, as far as the
    search has come; ``untouched``: nothing has differed so far, nor in the steps before; ``most_apart``: how far
    anything is apart; ``silent``: calls with another argument and the same result. ``ledger``: what was found.
    ``isolated``: what differs at one call reaches no other, so that nothing has ever differed before.
    ``delivered``: parameters whose gradients were the reference's, but for rounding, when the optimizer took them.
    """

    def __init__(
        self,
        pairing: Pairing,
        comparer: Comparer,
        first_step: bool,
        before: StepBefore | None = None,
        isolated: bool = False,
        delivered: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(pairing, comparer, first_step, before)
        self.isolated = isolated
        self.delivered = delivered
        self.ledger = Ledger()
        self.tainted: set[str] = set()
        self.seen: set[str] = set()
        self.untouched = self.before.untouched
        self.most_apart = 0.0
        self.silent: list[Judged] = []
        #: What the rows of both dumps say, where both have them.
        self.by_rows: Judgement | None = None

    def pass_by(self, judged: Judged) -> None:
        """Note how far the search has come."""
        if not self.isolated:
            if self.taints(judged):
                self.tainted.add(judged.event.direction)
            self.touch(judged)
        self.most_apart = max(self.most_apart, judged.input_difference, judged.output_difference)

    def touch(self, judged: Judged) -> None:
        """Note whether anything differs at a pair. The results of a module come after the calls inside it."""
        event = judged.event
        results = judged.changed_outputs if event.is_call or not event.children else ()
        if judged.changed_inputs or results:
            self.untouched = False

    def towers(self, difference: Difference, apart: float | None = None) -> bool:
        """True for a difference between two frameworks by far larger than all before it, which so cannot explain it: a
        kernel that is a little off is no cause of a factor. ``apart``: how far that was; all that was seen so far.
        """
        before = self.most_apart if apart is None else apart
        return self.comparer.crossing and difference.delta > _BY_FAR * before

    def after_backward(self, event: Event, difference: Difference) -> bool:
        """True if a tensor looks like a gradient that is taken from ``.grad``, after a backward pass."""
        if "backward" not in self.seen or event.direction not in ("forward", "optimizer"):
            return False
        # What is taken after the step of the optimizer may be an average of the weights.
        stepped = "optimizer" in self.seen and event.direction == "forward"
        return not stepped and self.is_gradient(difference)

    def silent_argument(self, event: Event) -> Judged | None:
        """An earlier call in the same module that was made with another argument, but gave the same result."""
        return next(
            (silent for silent in self.silent if silent.event.module == event.module and silent.event is not event),
            None,
        )

    def say(
        self,
        mark: Hashable,
        judged: Judged,
        kind: FindingKind,
        message: str,
        where: str = "",
        clear: bool = True,
        facts: Sequence[Fact] = (),
        entry: Event | None = None,
        place: float | None = None,
        alternatives: tuple[str, ...] = (),
        matters: bool = False,
        difference: Difference | None = None,
        shows_later: str = "",
        waits: bool = False,
    ) -> None:
        """Suspect what a pair says, unless something was said under this mark; see :class:`Suspect`. ``where``: if
        nothing else is said, the record, with the slot that differs. ``difference`` is among the facts.
        """
        if self.ledger.knows(mark):
            return
        event = entry or judged.event
        if not where:
            where = event.name if difference is None or entry is not None else f"{event.name}, {difference.slot}"
        if difference is not None and not any(isinstance(fact, SeenFact) for fact in facts):
            facts = (*facts, SeenFact(difference))
        suspect = Suspect(
            replace(self.finding(event, kind, message, where, facts), alternatives=alternatives),
            judged.event.index if place is None else place,
            clear,
            matters,
            shows_later,
            begins=self.untouched and not self.dtype_policy,
            judged=judged,
            difference=difference,
            waits=waits,
        )
        self.ledger.say(mark, suspect)

    def add(
        self,
        event: Event,
        kind: FindingKind,
        message: str,
        where: str = "",
        facts: Sequence[Fact] = (),
        place: float | None = None,
        clear: bool = True,
        matters: bool = False,
        judged: Judged | None = None,
        shows_later: str = "",
    ) -> None:
        """Suspect what a record of either side says, which is found once in a step. It stands where the record does."""
        place = self.place_of(event) if place is None else place
        finding = self.finding(event, kind, message, where or event.name, facts)
        self.ledger.add(Suspect(finding, place, clear, matters, shows_later, judged=judged))

    def finding(self, event: Event, kind: FindingKind, message: str, where: str, facts: Sequence[Fact] = ()) -> Finding:
        """A finding at a record of either side."""
        timeline = self.pairing.candidate
        details: dict[str, Any] = {}
        if timeline.by_name.get(event.name) is not event:
            timeline = self.pairing.reference
            details["side"] = "reference"
        if event.direction == "forward" and event.module is None:
            details["phase"] = phase_of(event, timeline)
        if event.direction == "forward" and event.is_call:
            function = public_function(timeline.part.stack(event.name))
            if function and function != operation(event.stem):
                details["called_in"] = function
                message = with_first(message, event.name, said("call-in-module", event.name, function))
        return finding_at(
            timeline,
            event,
            kind,
            message,
            where,
            self.pairing.candidate.step,
            facts,
            details,
            relation=self.relation(facts),
        )

    def relation(self, facts: Sequence[Fact]) -> str:
        """How the tensor or the setting that a finding rests on is apart, in a few words; empty if it rests on none."""
        seen = next((fact for fact in facts if isinstance(fact, SeenFact)), None)
        if seen is not None:
            return relation_of(seen.difference, self.comparer, seen.bound).brief()
        setting = next((fact for fact in facts if isinstance(fact, Setting) and fact.field), None)
        if setting is None:
            return ""
        return said("is-and-is-in-reference", *settings_in_words(setting.candidate, setting.reference))
