"""What is at fault between two runs in different layouts: module by module, forward, backward, gradients, optimizer.

A pass of a module whose inputs agree and whose results do not is at fault; one whose inputs differ, or inside which
another differs as much, is not. What ranks should have the same of and do not have is told first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from msprobe.diagnose import noise
from msprobe.diagnose.findings import Finding, Kind
from msprobe.diagnose.layout import statements
from msprobe.diagnose.layout.blocks import Rank
from msprobe.diagnose.layout.pairs import Measured, Pair, Pairs
from msprobe.diagnose.layout.sides import Side
from msprobe.diagnose.timeline import Event
from msprobe.diagnose.words import ratio_of

#: Sums over other parts, in another order, are apart by so many units of rounding.
UNITS = 256.0
_MOST = 0.05
#: The same of weights before the first step, which nothing has computed yet.
_UNITS_OF_WEIGHTS = 16.0
_MOST_OF_WEIGHTS = 0.02
#: What a step of an optimizer that was not recorded may make of rounding.
_UNRECORDED = 2.5e-3
#: What goes into a module may be so many times further apart than all that came out of modules before it.
_BETWEEN = 64.0
#: Gradients this many times smaller than the largest count for that much less: one that is zero in exact arithmetic (of
#: the bias of keys in attention) is nothing but rounding.
SMALL = 0.1
#: What is found after the first finding has to exceed what is allowed by so much.
_LATER = 4.0
_DIGITS = re.compile(r"\d+")


class Search:
    """Goes through one step. ``findings``: what it found, in the order of execution."""

    def __init__(self, candidate: Side, reference: Side, pairs: Pairs, first: bool, drifted: dict[str, float]) -> None:
        self.candidate = candidate
        self.reference = reference
        self.pairs = pairs
        self.first = first
        # How far weights were apart after the step before.
        self.drifted = drifted
        self.findings: list[Finding] = []
        self.step = next(iter(candidate.parts.values())).step
        self.counts = {"pairs": 0, "same": 0, "rounding": 0, "victim": 0, "guilty": 0}
        #: By direction, path and pass: how far what went in and what came out are apart.
        self.known: dict[tuple[str, str, int], tuple[float, float]] = {}
        self._inside: dict[tuple[str, str], float] = {}
        self._farthest = 0.0
        self._quiet = False
        self.said: set[object] = set()
        self.tainted = False
        self._groups: dict[tuple[str, str], int] = {}
        self._members: dict[int, list[str]] = {}
        self._telling: dict[int, bool] = {}
        #: By module, apart from its numbers: the communications in a pass.
        self._usual: dict[tuple[str, str], int] = {}
        #: The first gradient, backward from the loss, that plain tensors of several ranks hold terms of.
        self.first_terms: str | None = None

    def result(self) -> list[Finding]:
        """All findings; one of several parameters names them."""
        for place, names in self._members.items():
            if len(names) > 1:
                finding = self.findings[place]
                first = f'"{finding.evidence["parameter"]}"'
                text = finding.message.replace(first, f"{first} (and {len(names) - 1} more)", 1)
                evidence = {**finding.evidence, "parameters": names[:200]}
                self.findings[place] = replace(finding, message=text, evidence=evidence)
        return self.findings

    def forward(self) -> None:
        """Weights, inputs and results of the forward pass."""
        for pair in self.pairs.modules(self.candidate, self.reference, "forward"):
            for one in pair.parameters:
                self.look_at_weight(pair, one)
            self._look_at_inputs(pair)
            self._judge(pair, 0.0)

    def backward(self) -> None:
        """Gradients that arrive and leave."""
        # What comes after a forward pass that differs tells nothing of its own.
        self._quiet = self.tainted
        for pair in self.pairs.modules(self.candidate, self.reference, "backward"):
            self._look_at_inputs(pair)
            before = self.known.get(("forward", pair.place.path, pair.number), (0.0, 0.0))
            self._judge(pair, max(before))
            for one in pair.outputs:
                if self.first_terms is None and one.fit is not None and one.fit.ways[0].is_sum:
                    self.first_terms = f"{pair.event.name}, {_argument(one.slot)}"

    def gradients(self) -> None:
        """The share of each parameter's gradient that the backward passes brought."""
        found = list(self.pairs.modules(self.candidate, self.reference, "gradient"))
        largest = max((one.rms for pair in found for one in pair.outputs), default=0.0)
        for pair in found:
            self.counts["pairs"] += 1
            arrived = max(
                (max(sizes) for (_, path, _), sizes in self.known.items() if path == pair.place.path), default=0.0
            )
            worst = "same"
            for one in pair.outputs:
                allowed = limit(one) + _BETWEEN * arrived
                weight = min(1.0, one.rms / (SMALL * largest)) if largest else 1.0
                state = "guilty" if one.apart * weight > allowed else "rounding" if one.apart else "same"
                worst = max(worst, state, key=("same", "rounding", "guilty").index)
                if state == "guilty" and one.fit is not None and not self.tainted:
                    ranks = statements.at_fault(one, allowed)
                    words = statements.how(one.fit.left, one.fit.right, one.apart)
                    self.say(
                        ("gradient", one.name),
                        "parameter_gradient",
                        f'the gradient of "{one.name}" differs ({words}){statements.on_ranks(ranks)}, while what '
                        "arrives at its module agrees",
                        one.name,
                        pair.events,
                        ranks,
                        one,
                        allowed,
                        "gradient",
                        parameter=one.name,
                    )
            self.counts[worst] += 1

    def look_at_weight(self, pair: Pair, one: Measured) -> None:
        if one.fit is None:
            return
        if one.copies:
            self.say_copies(pair.events, one, f'parameter "{one.name}"', one.name, group="weight", parameter=one.name)
            return
        units, most = (_UNITS_OF_WEIGHTS, _MOST_OF_WEIGHTS) if self.first else (UNITS, _MOST)
        drifted = self.drifted.get(one.name, 0.0 if self.first else _UNRECORDED)
        allowed = min(units * one.unit, most) + 4 * drifted
        if one.apart <= allowed:
            return
        kind: Kind = "initial_weights" if self.first else "weights"
        when = "before the first step" if self.first else "at the beginning of this step"
        ranks = statements.at_fault(one, allowed)
        doubled = statements.doubled(one)
        words = statements.how(one.fit.left, one.fit.right, one.apart)
        text = f'parameter "{one.name}" differs {when}{statements.on_ranks(ranks)} ({words})'
        if doubled is not None:
            first, second = doubled if not ranks or doubled[0] in ranks else doubled[::-1]
            text += f": rank {first} holds the same part of it as rank {second}"
            ranks = ranks or [first]
        # Those that a rank has of another one, and those that a part of the ranks has, tell more than the others.
        mark, telling = ("weight", one.name), bool(ranks) or doubled is not None
        self.say(mark, kind, text, one.name, pair.events, ranks, one, allowed, "weight", telling, parameter=one.name)

    def _look_at_inputs(self, pair: Pair) -> None:
        """What goes in differs, while nothing before does: it comes from outside, or from between the modules."""
        for one in pair.inputs:
            if one.fit is None or self.tainted:
                continue
            allowed = limit(one) + _BETWEEN * self._farthest
            entry = pair.event.name
            if one.copies and not one.fit.ways[0].is_sum:
                self.say_copies(pair.events, one, f"{one.slot} of {entry}", f"{entry}, {one.slot}")
                self.tainted = True
                continue
            if one.apart <= allowed:
                continue
            self.tainted = True
            ranks = statements.at_fault(one, allowed)
            words = statements.how(one.fit.left, one.fit.right, one.apart)
            place = statements.on_ranks(ranks)
            kind: Kind
            if pair.place.direction == "backward":
                scale = ratio_of(one.fit.left.described(), one.fit.right.described())
                kind = "loss_scale" if scale is not None else "gradient"
                text = (
                    f"{one.slot} of {entry}, a gradient that arrives, differs{place} ({words}), while the forward pass "
                    "and all that was recorded before agree"
                )
            elif not any(key[0] == "forward" for key in self.known):
                kind = "data"
                text = f"{one.slot} of {entry} comes from outside the recorded modules and differs{place} ({words})"
                doubled = statements.doubled(one)
                if doubled is not None:
                    text += f": rank {doubled[0]} has the same part of it as rank {doubled[1]}"
                    ranks = ranks or [doubled[0]]
            elif (received := statements.received_by(self.candidate, pair, one.slot)) is not None:
                kind = "collective"
                text = (
                    f"{one.slot} of {entry} differs{place} ({words}), while all modules before agree: {received} "
                    "brought it from another rank"
                )
            else:
                kind = "computation"
                inside = pair.place.path.rpartition(".")[0]
                text = (
                    f"{one.slot} of {entry} differs{place} ({words}), while all modules before agree: it is calculated "
                    f"between them{f' in {inside}' if inside else ''}"
                )
            self.say(("input", entry), kind, text, f"{entry}, {one.slot}", pair.events, ranks, one, allowed)

    def _judge(self, pair: Pair, inherited: float) -> None:
        """Do the results follow from what went in?"""
        direction, path = pair.place
        self.counts["pairs"] += 1
        arrived = max(pair.arrived, inherited, self._inside.get((direction, path), 0.0))
        own, factor = pair.own_noise()
        allowed = noise.SAFETY * (own + factor * arrived)
        state = "same" if not pair.left and not pair.arrived else "rounding"
        torn = next((one for one in pair.outputs if one.copies and one.fit and not one.fit.ways[0].is_sum), None)
        if torn is not None and not any(one.copies for one in (*pair.inputs, *pair.parameters)) and not self.tainted:
            state = "guilty"
            self._say_torn(pair, torn, allowed)
        elif pair.left > allowed * (_LATER if self.tainted else 1.0):
            state = "guilty"
            if not self._quiet:
                self._say_result(pair, allowed, arrived)
        elif pair.left > limit_of(pair.outputs):
            state = "victim"
        if state == "guilty" or (state == "victim" and not self.tainted and self.findings):
            self.tainted = True
        self.counts[state] += 1
        self.known[direction, path, pair.number] = (pair.arrived, pair.left)
        if not self.tainted:
            self._farthest = max(self._farthest, pair.left if math.isfinite(pair.left) else 0.0)
        above = path
        while "." in above:
            above = above.rpartition(".")[0]
            key = (direction, above)
            size = max(pair.left, pair.arrived) if torn is None else math.inf
            self._inside[key] = max(self._inside.get(key, 0.0), size)
        self._count_collectives(pair)

    def _count_collectives(self, pair: Pair) -> None:
        rank, event = next(iter(pair.events.items()))
        key = (pair.place.direction, _DIGITS.sub("#", pair.place.path))
        found = len(statements.collectives_in(self.candidate, rank, event))
        self._usual[key] = max(self._usual.get(key, 0), found)

    def _say_result(self, pair: Pair, allowed: float, arrived: float) -> None:
        one = max(pair.outputs, key=lambda found: found.apart)
        if one.fit is None:
            return
        ranks = statements.at_fault(one, allowed)
        words = statements.how(one.fit.left, one.fit.right, one.apart)
        entry = pair.event.name
        why = (
            "its inputs agree"
            if arrived <= limit_of([*pair.inputs, *pair.parameters])
            else "more than its inputs explain"
        )
        backward = pair.place.direction == "backward"
        kind: Kind = "gradient" if backward else "computation"
        what = f"the gradient of {_argument(one.slot)}" if backward else one.slot
        self.say(
            ("result", entry),
            kind,
            f"{entry}: {what} differs{statements.on_ranks(ranks)} ({words}); {why}",
            entry,
            pair.events,
            ranks,
            one,
            allowed,
            inputs_differ_by=arrived,
        )

    def _say_torn(self, pair: Pair, one: Measured, allowed: float) -> None:
        """Ranks should have the same result and do not."""
        rank, event = next(iter(pair.events.items()))
        terms = statements.are_terms(one, pair, max(allowed, limit(one)))
        calls = {each: statements.collectives_in(self.candidate, each, pair.events[each]) for each in pair.events}
        usual = self._usual.get((pair.place.direction, _DIGITS.sub("#", pair.place.path)), 0)
        told = []
        if len({len(found) for found in calls.values()}) > 1:
            told = [f"rank {each}: {len(found)} communications in it" for each, found in calls.items()]
        elif len(calls[rank]) < usual:
            told = [f"{len(calls[rank])} communications in it, {usual} in the same place of other layers"]
        kind: Kind = "collective" if terms or usual or any(calls.values()) else "replica"
        why = ""
        if terms:
            why = f": each rank has its own term, and their {terms} agrees with the reference; nothing added them up"
        entry = event.name
        self.say_copies(
            pair.events,
            one,
            f"{one.slot} of {entry}",
            f"{entry}, {one.slot}",
            kind=kind,
            why=why,
            communications=told or calls[rank][:4],
        )

    def say_copies(
        self,
        events: dict[Rank, Event],
        one: Measured,
        what: str,
        where: str,
        kind: Kind = "replica",
        why: str = "",
        group: str | None = None,
        **more: object,
    ) -> None:
        """Say that copies differ, and which of them is not that of the reference."""
        if one.fit is None:
            return
        allowed = limit(one)
        ranks = statements.at_fault(one, allowed)
        everyone = statements.copies_in_words(one.fit.left)
        text = f"{what} should be the same on {everyone} and is not{why}"
        if ranks and not why:
            text += f": it differs from the reference{statements.on_ranks(ranks)}"
        elif not why:
            text += f" (relative difference {max(apart for _, _, apart in one.copies):.2g})"
        if not ranks:
            more = {**more, "copies_apart": [f"rank {a} and {b}: {apart:.2g}" for a, b, apart in one.copies[:8]]}
        self.say(("copies", where), kind, text, where, events, ranks, one, allowed, group, bool(why), **more)

    def tell(
        self,
        mark: object,
        kind: Kind,
        text: str,
        where: str,
        events: dict[Rank, Event],
        ranks: list[Rank],
        **evidence: object,
    ) -> None:
        """Say something that no tensor was measured for."""
        if mark not in self.said:
            self.said.add(mark)
            finding = statements.statement(self.candidate, kind, text, where, events, ranks, self.step, evidence)
            self.findings.append(finding)

    def reached(self, parameter: str) -> float:
        """How far apart what arrived at a parameter's module was, and its gradient."""
        path = parameter.rpartition(".")[0]
        return max((max(sizes) for (_, own, _), sizes in self.known.items() if own == path), default=0.0)

    def say(
        self,
        mark: object,
        kind: Kind,
        text: str,
        where: str,
        events: dict[Rank, Event],
        ranks: list[Rank],
        one: Measured,
        allowed: float,
        group: str | None = None,
        telling: bool = False,
        **more: object,
    ) -> None:
        """Say something of a tensor. What is said of several parameters in one ``group`` becomes one finding, of the
        first of them, or the first of which more is known (``telling``).
        """
        if mark in self.said:
            return
        self.said.add(mark)
        evidence = statements.evidence_of(one, allowed, **more)
        found = statements.statement(self.candidate, kind, text, where, events, ranks, self.step, evidence)
        name = more.get("parameter")
        if not isinstance(name, str) or group is None:
            self.findings.append(found)
            return
        place = self._groups.setdefault((kind, group), len(self.findings))
        if place == len(self.findings):
            self.findings.append(found)
            self._members[place] = [name]
            return
        self._members[place].append(name)
        if telling and not self._telling.get(place):
            self._telling[place] = True
            self.findings[place] = found


def limit(one: Measured) -> float:
    """How far a tensor may be apart by the order of sums."""
    return min(UNITS * one.unit, _MOST)


def limit_of(found: Iterable[Measured]) -> float:
    """The same of several tensors."""
    return max(map(limit, found), default=0.0)


def _argument(slot: str) -> str:
    """The argument that a gradient which leaves belongs to."""
    return slot.replace("output", "input", 1)
