"""What the calls of one operator show together: a kernel that is wrong is wrong in most of them.

How far one call is apart is estimated from eight draws, and its limit leaves room for that. The middle one of several
calls is in doubt by less, and no single call moves it: what one call does by itself is found by its own limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msprobe.diagnose.measured.classes import Classes
from msprobe.diagnose.measured.healthy import NOT_MEASURED, Group, HealthyCalls
from msprobe.diagnose.measured.node import DOUBT, FEW_ELEMENTS, SINGLE, Node

#: Of fewer calls the middle one is one of the outer two.
_FEWEST = 3
#: How far the median of n draws is off, over how far their mean is: sqrt(pi / 2).
_OFF_BY_MEDIAN = 1.2533
#: In bits: the middle of the distances may be so much beyond its class and that doubt, and so much the middle of what
#: is coherent beyond its class. In single precision elements share terms, and so their errors. ``python -m
#: tests.bugs.kernels.run --judge measured --margins`` prints the most that healthy devices have.
_LIMITS_OF_HALF, _LIMITS_OF_SINGLE = (0.4, 2.3), (1.1, 2.4)
#: In bits: the same beyond the middle ones of a healthy pair, or beyond the class where these are within it, in half
#: types. ``python -m tests.bugs.kernels.run --noise`` names the healthy devices that are called different.
_BESIDE_HEALTHY = 0.4, 1.1
#: The first call that has so much of the limit of all is where it begins.
_SHOWS = 0.5
#: No call is beyond its limits by itself.
_NONE_ALONE = (math.inf, "")
_Size = tuple[float, float]


class TogetherBeyond(NamedTuple):
    """Of ``calls`` calls of an operator, together beyond their limits by so many bits, the first that shows it."""

    group: Group
    place: int
    first: Node
    calls: int
    beyond: float


def limits_together(node: Node) -> tuple[float, float]:
    """How many bits the middle one of calls like this may be beyond its class, in distance and in what is coherent."""
    return _LIMITS_OF_SINGLE if node.unit <= SINGLE else _LIMITS_OF_HALF


def kind_of_call(node: Node) -> str:
    """Operator and direction."""
    return f"{node.operation} {node.direction}"


class CallsTogether:
    """Calls of one step that can be judged, by operator, direction and precision."""

    def __init__(self) -> None:
        self._calls: dict[Group, list[tuple[int, Node]]] = {}

    def add(self, place: int, node: Node) -> None:
        """Add a call, in the order of execution."""
        if all(result.count >= FEW_ELEMENTS for result in node.results):
            self._calls.setdefault((kind_of_call(node), node.unit <= SINGLE), []).append((place, node))

    def groups(self) -> Iterator[list[Node]]:
        """The calls of each operator that are enough to be judged together."""
        yield from ([node for _, node in calls] for calls in self._calls.values() if len(calls) >= _FEWEST)

    def beyond(
        self,
        units: Mapping[str, float],
        classes: Classes,
        healthy: HealthyCalls = NOT_MEASURED,
        alone: tuple[float, str] = _NONE_ALONE,
    ) -> Iterator[TogetherBeyond]:
        """The operators whose calls are beyond their limits. ``alone``: place and kind of the first call that is beyond
        its limits by itself; what other operators show behind it may come of it.
        """
        for group, calls in self._calls.items():
            if group[0] != alone[1]:
                calls = [call for call in calls if call[0] < alone[0]]
            if len(calls) < _FEWEST:
                continue
            nodes = [node for _, node in calls]
            sizes, limits = _sizes(nodes, units, classes), _limits(group, nodes, healthy)
            beyond = [size - limit for size, limit in zip(_middle(sizes), limits, strict=True)]
            most = max(beyond)
            if most > 0.0:
                which = beyond.index(most)
                # The middle one has more than that, so there is one.
                first = next(
                    call for call, size in zip(calls, sizes, strict=True) if size[which] > _SHOWS * limits[which]
                )
                yield TogetherBeyond(group, *first, len(calls), most)

    def middles(self, units: Mapping[str, float], classes: Classes) -> dict[Group, _Size]:
        """Of each operator the middle one's size, see :func:`middle_of`."""
        return {
            group: middle_of([node for _, node in calls], units, classes)
            for group, calls in self._calls.items()
            if len(calls) >= _FEWEST
        }


def _limits(group: Group, nodes: Sequence[Node], healthy: HealthyCalls) -> _Size:
    """How many bits the middle one of these calls may be beyond its class, as a healthy pair raises or lowers it."""
    usual, shown = limits_together(nodes[0]), healthy.together.get(group)
    if shown is None:
        return usual
    limits: Sequence[float] = usual
    if nodes[0].unit > SINGLE and all(healthy.is_like(node, group[0]) for node in nodes):
        pairs = zip(usual, shown, _BESIDE_HEALTHY, strict=True)
        limits = [min(limit, max(size, 0.0) + beside) for limit, size, beside in pairs]
    return max(limits[0], shown[0]), max(limits[1], shown[1])


def middle_of(nodes: Sequence[Node], units: Mapping[str, float], classes: Classes) -> _Size:
    """How many bits the middle one of these calls of an operator is beyond its class: in distance, less what is in
    doubt of it, and in what is coherent.
    """
    return _middle(_sizes(nodes, units, classes))


def _sizes(nodes: Sequence[Node], units: Mapping[str, float], classes: Classes) -> list[_Size]:
    doubt = DOUBT * _OFF_BY_MEDIAN / math.sqrt(len(nodes))
    usual = classes.usual(nodes[0])
    excesses = [node.excess(units.get(node.product, 0.0), doubt) for node in nodes]
    return [(excess[0] - usual[0], excess[1] - usual[1]) for excess in excesses]


def _middle(sizes: Sequence[_Size]) -> _Size:
    middle = (len(sizes) - 1) // 2
    return sorted(size[0] for size in sizes)[middle], sorted(size[1] for size in sizes)[middle]
