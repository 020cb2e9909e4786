"""Where bad values are born, followed over ranks: collectives and messages take them on, to ranks not at fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.bad_values import Watcher, worst
from msprobe.diagnose.check.communication import Exchange, Node, Rank
from msprobe.diagnose.steps.timeline import Event

How = Literal["compute", "communication", "bad_input"]


@dataclass
class Origin:
    """The first bad value of a rank, and whom it reached: rank -> the call there that got it.

    ``layer``: how many calls it takes to get there, counted along the longest way through calls of this rank and those
    of others that it waits for. ``first_bad``: of each rank that was reached, the first call that computes with it.
    """

    rank: Rank
    event: Event
    value: str
    how: How
    reached: dict[Rank, Event] = field(default_factory=dict)
    layer: int = 0
    first_bad: dict[Rank, Event] = field(default_factory=dict)


def origins(exchange: Exchange, watchers: Mapping[Rank, Watcher]) -> list[Origin]:
    """Every birth that no other one explains, by layer and rank."""
    found: list[Origin] = []
    layers = _Layers()
    tainted: dict[Rank, Origin] = {}
    seen: dict[Rank, set[str]] = {rank: set() for rank in watchers}
    for node in exchange.in_order():
        known = len(found)
        layer = layers.of(node)
        if node.communicates:
            _exchange(node, watchers, tainted, seen, found)
            for origin in found[known:]:
                origin.layer = layer
            continue
        ((rank, event),) = node.members.items()
        watcher = watchers[rank]
        given = watcher.given.get(event, frozenset())
        made = watcher.made.get(event, frozenset())
        early = tainted.get(rank)
        if early is not None and early.rank != rank and (given or made):
            early.first_bad.setdefault(rank, event)
        if early is None and (given or made):
            birth = watcher.births.get(event)
            moves = event.parts.kind == "api" and operation(event.stem) in operators.READS_MEMORY_OTHERWISE
            if "nan" in given and "nan" not in seen[rank]:
                if moves:
                    continue  # It may be memory that is not filled yet; who computes with it will tell.
                tainted[rank] = Origin(rank, event, "nan", "bad_input", layer=layer)
                found.append(tainted[rank])
            elif birth is not None and not birth.dismissed:
                tainted[rank] = Origin(rank, event, birth.value, "compute", layer=layer)
                found.append(tainted[rank])
            elif watcher.limits.every_infinity and given and given.isdisjoint(seen[rank]):
                tainted[rank] = Origin(rank, event, worst(given), "bad_input", layer=layer)
                found.append(tainted[rank])
        seen[rank] |= made
    return sorted(found, key=lambda origin: (origin.layer, str(origin.rank)))


class _Layers:
    """The place of each call on the longest way to it. Calls that were left out when a dump was read count, too."""

    def __init__(self) -> None:
        self._last: dict[Rank, tuple[int, int]] = {}

    def of(self, node: Node) -> int:
        """The layer of the next node in order."""
        layer = 0
        for rank, event in node.members.items():
            index, level = self._last.get(rank, (-1, -1))
            layer = max(layer, level + max(event.place - index, 1))
        for rank, event in node.members.items():
            self._last[rank] = max(event.place, self._last.get(rank, (-1, -1))[0]), layer
        return layer


def _exchange(
    node: Node,
    watchers: Mapping[Rank, Watcher],
    tainted: dict[Rank, Origin],
    seen: dict[Rank, set[str]],
    found: list[Origin],
) -> None:
    """What a collective carries from rank to rank, or makes itself."""
    givers = [rank for rank, event in node.members.items() if watchers[rank].given.get(event)]
    getters = [rank for rank, event in node.members.items() if watchers[rank].made.get(event)]
    for rank in givers:
        if rank not in tainted and "nan" in watchers[rank].given[node.members[rank]] and "nan" not in seen[rank]:
            tainted[rank] = Origin(rank, node.members[rank], "nan", "bad_input")
            found.append(tainted[rank])
    source = next((tainted[rank] for rank in givers if rank in tainted), None)
    fresh = [rank for rank in getters if rank not in tainted]
    if source is None and not givers and fresh and node.whole:
        rank = fresh[0]
        event = node.members[rank]
        kinds = watchers[rank].made[event]
        source = Origin(rank, event, worst(kinds), "communication")
        found.append(source)
    for rank in fresh:
        if source is not None:
            tainted[rank] = source
            if rank != source.rank:
                source.reached[rank] = node.members[rank]
    for rank in getters:
        seen[rank] |= watchers[rank].made[node.members[rank]]
