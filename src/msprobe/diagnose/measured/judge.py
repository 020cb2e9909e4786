"""The first call, in the order of execution, that is further apart than its arguments and what healthy devices show."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msprobe.diagnose.measured.classes import Classes, shipped
from msprobe.diagnose.measured.healthy import NOT_MEASURED, HealthyCalls
from msprobe.diagnose.measured.modules import MODULE
from msprobe.diagnose.measured.node import DOUBT, FEW_ELEMENTS, ROUNDED_ONCE, SINGLE, CollectiveInput, Node
from msprobe.diagnose.measured.nodes import nodes
from msprobe.diagnose.measured.nodes_across import nodes_across
from msprobe.diagnose.measured.product_units import UNDECLARED_ROUNDING, product_units
from msprobe.diagnose.measured.together import CallsTogether, kind_of_call
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.declared_units import Rounding, possible_rounding

#: In bits: the distance of a result may be so much beyond its class and that doubt, and so much what is coherent in it.
#: Sums that are kept in their own type, single precision, share terms from element to element, and so their errors:
#: there more is coherent. ``python -m tests.bugs.kernels.run --judge measured --margins`` prints the most that healthy
#: devices have, ``python -m bugs.kernels.shadow --only clean`` what is named in rewritten programs (docs/figures.md).
_LIMITS_OF_HALF, _LIMITS_OF_SINGLE = (0.4, 3.1), (0.6, 4.8)
#: In bits: what is coherent in a call may be so much beyond that of a healthy pair, in half types and in single
#: precision; the distance, which is an estimate, as much as its doubt. ``python -m tests.bugs.kernels.run --noise``
#: names the healthy devices that are called different, each beside another one as the healthy pair (docs/figures.md).
_BEYOND_HEALTHY_HALF, _BEYOND_HEALTHY_SINGLE = 2.2, 2.5
#: In half types the two sizes are estimates that know nothing of each other, so that few healthy calls come near to
#: both limits: the sum of their shares, each to this power, may be 1. Healthy devices of 18 networks (``--networks``,
#: all three lists) reach 0.91 of a limit by both, and by what is coherent alone 0.97.
_BOTH = 2.5
#: So many collectives of a rank wait for what the others put in.
_MOST_WAITING = 20
#: So many calls are worth to be looked at once more.
_NEAREST = 20
#: A step is explained if no more than this share of its calls could not be judged: most of them were. Behind batch
#: normalisation of small batches the gradients of a healthy network in a half type are apart by half of their size.
_FEW_BLIND = 0.5
#: Why a call is not judged: it draws random numbers, and all it takes is known.
_RANDOM = "random"
#: Why a call is not judged that is beyond its limits.
_FEW_IN_ROW = "few elements"
#: Why a call is not judged: a result has no row. What takes it is not judged either.
_UNREAD = "results"
#: Why a call is not judged, where that hides nothing: its gradient is that of other calls as well, or of another one.
_BESIDE = frozenset(("several uses", "another node"))
#: Where a result may be apart by more than this share of its norm, nothing can be said of it.
_BLIND = 0.5


@dataclass(frozen=True)
class Unexplained:
    """A call whose results are ``distance`` and ``coherent`` bits beyond what its class has, and by the larger of both
    in relation to its limit ``beyond`` that; where a healthy pair was measured, beyond what it allows. ``together``: of
    so many calls of its operator, which are beyond what all of them together may be, it is the first.
    """

    node: Node
    distance: float
    coherent: float
    beyond: float
    together: int = 1


@dataclass(frozen=True)
class Judgement:
    """``first``: the first call that is not explained. ``explained``: those that are, also those whose arguments differ
    so much that these explain any result; what comes after the first is judged as well. ``calls``: how many there are
    with results that are numbers; ``not_judged``: of these, those that nothing can be said of, because rows are
    missing, whole numbers that they take differ, or what they are given differs by so much that anything may come out;
    ``blind``: the last of these alone. ``explains_all``: what differs is the result of a call that is explained, or
    (``from_outside``) comes into the step from elsewhere. ``nearest``: the calls that come nearest to their limits, or
    are beyond them, in the order of execution. ``explained_taken``: the modules of which it explains what they take.
    ``drawn_otherwise``: the first random call that shows other numbers. ``exchanges``: collectives on several ranks;
    ``waiting``: of these, what their own rank does not explain, and what the others put in may (:func:`is_settled`).
    ``over_ranks``: who takes gradients that may be put together from those of all ranks.
    """

    first: Unexplained | None
    calls: int
    not_judged: int
    blind: int = 0
    explains_all: bool = False
    from_outside: bool = False
    nearest: tuple[Event, ...] = ()
    explained: frozenset[Event] = frozenset()
    explained_taken: frozenset[Event] = frozenset()
    exchanges: tuple[CollectiveInput, ...] = ()
    drawn_otherwise: Unexplained | None = None
    waiting: tuple[Unexplained, ...] = ()
    over_ranks: tuple[Node, ...] = ()


def limits_of(node: Node) -> tuple[float, float]:
    """How many bits the distance and what is coherent may be beyond their class."""
    return _LIMITS_OF_SINGLE if node.unit <= SINGLE else _LIMITS_OF_HALF


def judge_step(
    pairing: Pairing,
    is_alone: bool,
    chosen: Callable[[Node], bool] | None = None,
    healthy: HealthyCalls = NOT_MEASURED,
    crossing: bool = False,
) -> Judgement:
    """Judge the pairs of one step by the rows of both dumps. ``is_alone``: the runs have one rank. ``chosen``: whether
    a call follows from a choice that rounding may decide otherwise, or says nothing for another reason. ``healthy``:
    see :func:`healthy_calls`. ``crossing``: one side ran on MindSpore, the other on PyTorch, of which half types alone
    are judged.
    """
    nodes_found = [
        replace(node, excused=node.excused or "choice") if chosen is not None and chosen(node) else node
        for node in (nodes_across(pairing, is_alone) if crossing else nodes(pairing, is_alone))
    ]
    judgement = judge_nodes(nodes_found, shipped(), healthy, _possible(pairing))
    # Each framework draws random numbers of its own.
    return replace(judgement, explains_all=False, drawn_otherwise=None) if crossing else judgement


def judge_nodes(
    nodes_found: Sequence[Node],
    classes: Classes,
    healthy: HealthyCalls = NOT_MEASURED,
    possible: Mapping[str, Rounding] = UNDECLARED_ROUNDING,
) -> Judgement:
    """Judge calls in the order of execution. ``healthy``: see :func:`healthy_calls`. ``possible``: see
    :func:`msprobe.diagnose.measured.product_units.product_units`.
    """
    units = product_units(nodes_found, possible)
    alike = _drawn_alike(nodes_found, units, classes, healthy)
    first: Unexplained | None = None
    explained: list[Event] = []
    explained_taken: list[Event] = []
    calls = not_judged = blind = unread = 0
    explains_all, from_outside = bool(nodes_found), False
    sizes: list[tuple[float, int, Event]] = []
    waiting: list[Unexplained] = []
    over_ranks: list[Node] = []
    drawn_otherwise: Unexplained | None = None
    first_place, together = len(nodes_found), CallsTogether()
    for place, node in enumerate(nodes_found):
        if node.taken_over_ranks:
            over_ranks.append(node)
            continue
        if node.hands_on:
            judged = beyond_limits(node, units, classes, healthy)
            if first is None and judged.beyond > 0.0 and not _is_blind(node):
                first, first_place = judged, place
            continue
        if node.direction == "gradient" and not node.from_outside:
            explained.append(node.event)
        elif node.direction != "gradient":
            from_outside |= node.from_outside
        if not node.results and not node.excused:
            continue
        calls += 1
        if node.excused == _RANDOM:
            if node.drawn_by in alike:
                node = replace(node, excused="")
            elif drawn_otherwise is None and not _is_blind(node):
                judged = beyond_limits(node, units, classes, healthy)
                drawn_otherwise = judged if judged.beyond > 0.0 else None
        if node.excused == _FEW_IN_ROW and beyond_limits(node, units, classes, healthy).beyond <= 0.0:
            node = replace(node, excused="")
        if node.excused or _is_blind(node):
            not_judged += 1
            blind += not node.excused
            unread += node.excused == _UNREAD
            explains_all &= not node.excused or node.excused in _BESIDE or node.excused == _UNREAD or _is_same(node)
            if not node.excused:
                (explained_taken if node.is_taken else explained).append(node.event)
            continue
        judged = beyond_limits(node, units, classes, healthy)
        if judged.beyond > -math.inf and node.exchange is None:
            sizes.append((judged.beyond, calls, node.event))
        if node.exchange is None and node.operation != MODULE:
            together.add(place, node)
        if judged.beyond <= 0.0:
            # Where all rows are the same, they explain no difference that is recorded.
            if any(result.distance or result.is_carried for result in node.results):
                (explained_taken if node.is_taken else explained).append(node.event)
        elif node.exchange is not None:
            waiting.append(judged)
        elif first is None:
            first, first_place = judged, place
    alone = first_place, kind_of_call(first.node) if first is not None else ""
    for several in together.beyond(units, classes, healthy, alone):
        if several.place < first_place:
            judged = beyond_limits(several.first, units, classes, healthy)
            first, first_place = replace(judged, beyond=several.beyond, together=several.calls), several.place
            explained = [event for event in explained if event is not several.first.event]
    explains_all &= first is None and blind + unread <= _FEW_BLIND * calls and len(waiting) <= _MOST_WAITING
    largest = heapq.nlargest(_NEAREST, sizes, key=lambda size: size[:2])
    nearest = tuple(event for _, _, event in sorted(largest, key=lambda size: size[1]))
    exchanges = tuple(node.exchange for node in nodes_found if node.exchange is not None)
    return Judgement(
        first,
        calls,
        not_judged,
        blind,
        explains_all,
        from_outside,
        nearest,
        frozenset(explained),
        frozenset(explained_taken),
        exchanges,
        drawn_otherwise,
        tuple(waiting[:_MOST_WAITING]),
        tuple(over_ranks),
    )


def _drawn_alike(
    nodes_found: Sequence[Node], units: Mapping[str, float], classes: Classes, healthy: HealthyCalls
) -> set[Event]:
    """The calls that have drawn the same random numbers on both sides. Where one has, as its result shows, those before
    it have as well that draw from the same generator.
    """
    drawn: dict[str, list[Event]] = {}
    alike: set[Event] = set()
    for node in nodes_found:
        if node.excused != _RANDOM or node.drawn_by is not node.event:
            continue
        drawn.setdefault(node.generator, []).append(node.event)
        shows = any(result.count >= FEW_ELEMENTS for result in node.results) and not _is_blind(node)
        if shows and beyond_limits(node, units, classes, healthy).beyond <= 0.0:
            alike.update(drawn[node.generator])
    return alike


def is_settled(node: Node, distance: float, coherent: float) -> bool:
    """True if a collective is explained by all that its ranks put in together, in units of elements, or may be as far
    apart as half of its size.
    """
    assert node.exchange is not None
    results = [
        replace(result, given=distance / norm, given_coherent=coherent / norm)
        for result, norm in zip(node.results, node.exchange.norms, strict=True)
    ]
    whole = replace(node, results=tuple(results))
    return _is_blind(whole) or beyond_limits(whole, {}, shipped()).beyond <= 0.0


def healthy_calls(pairing: Pairing, is_alone: bool) -> HealthyCalls:
    """What the calls of a healthy pair show. A candidate may show as much, and hardly more."""
    nodes_found = list(nodes(pairing, is_alone))
    return healthy_nodes(nodes_found, shipped(), product_units(nodes_found, _possible(pairing)))


def healthy_nodes(nodes_found: Iterable[Node], classes: Classes, units: Mapping[str, float]) -> HealthyCalls:
    """The same of calls that are measured already."""
    beyond: dict[str, float] = {}
    excess: dict[str, tuple[float, float]] = {}
    given: dict[str, float] = {}
    together = CallsTogether()
    for place, node in enumerate(nodes_found):
        if not node.results or node.excused or node.hands_on or _is_blind(node):
            continue
        if node.operation != MODULE:
            together.add(place, node)
        kind = kind_of_call(node)
        size = beyond_limits(node, units, classes).beyond
        if size > 0.0:
            beyond[kind] = max(size, beyond.get(kind, 0.0))
        distance, coherent = node.excess(_product_unit(node, units))
        most = excess.get(kind, (-math.inf, -math.inf))
        excess[kind] = max(distance, most[0]), max(coherent, most[1])
        given[kind] = max(node.given, given.get(kind, 0.0))
    return HealthyCalls(beyond, excess, given, together.middles(units, classes))


def _possible(pairing: Pairing) -> dict[str, Rounding]:
    return possible_rounding(pairing.candidate.part.ours, pairing.reference.part.ours)


def beyond_limits(
    node: Node, units: Mapping[str, float], classes: Classes, healthy: HealthyCalls = NOT_MEASURED
) -> Unexplained:
    """How far a call is beyond its class, and beyond the limits. ``units``: of products in single precision, where not
    that of their type.
    """
    unit = _product_unit(node, units)
    (distance, coherent), usual = node.excess(unit, DOUBT), classes.usual(node)
    distance, coherent = distance - usual[0], coherent - usual[1]
    limits, kind = limits_of(node), kind_of_call(node)
    beyond = max(distance - limits[0], coherent - limits[1], _beyond_both(node, distance, coherent))
    beyond -= healthy.beyond.get(kind, 0.0)
    if kind in healthy.excess and healthy.is_like(node, kind):
        most, excess = healthy.excess[kind], node.excess(unit)
        allowed = _BEYOND_HEALTHY_SINGLE if node.unit <= SINGLE else _BEYOND_HEALTHY_HALF
        # What one sample of healthy devices does not show at all, the next may: no call need be nearer than its
        # arguments and rounding.
        beyond = max(beyond, excess[0] - max(most[0], 0.0) - DOUBT, excess[1] - max(most[1], 0.0) - allowed)
    return Unexplained(node, distance, coherent, beyond)


def _product_unit(node: Node, units: Mapping[str, float]) -> float:
    """To what a call rounds the factors of products; of what is not known to have none, as of any product."""
    if node.operation == MODULE and not node.product:
        return max(units.values(), default=0.0)
    return units.get(node.product, 0.0)


def _beyond_both(node: Node, distance: float, coherent: float) -> float:
    """How many bits a call is beyond what both of its sizes together may be. Of a few numbers the two are one size, and
    in single precision they share their errors: there neither says more than the other.
    """
    if node.unit <= SINGLE or any(result.count < FEW_ELEMENTS for result in node.results):
        return -math.inf
    most_distance, most_coherent = limits_of(node)
    most_distance += DOUBT
    shares = max(distance + DOUBT, 0.0) / most_distance, max(coherent, 0.0) / most_coherent
    if not all(map(math.isfinite, shares)):
        return math.inf
    together: float = sum(share**_BOTH for share in shares) ** (1 / _BOTH)
    return (together - 1.0) * most_distance


def _is_same(node: Node) -> bool:
    """True if all that a call gives is known, and the same."""
    return node.excused not in ("arguments", "results") and not any(
        result.distance or result.is_carried for result in node.results
    )


def _is_blind(node: Node) -> bool:
    """True if all results may be apart by half of their norm: no relative distance says anything then."""
    factor = 2.0 ** (DOUBT + limits_of(node)[0])
    return all(
        factor * math.hypot(result.given, ROUNDED_ONCE * result.unit_of(node.unit) * result.units) > _BLIND
        and not result.is_bad
        for result in node.results
    )
