"""Where bad values are born, followed over ranks: collectives and messages take them on, to ranks not at fault.

So does the reduction of gradients that a data-parallel wrapper makes itself, of which no call is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.bad_values import Watcher, worst
from msprobe.diagnose.check.exchange import Exchange, How, MatchedCalls, RankCalls, Results, Trouble
from msprobe.diagnose.steps import communication
from msprobe.diagnose.steps.communication import Rank, ranks_of_group
from msprobe.diagnose.steps.timeline import Event, Timeline

_NONE: frozenset[str] = frozenset()
_NO_TROUBLE = Trouble(_NONE, _NONE)


@dataclass
class Origin:
    """The first bad value of a rank, the call of that name that makes it, and whom it reached: rank -> the call there
    that got it.

    ``in_gradient``: it comes in by a gradient after the backward pass. ``layer``: how many calls it takes to get there,
    counted along the longest way through calls of this rank and those of others that it waits for. ``first_bad``: of
    each rank that was reached, the first call that computes with it.
    """

    rank: Rank
    name: str
    value: str
    how: How
    reached: dict[Rank, str] = field(default_factory=dict)
    layer: int = 0
    in_gradient: bool = False
    first_bad: dict[Rank, str] = field(default_factory=dict)


def calls_of(timeline: Timeline, watcher: Watcher, with_results: bool = False) -> RankCalls:
    """What is to be kept of a rank to follow bad values over ranks; ``with_results``: and to compare what they get."""
    columns = _Columns(timeline.rank, with_results)
    seen: set[str] = set()
    is_born = False
    begins = True
    backward = max((place for place, name in enumerate(timeline.part.names()) if ".backward" in name), default=None)
    for event in timeline:
        given, made = watcher.given.get(event, _NONE), watcher.made.get(event, _NONE)
        is_late = _is_late(event, backward)
        arrives = is_late and bool(given) and given.isdisjoint(seen)
        columns.has_bad_gradient |= is_late and bool(given)
        if event.is_collective and event.direction != "backward":
            trouble = Trouble(given, made, "nan" in given and "nan" not in seen, in_gradient=arrives)
            columns.add(event, trouble if given or made else None, exchanges=True)
            begins = True
        elif given or made:
            moves = event.parts.kind == "api" and operation(event.stem) in operators.READS_MEMORY_OTHERWISE
            unexplained = "nan" in given and "nan" not in seen
            birth = None if is_born or (unexplained and moves) else _birth(watcher, event, unexplained, seen)
            if begins or birth is not None:
                columns.add(event, Trouble(given, made, birth=birth, in_gradient=arrives), exchanges=False)
            begins = False
            is_born |= birth is not None
            if unexplained and moves:
                continue  # It may be memory that is not filled yet; who computes with it will say.
        seen |= made
    return columns.whole(watcher, not (timeline.part.complete and timeline.part.ours))


def _is_late(event: Event, backward: int | None) -> bool:
    """True for what computes with gradients of parameters. ``backward``: the place of the last backward call."""
    return event.direction in ("gradient", "optimizer") or (
        event.direction == "forward" and backward is not None and event.place > backward
    )


def _birth(watcher: Watcher, event: Event, unexplained: bool, seen: set[str]) -> tuple[How, str] | None:
    """How a bad value comes from a call of a rank that had none before, and which."""
    given = watcher.given.get(event, _NONE)
    if unexplained:
        return "bad_input", "nan"
    birth = watcher.births.get(event)
    if birth is not None and not birth.dismissed:
        return "compute", birth.value
    if watcher.limits.every_infinity and given and given.isdisjoint(seen):
        return "bad_input", worst(given)
    return None


class _Columns:
    """The columns of :class:`RankCalls` while they grow."""

    def __init__(self, rank: Rank, with_results: bool) -> None:
        self._rank = rank
        self._results: list[Results] | None = [] if with_results else None
        self.has_bad_gradient = False
        self._rows: list[tuple[str, str, int, tuple[communication.Key, ...], tuple[int, ...], str]] = []
        self._troubles: list[tuple[int, Trouble]] = []

    def add(self, event: Event, trouble: Trouble | None, exchanges: bool) -> None:
        if trouble is not None:
            self._troubles.append((len(self._rows), trouble))
        keys = communication.keys(event, self._rank) if exchanges else ()
        group = ranks_of_group(event) if exchanges else ()
        form = communication.form(event) if exchanges else ""
        if self._results is not None:
            self._results.append(self._written(event) if exchanges else None)
        self._rows.append((event.name, communication.api(event), event.place, keys, group, form))

    def _written(self, event: Event) -> Results:
        if communication.api(event) not in operators.SAME_ON_ALL_RANKS or event.record.get("completed") is False:
            return None
        return tuple(communication.written(event, self._rank))

    def whole(self, watcher: Watcher, may_go_on: bool) -> RankCalls:
        names, words, places, keys, groups, forms = zip(*self._rows, strict=True) if self._rows else ((),) * 6
        return RankCalls(
            rank=self._rank,
            names=names,
            words=words,
            places=places,
            keys=keys,
            groups=groups,
            forms=forms,
            results=tuple(self._results or ()),
            troubles=tuple(self._troubles),
            has_trouble=watcher.any,
            has_bad_gradient=self.has_bad_gradient,
            matters=watcher.counts,
            dismissed=tuple(event.name for event, birth in watcher.births.items() if birth.dismissed),
            may_go_on=may_go_on,
        )


def origins(exchange: Exchange) -> list[Origin]:
    """Every birth that no other one explains, by layer and rank; nothing where no rank has a bad value."""
    if not any(calls.has_trouble for calls in exchange.calls):
        return []
    search = _Search(exchange)
    for node in exchange.in_order():
        search.look_at(node)
    return sorted(search.without_reduced_gradients(), key=lambda origin: (origin.layer, str(origin.rank)))


class _Search:
    """The calls of all ranks, one after the other: ``tainted`` has for each rank that has gone bad where from."""

    def __init__(self, exchange: Exchange) -> None:
        self.origins: list[Origin] = []
        self._calls = exchange.calls
        self._troubles = [dict(calls.troubles) for calls in exchange.calls]
        self._tainted: dict[int, Origin] = {}
        # The place and the layer of the last call of each rank. Calls that were left out count, too.
        self._last: list[tuple[int, int]] = [(-1, -1)] * len(exchange)

    def look_at(self, node: MatchedCalls) -> None:
        """The next calls in order."""
        layer = self._layer(node)
        if node.communicates:
            self._exchange(node, layer)
            return
        ((side, number),) = node.members()
        trouble, early = self._troubles[side][number], self._tainted.get(side)
        if early is not None:
            if early.rank != self._calls[side].rank:
                early.first_bad.setdefault(self._calls[side].rank, self._calls[side].names[number])
        elif trouble.birth is not None:
            self._begin(side, number, *trouble.birth, layer)

    def without_reduced_gradients(self) -> list[Origin]:
        """The origins without those that a bad gradient of another rank explains: a wrapper such as DDP reduces
        gradients by itself, behind the records of the backward pass.
        """
        bad = {calls.rank for calls in self._calls if calls.has_bad_gradient}
        sources = [origin for origin in self.origins if not origin.in_gradient and origin.rank in bad]
        if not sources:
            return self.origins
        source = min(sources, key=lambda origin: origin.layer)
        for origin in self.origins:
            if origin.in_gradient:
                source.reached.setdefault(origin.rank, origin.name)
                for table, further in ((source.reached, origin.reached), (source.first_bad, origin.first_bad)):
                    table.update({rank: name for rank, name in further.items() if rank not in {*table, source.rank}})
        return [origin for origin in self.origins if not origin.in_gradient]

    def _begin(self, side: int, number: int, how: How, value: str, layer: int, taints: bool = True) -> Origin:
        calls = self._calls[side]
        trouble = self._troubles[side].get(number, _NO_TROUBLE)
        origin = Origin(calls.rank, calls.names[number], value, how, layer=layer, in_gradient=trouble.in_gradient)
        self.origins.append(origin)
        if taints:
            self._tainted[side] = origin
        return origin

    def _layer(self, node: MatchedCalls) -> int:
        """The place of calls on the longest way to them."""
        layer = 0
        for side, number in node.members():
            before, level = self._last[side]
            layer = max(layer, level + max(self._calls[side].places[number] - before, 1))
        for side, number in node.members():
            self._last[side] = max(self._calls[side].places[number], self._last[side][0]), layer
        return layer

    def _exchange(self, node: MatchedCalls, layer: int) -> None:
        """What a collective carries from rank to rank, or makes itself."""
        members = [(side, number, self._troubles[side].get(number, _NO_TROUBLE)) for side, number in node.members()]
        givers = [(side, number, trouble) for side, number, trouble in members if trouble.given]
        getters = [(side, number, trouble) for side, number, trouble in members if trouble.made]
        for side, number, trouble in givers:
            if side not in self._tainted and trouble.unexplained:
                self._begin(side, number, "bad_input", "nan", layer)
        source = next((self._tainted[side] for side, _, _ in givers if side in self._tainted), None)
        fresh = [(side, number, trouble) for side, number, trouble in getters if side not in self._tainted]
        if source is None and not givers and fresh and node.whole:
            side, number, trouble = fresh[0]
            source = self._begin(side, number, "communication", worst(trouble.made), layer, taints=False)
        if source is None:
            return
        for side, number, _ in fresh:
            self._tainted[side] = source
            if self._calls[side].rank != source.rank:
                source.reached[self._calls[side].rank] = self._calls[side].names[number]
