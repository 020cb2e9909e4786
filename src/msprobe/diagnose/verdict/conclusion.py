"""What the suspects of a step amount to: a status, and the findings in order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe.compare.entry_names import operation, read_name
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import is_integer, is_tensor
from msprobe.diagnose.effect.in_parts import GradientsInParts
from msprobe.diagnose.effect.leftover import Left
from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.evidence import NamedFact, OneSide, OtherArguments, ResultFact, SeenFact
from msprobe.diagnose.findings import Finding, Status
from msprobe.diagnose.measured.node import Node, TakenGradient
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.tolerance import effect, frameworks, noise
from msprobe.diagnose.verdict.common import Rank
from msprobe.diagnose.verdict.on_ranks import once
from msprobe.messages import said

MOST_FINDINGS = 100
#: So many other arguments are reported that the results do not show.
_MOST_QUIET = 10
#: Findings that say what is done otherwise, and findings that a result is further off than expected.
_FACTS = frozenset(("structure", "argument", "dtype", "data", "initial_weights", "mutation"))
#: Of these, those that are no more than a measure where rounding may make them.
_STORED = frozenset(("data", "initial_weights"))
_MEASURED = frozenset(("computation", "gradient", "parameter_gradient", "recompute"))


@dataclass(frozen=True)
class ComparedRank:
    """What came out for one step of one rank. ``left``: the gradients that candidate and reference leave behind."""

    step: int | None
    rank: Rank
    suspects: list[Suspect]
    reach: Reach
    tolerance: float
    summary: dict[str, Any]
    notes: list[str]
    collectives: list[int]
    left: tuple[Mapping[str, Left], Mapping[str, Left]]
    #: True if the step before was apart, too, so that rounding has grown.
    carried: bool = False
    #: Sides that were interrupted in this step, and whether both recorded what their tensors hold.
    interrupted: tuple[str, ...] = ()
    values: bool = True
    lone: list[str] = field(default_factory=list)
    #: Calls of one side alone and the like, which the inputs explain as well: suspects if nothing else is.
    doubts: list[Suspect] = field(default_factory=list)
    #: Why the step cannot be compared: other levels.
    unlike: str = ""
    #: That the step is apart by more than rounding does, with the call where that grows most.
    beyond: Suspect | None = None
    #: What the weights of this step are on both sides; between two frameworks alone.
    weights: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    #: True if one side ran on MindSpore and the other on PyTorch.
    crossing: bool = False
    #: Settings that decide how exactly is computed, and differ: name, candidate, reference.
    precision: tuple[tuple[str, Any, Any], ...] = ()
    #: What of them is known to weigh, in sentences.
    precision_in_words: tuple[str, ...] = ()
    #: What is to be said of sides that were recorded at levels which differ, and are compared by what both record.
    levels: str = ""
    #: How many calls answer to each other, where that says something: two frameworks make calls of their own.
    answering: Mapping[str, int] = field(default_factory=dict)
    #: Tensor files that were to be read, and could not: their names by side.
    unread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: What this rank puts into collectives: by API and group the distance and what is coherent, of one after the other.
    put_in: Mapping[tuple[str, tuple[int, ...]], Sequence[float]] = field(default_factory=dict)
    #: Collectives that their own rank does not explain, by the names of their records.
    waiting: Mapping[str, Node] = field(default_factory=dict)
    #: Gradients that all ranks may have put together, by the names of the records of what takes them.
    taken_over_ranks: Mapping[str, tuple[TakenGradient, ...]] = field(default_factory=dict)
    #: Gradients that the optimizers of both sides get in other parts.
    in_parts: tuple[GradientsInParts, GradientsInParts] | None = None


@dataclass(frozen=True)
class Extent:
    """How far the differences of a step reach. ``size``: in loss, gradients and weights, and what follows from these in
    the next step; ``tolerance``: what rounding may do in one step, ``allowed``: with what the step before has left,
    ``agreeing``: where no call is to blame. ``known``: values were recorded. ``later``: how far the next step is apart.
    """

    size: float
    tolerance: float
    allowed: float
    agreeing: float
    known: bool
    later: float = 0.0

    @property
    def is_harmless(self) -> bool:
        """True if it is within rounding. Without values nothing is known of what a difference does."""
        return self.size <= self.allowed and self.known

    @property
    def shows(self) -> bool:
        """True if the effect is larger than what a last digit or two make, which nothing can be concluded from."""
        return effect.shows(max(self.size, self.later))


#: When a suspect counts though what comes of it is within rounding.
REASONS: tuple[Callable[[Suspect, Extent], bool], ...] = (
    # It is known to count: its effect is hidden, or comes later.
    lambda suspect, extent: suspect.matters,
    # Nothing differed before, no rounding explains it, and something comes of it.
    lambda suspect, extent: suspect.decisive and extent.shows,
    # Its inputs agree and cannot give this result, and something comes of it.
    lambda suspect, extent: is_wrong(suspect) and extent.size > 0,
    # Rounding may do so much that it hides arguments, and this one's result stands out, and something comes of it.
    lambda suspect, extent: (
        max(extent.size, extent.later) > 0 and effect.hides_arguments(extent.allowed) and stands_out(suspect)
    ),
    # Rounding may do so much that it hides arguments, and the effect of this one stands out.
    lambda suspect, extent: (
        effect.hides_arguments(extent.allowed)
        and effect.stands_out(extent.size, extent.tolerance)
        and _is_argument(suspect)
        and _is_judged(suspect)
    ),
)


def conclude(
    results: Sequence[ComparedRank], suspects: Sequence[Suspect], reach_later: Callable[[], float], goes_on: bool
) -> tuple[Status, list[Finding]]:
    """What the suspects of a step amount to: status, and findings in order. ``reach_later``: how far differences reach
    in the next step, if there is one (``goes_on``).
    """
    extent = _extent(results)
    if extent.size > extent.agreeing and all(result.values and not result.interrupted for result in results):
        suspects = _with_what_is_behind(suspects, results)
    elif not all(result.reach.untouched for result in results) and all(
        _is_missed(suspect) for suspect in suspects if suspect.clear
    ):
        known = any(suspect.clear for suspect in suspects)
        suspects = [*_doubts_of_left_out(results, clear=known), *suspects]
    if not suspects:
        return "agree", []
    clear = [suspect for suspect in suspects if suspect.clear]
    quiet = [suspect for suspect in suspects if _is_quiet(suspect)]
    if extent.size <= extent.allowed and (clear or quiet):
        # What the optimizer does shows in the weights of the next step. There rounding has grown.
        following = reach_later()
        grown = following > effect.later(extent.tolerance)
        extent = replace(extent, size=max(extent.size, following) if grown else extent.size, later=following)
    # What shows in the next step alone, and none follows.
    unknown = not goes_on and any(suspect.shows_later for suspect in suspects)
    if not clear and not unknown:
        if extent.is_harmless and quiet:
            return "harmless", [replace(suspect.finding, harmless=True) for suspect in once(quiet)[:_MOST_QUIET]]
        if extent.size <= extent.agreeing:
            return "agree", []  # if something does differ, the next step says what
    weighed = in_order_of_weight(suspects)
    counts = unknown or any(holds(suspect, extent) for suspect in weighed for holds in REASONS)
    harmless = extent.is_harmless and not counts
    ordered = once(in_order_of_weight(_with_earlier_ones(suspects)))
    findings = [replace(suspect.finding, harmless=harmless) for suspect in ordered[:MOST_FINDINGS]]
    return "harmless" if harmless else "diverged", findings


def _extent(results: Sequence[ComparedRank]) -> Extent:
    agreeing = [agreeing_of(result) for result in results]
    if not all(map(math.isinf, agreeing)):
        agreeing = list(map(rounding_of, results))
    return Extent(
        size=max(result.reach.size for result in results),
        tolerance=max(result.tolerance for result in results),
        allowed=max(map(allowed_of, results)),
        agreeing=max(agreeing),
        known=all(result.values for result in results),
    )


def in_order_of_weight(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects, the likeliest origin first; of one weight in the order in which things happened."""
    clear = sorted((suspect for suspect in suspects if suspect.clear), key=is_rounding)
    # What was done otherwise comes before what came out of it.
    leads = (
        suspects[0].finding.kind in (_FACTS if suspects[0].clear else _FACTS - _STORED)
        and all(suspect.finding.kind in _MEASURED or _is_missed(suspect) for suspect in clear)
        and not (clear and clear[0].finding.cause == "not_cleared")
    )

    def weight(suspect: Suspect) -> int:
        if suspect is suspects[0] and leads:
            return 0
        return 1 + is_rounding(suspect) if suspect.clear else 3

    # What a step before leaves of rounding in the weights says nothing beside what is clear.
    kept = [suspect for suspect in suspects if suspect.clear or not clear or suspect.finding.kind != "weights"]
    return sorted(kept, key=weight)


def _with_earlier_ones(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects, of which one that something is done otherwise is clear where another clearly says the same: what
    shows late is done as early as the first time.
    """
    shown = {done for suspect in suspects if suspect.clear and (done := _done_otherwise(suspect)) is not None}
    return [
        replace(suspect, clear=True) if not suspect.clear and _done_otherwise(suspect) in shown else suspect
        for suspect in suspects
    ]


def _done_otherwise(suspect: Suspect) -> Hashable:
    """What a call is given on both sides, or what one side calls and the other does not, without the numbers of calls;
    None for what is no such suspect.
    """
    arguments, alone = suspect.finding.fact(OtherArguments), suspect.finding.fact(OneSide)
    if suspect.finding.entry is None:
        return None
    name = read_name(suspect.finding.entry).stem
    if arguments is not None:
        return name, tuple((difference.slot, *difference.in_words) for difference in arguments.differences)
    if alone is not None:
        sides = (tuple(read_name(call).stem for call in side) for side in (alone.candidate, alone.reference))
        return suspect.finding.name, name, *sides
    return None


def allowed_of(result: ComparedRank) -> float:
    """What loss, gradients and weights of a step may be apart by rounding."""
    return effect.later(result.tolerance) if result.carried else result.tolerance


def agreeing_of(result: ComparedRank) -> float:
    """What they may be apart by where no call is to blame: where rows explain all that differs, by anything."""
    if result.reach.explained and not any(suspect.clear for suspect in result.suspects):
        return math.inf
    return rounding_of(result)


def rounding_of(result: ComparedRank) -> float:
    """What rounding in all calls may do to them: kernels of two frameworks all differ a little."""
    allowed = allowed_of(result)
    return frameworks.where_all_agree(allowed) if result.crossing else allowed


def _with_what_is_behind(suspects: Sequence[Suspect], results: Sequence[ComparedRank]) -> list[Suspect]:
    """The suspects of an effect beyond rounding, with what may be behind it that none of them explains: what one side
    does alone, and where it grows most.
    """
    clear = [suspect for suspect in suspects if suspect.clear]
    doubts = across_ranks([replace(result, suspects=result.doubts) for result in results])
    if clear:
        # A gradient that is missed is what comes of something.
        return [*doubts, *suspects] if all(map(_is_missed, clear)) else list(suspects)
    # No call is beyond what rounding and its inputs may do: where a first difference is known before which all agrees,
    # it comes of that.
    furthest = max(results, key=lambda result: result.reach.size).beyond
    # What moved weights was not recorded, and nothing that was explains them.
    moved_otherwise = any(result.reach.moved_otherwise for result in results)
    first = next((suspect for suspect in suspects if suspect.begins), None)
    rest = [suspect for suspect in suspects if suspect is not first]
    led = [_leads_to(first, furthest)] if first is not None else []
    # What is done otherwise is a fact, behind other kernels as well.
    facts = [suspect for suspect in rest if _is_exact(suspect)]
    rest = [suspect for suspect in rest if not _is_exact(suspect)]
    moved = [suspect for suspect in rest if moved_otherwise and suspect.finding.kind == "weights"]
    rest = [suspect for suspect in rest if suspect not in moved]
    every = [*led, *doubts, *facts, *moved, *([furthest] if furthest is not None else []), *rest]
    return [replace(every[0], clear=True, decisive=True), *every[1:]] if every else []


def _is_exact(suspect: Suspect) -> bool:
    """True for what no rounding makes: other calls, other arguments, other whole numbers."""
    seen = suspect.finding.fact(SeenFact)
    is_whole = seen is not None and is_tensor(seen.difference.left) and is_integer(seen.difference.left)
    is_of_one_side = suspect.finding.fact(OneSide) is not None
    return suspect.finding.kind in ("structure", "argument", "mutation") or is_of_one_side or is_whole


def _leads_to(first: Suspect, beyond: Suspect | None) -> Suspect:
    """The first difference, which is within rounding by itself, with what comes of it."""
    whole = beyond.finding.fact(ResultFact) if beyond is not None else None
    if whole is None:
        return first
    text = said("first-difference", first.finding.message, whole.difference, whole.explained)
    facts = NamedFact("effect", whole.difference), NamedFact("effect_explained", whole.explained)
    return replace(first, finding=first.finding.with_facts(text, *facts))


def _is_quiet(suspect: Suspect) -> bool:
    """True for another argument that the results do not show, for what rounding decides, and for what one side computes
    and the other leaves out.
    """
    return not suspect.clear and (suspect.finding.kind in ("argument", "choice") or _is_left_out(suspect))


def _is_left_out(suspect: Suspect) -> bool:
    """True for calls of one side that compute, where the other has none, and for those that draw random numbers, where
    the other's draw none.
    """
    alone = suspect.finding.fact(OneSide)
    if suspect.finding.kind not in ("structure", "mutation") or alone is None:
        return False
    sides = [[operation(read_name(call).stem) for call in side] for side in (alone.candidate, alone.reference)]
    if all(sides) and suspect.finding.fact(SeenFact) is None:
        return False  # the same in other calls
    if all(sides):
        draws = [any(name in operators.RANDOM for name in side) for side in sides]
        return draws[0] != draws[1]
    return any(name in operators.ELEMENTWISE - operators.CASTS for side in sides for name in side)


def _doubts_of_left_out(results: Sequence[ComparedRank], clear: bool) -> list[Suspect]:
    """The doubts that one side leaves out what the other computes: that inputs explain what differs as well makes it no
    less of a fact.
    """
    doubts = across_ranks([replace(result, suspects=result.doubts) for result in results])
    return [replace(doubt, clear=clear) for doubt in doubts if _is_left_out(doubt)]


def _is_missed(suspect: Suspect) -> bool:
    """True for a gradient that is missed, or of which a share is, without a cause that is known."""
    return suspect.finding.kind in ("missing_gradient", "parameter_gradient") and suspect.finding.cause is None


def is_rounding(suspect: Suspect) -> bool:
    """True if a result is no further apart than rounding may make it, though a call that gives the same bits elsewhere
    should not: whatever is further apart goes first.
    """
    result = suspect.finding.fact(ResultFact)
    within = result is not None and suspect.finding.kind in _MEASURED and result.is_explained
    return within and not suspect.decisive


def is_wrong(suspect: Suspect) -> bool:
    """True if a call gives a result that its inputs, which agree, cannot give: that is no harmless difference, however
    small it has become where it is looked at.
    """
    finding, result = suspect.finding, suspect.finding.fact(ResultFact)
    if not suspect.clear or finding.kind != "computation" or result is None or result.input_difference != 0.0:
        return False
    # Where something differed before, what looks alike may be apart by rounding.
    return suspect.begins or noise.is_clear(result.difference, result.explained)


def _is_argument(suspect: Suspect) -> bool:
    return suspect.clear and suspect.finding.kind == "argument"


def _is_judged(suspect: Suspect) -> bool:
    """True unless anything may come out of the call, because other rows come in."""
    result = suspect.finding.fact(ResultFact)
    return result is None or math.isfinite(result.explained)


def stands_out(suspect: Suspect) -> bool:
    """True if another argument makes a result differ by more than rounding does in the type of the call."""
    result = suspect.finding.fact(ResultFact)
    return _is_argument(suspect) and result is not None and not result.is_explained and math.isfinite(result.difference)


def across_ranks(results: Iterable[ComparedRank]) -> list[Suspect]:
    """The suspects of all ranks: between two exchanges of data, what happened earlier on its own rank goes first."""
    placed: list[tuple[int, float, Suspect]] = []
    for result in results:
        for suspect in result.suspects:
            placed.append((bisect_left(result.collectives, suspect.place), suspect.place, suspect))
    placed.sort(key=lambda item: item[:2])
    return [suspect for _, _, suspect in placed]
