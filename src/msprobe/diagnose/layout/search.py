"""What is at fault between two runs in different layouts: module by module, forward, backward, gradients, optimizer.

A pass of a module whose inputs agree and whose results do not is at fault; one whose inputs differ, or inside which
another differs as much, is not. What ranks should have the same of and do not have is reported first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from msprobe.diagnose.differences.words import NO_RELATION, ratio_of
from msprobe.diagnose.findings import FindingKind
from msprobe.diagnose.layout import statements
from msprobe.diagnose.layout.beginnings import Beginnings
from msprobe.diagnose.layout.findings_so_far import AboutParameter, FindingsSoFar, limit, limit_of
from msprobe.diagnose.layout.measured import MeasuredTensor, RecordPair
from msprobe.diagnose.layout.pairs import Pairs
from msprobe.diagnose.layout.rounded import Rounded
from msprobe.diagnose.layout.sides import LayoutSide
from msprobe.diagnose.tolerance import layouts, units
from msprobe.messages import Wording, said

_DIGITS = re.compile(r"\d+")


class Search(FindingsSoFar):
    """Goes through one step."""

    def __init__(
        self, candidate: LayoutSide, reference: LayoutSide, pairs: Pairs, first: bool, drifted: dict[str, float]
    ) -> None:
        super().__init__(candidate)
        self.reference = reference
        self.pairs = pairs
        self.first = first
        # How far weights were apart after the step before.
        self.drifted = drifted
        self.counts = {"pairs": 0, "same": 0, "rounding": 0, "explained": 0, "unexplained": 0}
        #: By direction, path and pass: how far what went in and what came out are apart.
        self.known: dict[tuple[str, str, int], tuple[float, float]] = {}
        self._inside: dict[tuple[str, str], float] = {}
        self._farthest = 0.0
        self._quiet = False
        self.tainted = False
        self._units: Counter[float] = Counter()
        self.rounded = Rounded(candidate, reference)
        #: By module, apart from its numbers: the communications in a pass.
        self._usual: dict[tuple[str, str], int] = {}
        self._began = Beginnings()

    def forward(self) -> None:
        """Weights, inputs and results of the forward pass."""
        for pair in self.pairs.modules(self.candidate, self.reference, "forward"):
            for parameter in pair.parameters:
                self.look_at_weight(pair, parameter)
            self._look_at_inputs(pair)
            self._judge(pair, 0.0)
            self._units[max((output.unit for output in pair.outputs), default=0.0)] += 1
            pair.forget()
        self.pairs.unit = units.coarsest_of_many(self._units)

    def limit(self, tensor: MeasuredTensor) -> float:
        """How far a gradient, or what an optimizer makes of it, may be apart by the order of sums."""
        return limit(tensor, units.coarsest_of_many(self._units))

    def gradient_limit(self, tensor: MeasuredTensor, reached: float) -> float:
        """How far the gradient of a parameter, or a state of it, may be apart. ``reached``: how far what arrived at its
        module was.
        """
        return layouts.gradient_limit(self.limit(tensor), reached, self.rounded.forward, self.rounded.unit)

    def backward(self) -> None:
        """Gradients that arrive and leave."""
        # What comes after a forward pass that differs says nothing of its own.
        self._quiet = self.tainted
        self._began = Beginnings()
        for pair in self.pairs.modules(self.candidate, self.reference, "backward"):
            self._look_at_inputs(pair)
            before = self.known.get(("forward", pair.place.path, pair.number), (0.0, 0.0))
            self._judge(pair, max(before))
            pair.forget()

    @property
    def first_terms(self) -> str | None:
        """Where a gradient was made that ranks hold terms of to the end of the backward pass."""
        terms = self._began.terms
        return None if terms is None else Wording("{}, {}", terms[0].event.name, _argument(terms[1].slot))

    def gradients(self) -> None:
        """The share of each parameter's gradient that the backward passes brought."""
        measured_pairs, largest = [], 0.0
        for pair in self.pairs.modules(self.candidate, self.reference, "gradient"):
            measured_pairs.append(pair)
            largest = max([largest, *(output.rms for output in pair.outputs)])
            pair.forget()
        for pair in measured_pairs:
            self.counts["pairs"] += 1
            arrived = max(
                (max(sizes) for (_, path, _), sizes in self.known.items() if path == pair.place.path), default=0.0
            )
            worst = "same"
            for output in pair.outputs:
                allowed = self.gradient_limit(output, arrived)
                weight = layouts.counts(output.rms, largest)
                state = "unexplained" if output.apart * weight > allowed else "rounding" if output.apart else "same"
                worst = max(worst, state, key=("same", "rounding", "unexplained").index)
                if state == "unexplained" and output.fit is not None and not self.tainted:
                    apart = statements.TensorApart(output, allowed)
                    text = said("parameter-gradient-differs-in-layout", apart.words, apart.places)
                    about = AboutParameter("the gradient of ", output.name).then(text)
                    mark, name = ("gradient", output.name), output.name
                    self.say(mark, "parameter_gradient", about, name, pair.events, apart, "gradient", parameter=name)
            self.counts[worst] += 1
            pair.forget()

    def look_at_weight(self, pair: RecordPair, tensor: MeasuredTensor) -> None:
        if tensor.fit is None:
            return
        if tensor.copies:
            self.say_copies(
                pair.events,
                tensor,
                AboutParameter("parameter ", tensor.name),
                tensor.name,
                group="weight",
                parameter=tensor.name,
            )
            return
        usual = layouts.stored_weight_limit(tensor.unit) if self.first else self.limit(tensor)
        allowed = usual + layouts.drift_limit(layouts.drift(self.drifted.get(tensor.name), self.first))
        doubled = statements.doubled(tensor)
        if tensor.apart <= (allowed if doubled is None else layouts.doubled_weight_limit(allowed, tensor.unit)):
            return
        kind: FindingKind = "initial_weights" if self.first else "weights"
        when = "before the first step" if self.first else "at the beginning of this step"
        apart = statements.TensorApart(tensor, allowed)
        name, text = tensor.name, said("parameter-differs-in-layout", when, apart.places, apart.words)
        about = AboutParameter("parameter ", name, text)
        # Those that a part of the ranks has, and those that a rank has of another one, say more than the others.
        informative = bool(apart.ranks) or doubled is not None
        if doubled is not None:
            first, second = doubled if not apart.ranks or doubled[0] in apart.ranks else doubled[::-1]
            about = about.then(said("rank-holds-same-block", first, second))
            apart.ranks = apart.ranks or [first]
        self.say(("weight", name), kind, about, name, pair.events, apart, "weight", informative, parameter=name)

    def _look_at_inputs(self, pair: RecordPair) -> None:
        """The inputs differ, while nothing before does: it comes from outside, or from between the modules."""
        for tensor in pair.inputs:
            if tensor.fit is None or self.tainted:
                continue
            calls = self.rounded.before(pair.events, pair.partner)
            allowed = layouts.input_limit(self.limit(tensor), self._farthest, calls, self.rounded.unit)
            entry = pair.event.name
            if tensor.copies and not tensor.is_sum:
                self.say_copies(pair.events, tensor, said("of-call", tensor.slot, entry), f"{entry}, {tensor.slot}")
                self.tainted = True
                continue
            if tensor.apart <= allowed:
                continue
            self.tainted = True
            apart = statements.TensorApart(tensor, allowed)
            words, place = apart.words, apart.places
            kind: FindingKind
            if pair.place.direction == "backward":
                scale = ratio_of(tensor.fit.left.described(), tensor.fit.right.described())
                kind = "loss_scale" if scale is not None else "gradient"
                text = said("incoming-gradient-differs-in-layout", tensor.slot, entry, place, words)
            elif not any(key[0] == "forward" for key in self.known):
                kind = "data"
                text = said("data-differs-in-layout", tensor.slot, entry, place, words)
                doubled = statements.doubled(tensor)
                if doubled is not None:
                    text += said("rank-has-same-block", doubled[0], doubled[1])
                    apart.ranks = apart.ranks or [doubled[0]]
            elif (received := statements.received_by(self.candidate, pair, tensor.slot)) is not None:
                kind = "collective"
                text = said("received-tensor-differs", tensor.slot, entry, place, words, received)
            else:
                kind = "computation"
                inside = pair.place.path.rpartition(".")[0]
                text = said(
                    "computed-between-modules-in-layout",
                    tensor.slot,
                    entry,
                    place,
                    words,
                    said("inside", inside) if inside else "",
                )
            self.say(("input", entry), kind, text, f"{entry}, {tensor.slot}", pair.events, apart)

    def _judge(self, pair: RecordPair, inherited: float) -> None:
        """Do the results follow from what went in?"""
        direction, path = pair.place
        self.counts["pairs"] += 1
        arrived = max(pair.arrived, inherited, self._inside.get((direction, path), 0.0))
        if _is_unknown(pair.inputs):
            arrived = max(arrived, self._farthest)
        own, factor = pair.own_noise(pair.unit)
        calls = self.rounded.until(pair.events, pair.partner)
        allowed = layouts.pass_limit(own, factor, arrived, calls, self.rounded.unit)
        state = "same" if not pair.left and not pair.arrived else "rounding"
        torn = next((output for output in pair.outputs if output.copies and not output.is_sum), None)
        if (
            torn is not None
            and not any(tensor.copies for tensor in (*pair.inputs, *pair.parameters))
            and not self.tainted
        ):
            state = "unexplained"
            self._say_torn(pair, torn, allowed)
        elif pair.left > layouts.after_finding(allowed, self.tainted):
            state = "unexplained"
            if not self._quiet:
                self._say_result(pair, allowed, arrived)
        elif pair.left > limit_of(pair.outputs):
            state = "explained"
        if state == "unexplained" or (state == "explained" and not self.tainted and self.findings):
            self.tainted = True
        # From here on much differs: how tensors lie is no longer to be seen by what agrees.
        self.pairs.guesses.settled = self.tainted
        self.counts[state] += 1
        self.known[direction, path, pair.number] = (pair.arrived, pair.left)
        if not self.tainted:
            left = arrived if _is_unknown(pair.outputs) else pair.left
            self._farthest = max(self._farthest, left if math.isfinite(left) else 0.0)
        above = path
        while "." in above:
            above = above.rpartition(".")[0]
            key = (direction, above)
            size = max(pair.left, pair.arrived) if torn is None else math.inf
            self._inside[key] = max(self._inside.get(key, 0.0), size)
        self._began.follow(pair)
        self._count_collectives(pair)

    def _count_collectives(self, pair: RecordPair) -> None:
        event = pair.event
        key = (pair.place.direction, _DIGITS.sub("#", pair.place.path))
        count = len(statements.collectives_in(event))
        self._usual[key] = max(self._usual.get(key, 0), count)

    def _say_result(self, pair: RecordPair, allowed: float, arrived: float) -> None:
        furthest = max(pair.outputs, key=lambda output: output.apart)
        if furthest.fit is None:
            return
        terms = self._began.terms_used_by(pair)
        if terms is not None:
            self._say_terms(pair, *terms, allowed)
            return
        torn = self._began.beginning_of_results(pair)
        if torn is not None:
            self._say_torn(*torn, allowed)
            return
        apart = statements.TensorApart(furthest, allowed)
        entry = pair.event.name
        why = (
            "its inputs agree"
            if arrived <= limit_of([*pair.inputs, *pair.parameters])
            else "more than its inputs explain"
        )
        backward = pair.place.direction == "backward"
        kind: FindingKind = "gradient" if backward else "computation"
        what = said("gradient-of-slot", _argument(furthest.slot)) if backward else furthest.slot
        text = said("result-differs-in-layout", entry, what, apart.places, apart.words, why)
        self.say(("result", entry), kind, text, entry, pair.events, apart, inputs_differ_by=arrived)

    def _say_terms(self, user: RecordPair, pair: RecordPair, tensor: MeasuredTensor, allowed: float) -> None:
        """A tensor of which each rank has a term is used before anything has added the terms up."""
        backward = pair.place.direction == "backward"
        entry, slot = pair.event.name, _argument(tensor.slot) if backward else tensor.slot
        what = said("gradient-of-slot", slot) if backward else slot
        text = said("terms-not-added-up", entry, what, user.event.name)
        apart, where = statements.TensorApart(tensor, allowed), f"{entry}, {slot}"
        apart.ranks = []
        used_by = user.event.name
        self.say(("terms", entry), "collective", text, where, pair.events, apart, relation=NO_RELATION, used_by=used_by)

    def _say_torn(self, pair: RecordPair, tensor: MeasuredTensor, allowed: float) -> None:
        """Ranks should have the same result and do not."""
        used = self._began.terms_used_by(pair)
        if used is not None:
            self._say_terms(pair, *used, allowed)
            return
        pair, tensor = self._began.beginning_of_copies(pair, tensor)
        rank, event = next(iter(pair.events.items()))
        terms = statements.are_terms(tensor, pair, max(allowed, limit(tensor)))
        calls = {each: statements.collectives_in(pair.events[each]) for each in pair.events}
        usual = self._usual.get((pair.place.direction, _DIGITS.sub("#", pair.place.path)), 0)
        exchanged = []
        if len({len(names) for names in calls.values()}) > 1:
            exchanged = [said("communications-on-rank", each, len(names)) for each, names in calls.items()]
        elif len(calls[rank]) < usual:
            exchanged = [said("communications-in-other-layers", len(calls[rank]), usual)]
        kind: FindingKind = "collective" if terms or usual or any(calls.values()) else "replica"
        why = ""
        if terms:
            why = said("own-term-mean-agrees", terms)
        entry = event.name
        self.say_copies(
            pair.events,
            tensor,
            said("of-call", tensor.slot, entry),
            f"{entry}, {tensor.slot}",
            kind=kind,
            why=why,
            communications=exchanged or calls[rank][:4],
        )

    def reached(self, parameter: str) -> float:
        """How far apart what arrived at a parameter's module was, and its gradient."""
        path = parameter.rpartition(".")[0]
        return max((max(sizes) for (_, own, _), sizes in self.known.items() if own == path), default=0.0)


def _is_unknown(tensors: Sequence[MeasuredTensor]) -> bool:
    """True if a tensor has no numbers to say whether it agrees: of a communication that nobody has waited for."""
    return any(tensor.fit is not None and not tensor.fit.how and tensor.fit.left.size for tensor in tensors)


def _argument(slot: str) -> str:
    """The argument that a gradient which leaves belongs to."""
    return slot.replace("output", "input", 1)
