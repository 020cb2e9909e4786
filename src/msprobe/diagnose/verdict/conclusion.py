"""What the suspects of a step amount to: a status, and the findings in order."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msprobe.diagnose.effect.leftover import Left
from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.evidence import Effect, Result
from msprobe.diagnose.findings import Finding, Status
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.tolerance import effect, frameworks
from msprobe.diagnose.verdict.calls import StepCalls
from msprobe.diagnose.verdict.common import Rank

MOST_FINDINGS = 100
#: Findings that say what is done otherwise, and findings that a result is further off than expected.
_FACTS = frozenset(("structure", "argument", "dtype", "data", "initial_weights", "mutation"))
_MEASURED = frozenset(("computation", "gradient", "parameter_gradient", "recompute"))


@dataclass(frozen=True)
class Compared:
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
    calls: StepCalls | None = None
    lone: list[str] = field(default_factory=list)
    #: Calls of one side alone and the like, which what came in explains as well: suspects if nothing else is.
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
    #: What is to be said of sides that were recorded at levels which differ, and are compared by what both record.
    levels: str = ""
    #: Tensor files that were to be read, and could not: their names by side.
    unread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def conclude(
    results: Sequence[Compared], found: Sequence[Suspect], reach_later: Callable[[], float], goes_on: bool
) -> tuple[Status, list[Finding], Rank | None]:
    """What the suspects of a step amount to: status, findings in order, and the rank at fault. ``reach_later``: how
    far differences reach in the next step, if there is one (``goes_on``).
    """
    clear = [suspect for suspect in found if suspect.clear]
    reach = max(result.reach.size for result in results)
    allowed = max(map(allowed_of, results))
    agreeing = max(map(agreeing_of, results))
    beyond = reach > agreeing and all(result.values and not result.interrupted for result in results)
    if not clear and beyond:
        # No call is beyond what rounding and its inputs may do, and what comes out is: where a first difference is
        # known before which all agrees, it comes of that.
        hidden = _hidden(results)
        first = next((suspect for suspect in found if suspect.begins), None)
        rest = [suspect for suspect in found if suspect is not first]
        found = [*hidden, *rest] if first is None else [_leads_to(first, hidden), *hidden, *rest]
        clear = found[:1]
    elif beyond and all(map(_is_missed, clear)):
        # A gradient that is missed is what comes of something.
        found = [*_doubts(results), *found]
        clear = [suspect for suspect in found if suspect.clear]
    if not found:
        return "agree", [], None
    quiet = [suspect for suspect in found if suspect.finding.kind == "argument" and not suspect.clear]
    if reach <= allowed and (clear or quiet):
        # What the optimizer does shows in the weights of the next step. There rounding has grown.
        following = reach_later()
        if following > max(map(effect.later, (result.tolerance for result in results))):
            reach = max(reach, following)
    # Without values nothing is known of what a difference does.
    harmless = reach <= allowed and all(result.values for result in results)
    # What shows in the next step alone, and none follows.
    unknown = not goes_on and any(suspect.shows_later for suspect in found)
    if harmless and quiet and not clear and not unknown:
        return "harmless", [replace(suspect.finding, harmless=True) for suspect in quiet[:10]], None
    if not clear and not unknown and reach <= agreeing:
        return "agree", [], None  # if something does differ, the next step tells what
    clear.sort(key=lambda suspect: not suspect.decisive and _is_rounding(suspect))
    chosen = clear or found
    if (
        found[0].finding.kind in _FACTS
        and all(suspect.finding.kind in _MEASURED for suspect in clear)
        and not (clear and clear[0].finding.cause == "not_cleared")
    ):
        # What was done otherwise comes before what came out of it.
        chosen = [found[0], *(suspect for suspect in clear if suspect is not found[0])]
    taken = {id(suspect) for suspect in chosen}
    # What a step before leaves of rounding in the weights tells nothing beside what is clear.
    rest = [one for one in found if id(one) not in taken and not (clear and one.finding.kind == "weights")]
    ordered = [*chosen, *rest]
    stands_out = effect.stands_out(reach, max(result.tolerance for result in results))
    harmless = (
        harmless
        and not unknown
        and not any(
            suspect.matters
            or (reach > 0 and (suspect.decisive or _is_wrong(suspect)))
            or (effect.hides_arguments(allowed) and (_stands_out(suspect) or (stands_out and _is_argument(suspect))))
            for suspect in ordered
        )
    )
    findings = [replace(suspect.finding, harmless=harmless) for suspect in ordered[:MOST_FINDINGS]]
    return "harmless" if harmless else "diverged", findings, findings[0].rank


def allowed_of(result: Compared) -> float:
    """What loss, gradients and weights of a step may be apart by rounding."""
    return effect.later(result.tolerance) if result.carried else result.tolerance


def agreeing_of(result: Compared) -> float:
    """What they may be apart by where no call is to blame: kernels of two frameworks all differ a little."""
    allowed = allowed_of(result)
    return frameworks.where_all_agree(allowed) if result.crossing else allowed


def _hidden(results: Sequence[Compared]) -> list[Suspect]:
    """What may be behind an effect that no suspect explains: what one side does alone, else where it grows most."""
    furthest = max(results, key=lambda result: result.reach.size)
    return [*_doubts(results), *([furthest.beyond] if furthest.beyond is not None else [])]


def _leads_to(first: Suspect, hidden: Sequence[Suspect]) -> Suspect:
    """The first difference, which is within rounding by itself, with what comes of it."""
    finding = first.finding
    effect = next((one.finding for one in hidden if one.finding.cause == "beyond"), None)
    if effect is None:
        return first
    whole = effect.fact(Result)
    assert whole is not None
    text = (
        f"{finding.message}. Nothing differs before, and what follows is apart by {whole.difference:.2g} (relative), "
        f"where rounding may do {whole.explained:.2g}"
    )
    return replace(first, finding=finding.with_fact(text, Effect(whole.difference, whole.explained)))


def _doubts(results: Sequence[Compared]) -> list[Suspect]:
    return across_ranks([replace(result, suspects=result.doubts) for result in results])


def _is_missed(suspect: Suspect) -> bool:
    """True for a gradient that is missed without a cause that is known."""
    return suspect.finding.kind == "missing_gradient" and suspect.finding.cause is None


def _is_rounding(suspect: Suspect) -> bool:
    """True if a result is no further apart than rounding may make it, though a call that gives the same bits elsewhere
    should not: whatever is further apart goes first.
    """
    result = suspect.finding.fact(Result)
    return result is not None and suspect.finding.kind in _MEASURED and result.is_explained


def _is_wrong(suspect: Suspect) -> bool:
    """True if a call gives a result that its inputs, which agree, cannot give: that is no harmless difference, however
    small it has become where it is looked at.
    """
    finding, result = suspect.finding, suspect.finding.fact(Result)
    return suspect.clear and finding.kind == "computation" and result is not None and result.arrived == 0.0


def _is_argument(suspect: Suspect) -> bool:
    return suspect.clear and suspect.finding.kind == "argument"


def _stands_out(suspect: Suspect) -> bool:
    """True if another argument makes a result differ by more than rounding does in the type of the call."""
    result = suspect.finding.fact(Result)
    return _is_argument(suspect) and result is not None and not result.is_explained and math.isfinite(result.difference)


def across_ranks(results: Iterable[Compared]) -> list[Suspect]:
    """The suspects of all ranks: between two exchanges of data, what happened earlier on its own rank goes first."""
    found: list[tuple[int, float, Suspect]] = []
    for result in results:
        for suspect in result.suspects:
            found.append((bisect_left(result.collectives, suspect.place), suspect.place, suspect))
    found.sort(key=lambda item: item[:2])
    return [suspect for _, _, suspect in found]
