"""The first call, in the order of execution, that is further apart than its arguments and what healthy devices show."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msprobe.diagnose.measured.classes import Classes, shipped
from msprobe.diagnose.measured.nodes import ROUNDED_ONCE, SINGLE, UNTOLD, Node, nodes, product_units
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.told_units import Rounding, possible_rounding

#: In bits: one standard deviation of the logarithm of the distance, which is the root of a chi-square of eight draws:
#: sqrt(trigamma(4)) / (2 ln 2).
_SPREAD = 0.3843
#: So many deviations are passed once in 30,000 draws: about as many calls as ten steps of a network have.
_DOUBT = 4 * _SPREAD
#: In bits: the distance of a result may be so much beyond its class and that doubt, and so much what is coherent in it.
#: Sums that are kept in their own type, single precision, share terms from element to element, and so their errors:
#: there more is coherent. ``python -m tests.bugs.kernels.run --judge measured --margins`` prints the most that healthy
#: devices have, ``python -m bugs.kernels.shadow --only clean`` what is named in rewritten programs (docs/figures.md).
_LIMITS_OF_HALF, _LIMITS_OF_SINGLE = (0.3, 2.8), (0.3, 4.8)
#: So many calls are worth to be looked at once more.
_NEAREST = 20
#: A step is explained if no more than this share of its calls could not be judged.
_FEW_BLIND = 0.1
#: Why a call is not judged, where that hides nothing: its gradient is that of other calls as well, or of another one.
_BESIDE = frozenset(("several uses", "another node"))
#: Where a result may be apart by more than this share of its norm, nothing can be said of it.
_BLIND = 0.5


@dataclass(frozen=True)
class Unexplained:
    """A call whose results are ``distance`` and ``coherent`` bits beyond what its class has, of which the larger in
    relation to its limit counts.
    """

    node: Node
    distance: float
    coherent: float

    @property
    def beyond(self) -> float:
        """How many bits it is beyond the limits."""
        distance, coherent = limits_of(self.node)
        return max(self.distance - distance, self.coherent - coherent)


@dataclass(frozen=True)
class Judgement:
    """``first``: the first call that is not explained. ``explained``: those that are; what comes after the first is
    judged as well. ``calls``: how many there are with results that are numbers; ``not_judged``: of these, those that
    nothing can be said of, because rows are missing, whole numbers that they take differ, or what they are given
    differs by so much that anything may come out; ``blind``: the last of these alone. ``explains_all``: what
    differs is the result of a call that is explained, or (``from_outside``) comes into the step from elsewhere.
    ``nearest``: the calls that come nearest to their limits, or are beyond them, in the order of execution.
    """

    first: Unexplained | None
    calls: int
    not_judged: int
    blind: int = 0
    explains_all: bool = False
    from_outside: bool = False
    nearest: tuple[Event, ...] = ()
    explained: frozenset[Event] = frozenset()


def limits_of(node: Node) -> tuple[float, float]:
    """How many bits the distance and what is coherent may be beyond their class."""
    return _LIMITS_OF_SINGLE if node.unit <= SINGLE else _LIMITS_OF_HALF


def judge_step(
    pairing: Pairing,
    is_alone: bool,
    chosen: Callable[[Event], bool] | None = None,
    healthy: Mapping[str, float] | None = None,
) -> Judgement:
    """Judge the pairs of one step by the rows of both dumps. ``is_alone``: the runs have one rank. ``chosen``: whether
    a call follows from a choice that rounding may decide otherwise. ``healthy``: see :func:`most_beyond`.
    """
    found = [
        replace(node, excused=node.excused or "choice") if chosen is not None and chosen(node.event) else node
        for node in nodes(pairing, is_alone)
    ]
    return judge_nodes(found, shipped(), healthy, _possible(pairing))


def judge_nodes(
    found: Sequence[Node],
    classes: Classes,
    healthy: Mapping[str, float] | None = None,
    possible: Mapping[str, Rounding] = UNTOLD,
) -> Judgement:
    """Judge calls in the order of execution. ``healthy``: see :func:`most_beyond`. ``possible``: see
    :func:`msprobe.diagnose.measured.nodes.product_units`.
    """
    units = product_units(found, possible)
    first: Unexplained | None = None
    explained: list[Event] = []
    calls = not_judged = blind = 0
    explains_all, from_outside = bool(found), False
    sizes: list[tuple[float, int, Event]] = []
    for node in found:
        from_outside |= node.from_outside
        if not node.results and not node.excused:
            continue
        calls += 1
        if node.excused or _is_blind(node):
            not_judged += 1
            blind += not node.excused
            explains_all &= not node.excused or node.excused in _BESIDE or _is_same(node)
            continue
        one = beyond_class(node, units, classes)
        if one.beyond > -math.inf:
            sizes.append((one.beyond, calls, node.event))
        if one.beyond <= (healthy.get(_kind(node), 0.0) if healthy else 0.0):
            # Where all rows are the same, they explain no difference that is recorded.
            if any(result.distance for result in node.results):
                explained.append(node.event)
        elif first is None:
            first = one
    explains_all &= first is None and blind <= _FEW_BLIND * calls
    largest = heapq.nlargest(_NEAREST, sizes, key=lambda size: size[:2])
    nearest = tuple(event for _, _, event in sorted(largest, key=lambda size: size[1]))
    return Judgement(first, calls, not_judged, blind, explains_all, from_outside, nearest, frozenset(explained))


def most_beyond(pairing: Pairing, is_alone: bool) -> dict[str, float]:
    """How many bits the calls of a healthy pair are beyond the limits, at the most, by operator and direction; only
    those that are. A candidate may be as much.
    """
    found = list(nodes(pairing, is_alone))
    units, classes = product_units(found, _possible(pairing)), shipped()
    most: dict[str, float] = {}
    for node in found:
        if node.results and not node.excused and not _is_blind(node):
            beyond = beyond_class(node, units, classes).beyond
            if beyond > 0.0:
                most[_kind(node)] = max(beyond, most.get(_kind(node), 0.0))
    return most


def _possible(pairing: Pairing) -> dict[str, Rounding]:
    return possible_rounding(pairing.candidate.part.ours, pairing.reference.part.ours)


def _kind(node: Node) -> str:
    return f"{node.operation} {node.direction}"


def beyond_class(node: Node, units: Mapping[str, float], classes: Classes) -> Unexplained:
    """How far a call is beyond its class. ``units``: of products in single precision, where not that of their type."""
    (distance, coherent), usual = node.excess(units.get(node.product, 0.0), _DOUBT), classes.usual(node)
    return Unexplained(node, distance - usual[0], coherent - usual[1])


def _is_same(node: Node) -> bool:
    """True if all that a call gives is known, and the same."""
    return node.excused not in ("arguments", "results") and not any(one.distance for one in node.results)


def _is_blind(node: Node) -> bool:
    """True if all results may be apart by half of their norm: no relative distance says anything then."""
    factor = 2.0 ** (_DOUBT + limits_of(node)[0])
    return all(
        factor * math.hypot(one.given, ROUNDED_ONCE * node.unit * one.units) > _BLIND and not one.is_bad
        for one in node.results
    )
