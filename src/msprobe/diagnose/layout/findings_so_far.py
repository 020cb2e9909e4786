"""What a search has found so far; what is said of several parameters alike becomes one finding.

Of gradients that are off by one factor nothing is known but that something made the norm wrong by which they were
clipped. The one that is off in another way is the one to name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median

from msprobe.diagnose.differences.words import NO_RELATION, Relation
from msprobe.diagnose.findings import Finding, FindingKind
from msprobe.diagnose.layout import statements
from msprobe.diagnose.layout.blocks import Rank, TensorBlock, distance
from msprobe.diagnose.layout.measured import MeasuredTensor
from msprobe.diagnose.layout.sides import LayoutSide
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance import layouts
from msprobe.messages import Wording, said

#: So far from the factor that all others are off by, a gradient is off in a way of its own.
_OWN_WAY = 1e-4
#: Of several that are, the first that is about as far off as the furthest.
_AS_FAR = 1 / 3
_MOST_NAMED = 200


@dataclass(frozen=True)
class AboutParameter:
    """A sentence about a parameter: what stands before its name and behind it."""

    before: str
    name: str
    behind: str = ""

    def then(self, words: str) -> AboutParameter:
        """The sentence with these words at its end."""
        return replace(self, behind=self.behind + words)

    def of(self, count: int = 1) -> str:
        """The sentence about so many parameters, of which one is named."""
        more = said("and-more-in-brackets", count - 1) if count > 1 else ""
        return said("about-parameter", self.before, self.name, more, self.behind)


@dataclass(frozen=True)
class _SaidFinding:
    """What is said of one of several parameters, and what was measured."""

    about: AboutParameter
    finding: Finding
    measured: MeasuredTensor


@dataclass
class _Group:
    """Findings of one kind on several parameters, in order; ``informative``: the first of which more is known."""

    place: int
    members: list[_SaidFinding] = field(default_factory=list)
    informative: int | None = None


class FindingsSoFar:
    """``findings``: what was said, in the order of execution. ``said``: what is not to be said again."""

    def __init__(self, candidate: LayoutSide) -> None:
        self.candidate = candidate
        self.step = next(iter(candidate.parts.values())).step
        self.findings: list[Finding] = []
        self.said: set[object] = set()
        self._groups: dict[tuple[str, str], _Group] = {}

    def report(
        self,
        mark: object,
        kind: FindingKind,
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

    def say(
        self,
        mark: object,
        kind: FindingKind,
        text: str | AboutParameter,
        where: str,
        events: dict[Rank, Event],
        apart: statements.TensorApart,
        group: str | None = None,
        informative: bool = False,
        relation: Relation | None = None,
        **more: object,
    ) -> None:
        """Say something of a tensor. ``relation``: where it is not how both sides are apart. What is said about several
        parameters in one ``group`` becomes one finding, of the first of them, or the first of which more is known
        (``informative``).
        """
        if mark in self.said:
            return
        self.said.add(mark)
        evidence = statements.evidence_of(apart.tensor, apart.allowed, **more)
        words = text.of() if isinstance(text, AboutParameter) else text
        finding = statements.statement(self.candidate, kind, words, where, events, apart.ranks, self.step, evidence)
        finding = replace(finding, relation=(apart.words if relation is None else relation).brief())
        if not isinstance(text, AboutParameter) or group is None:
            self.findings.append(finding)
            return
        same_kind = self._groups.get((kind, group))
        if same_kind is None:
            same_kind = self._groups[kind, group] = _Group(len(self.findings))
            self.findings.append(finding)
        if informative and same_kind.informative is None:
            same_kind.informative = len(same_kind.members)
        same_kind.members.append(_SaidFinding(text, finding, apart.tensor))

    def say_copies(
        self,
        events: dict[Rank, Event],
        tensor: MeasuredTensor,
        what: str | AboutParameter,
        where: str,
        kind: FindingKind = "replica",
        why: str = "",
        group: str | None = None,
        **more: object,
    ) -> None:
        """Say that copies differ, and which of them is not that of the reference."""
        if tensor.fit is None:
            return
        apart = statements.TensorApart(tensor, limit(tensor))
        everyone = statements.copies_in_words(tensor.fit.left)
        relation = NO_RELATION
        words = said("copies-differ", everyone, why)
        if apart.ranks and not why:
            words += said("it-differs-from-the-reference", apart.places)
        elif not why:
            relation = Relation(f"{tensor.torn:.2g}", is_distance=True)
            words += Wording(" ({})", relation)
        if not apart.ranks:
            more = {
                **more,
                "copies_apart": [said("distance-between-ranks", a, b, size) for a, b, size in tensor.fit.copies[:8]],
            }
        text = what.then(words) if isinstance(what, AboutParameter) else Wording("{}{}", what, words)
        mark = ("copies", where)
        self.say(mark, kind, text, where, events, apart, group, bool(why), relation, **more)

    def result(self) -> list[Finding]:
        """All findings; one of several parameters names them. What only follows from the norm of others goes last."""
        findings = list(self.findings)
        follow, lead = [], False
        for (kind, name), group in self._groups.items():
            number = group.informative or 0
            if name == "gradient":
                odd = _odd_one(kind, [said_finding.measured for said_finding in group.members])
                # One that says what has become of it is better than one that does not.
                number = number if odd is None or (group.informative is not None and odd[1]) else odd[0]
                follow += [group.place] if odd is None else []
                lead |= odd is not None
            findings[group.place] = _finding_on_all(group, number)
        if lead and follow:
            return [finding for place, finding in enumerate(findings) if place not in follow] + [
                findings[number_followed] for number_followed in follow
            ]
        return findings


def _finding_on_all(group: _Group, number: int) -> Finding:
    """The finding on one parameter, which names the others."""
    chosen = group.members[number]
    if len(group.members) == 1:
        return chosen.finding
    names = dict.fromkeys([chosen.about.name, *(said_finding.about.name for said_finding in group.members)])
    evidence = {**chosen.finding.evidence, "parameters": list(names)[:_MOST_NAMED]}
    return replace(chosen.finding, message=chosen.about.of(len(group.members)), evidence=evidence)


def _odd_one(kind: str, tensors: list[MeasuredTensor]) -> tuple[int, bool] | None:
    """The place of the gradient that is off in its own way, and whether most are; None if all are off by one factor."""
    pairs = [_sides(kind, tensor) for tensor in tensors]
    ratios = [
        norm / other for pair in pairs if pair is not None and (norm := _norm(pair[0])) and (other := _norm(pair[1]))
    ]
    if not ratios:
        return 0, True
    factor = median(ratios)
    apart = [distance(pair[0].scaled(1 / factor), pair[1])[0] if pair is not None else 0.0 for pair in pairs]
    furthest = max(apart)
    if furthest <= _OWN_WAY and len(tensors) > 1:
        return None
    place = next(place for place, distance_apart in enumerate(apart) if distance_apart >= _AS_FAR * furthest)
    return place, median(apart) >= _AS_FAR * furthest


def _sides(kind: str, tensor: MeasuredTensor) -> tuple[TensorBlock, TensorBlock] | None:
    """What is compared: copies of the candidate with each other, or the whole with that of the reference."""
    if tensor.fit is None:
        return None
    if kind == "replica":
        copies = tensor.fit.left.parts if tensor.fit.left.kind == "replicate" else ()
        return (copies[-1], copies[0]) if len(copies) > 1 else None
    return tensor.fit.left, tensor.fit.right


def _norm(block: TensorBlock) -> float:
    return block.numbers[3] or 0.0


def limit(tensor: MeasuredTensor, unit: float = 0.0) -> float:
    """How far a tensor may be apart by the order of sums. ``unit``: of the rounding in what it was computed from, which
    under autocast is coarser than that of its own type.
    """
    return layouts.sum_order_limit(max(tensor.unit, unit))


def limit_of(tensors: Iterable[MeasuredTensor]) -> float:
    """The same of several tensors."""
    return max(map(limit, tensors), default=0.0)
