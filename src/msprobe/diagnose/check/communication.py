"""How the ranks of a step depend on each other: which calls belong together, and an order that respects them.

Collectives: the n-th call of an API over the same group is the same on all its ranks. Messages: the n-th ``send`` from
one rank to another answers to the n-th ``recv`` there of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.values import argument
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor
from msprobe.diagnose.wording import Wording

Rank = int | str

#: API -> (position and keyword of what is read, of what is written).
_READS: dict[str, tuple[int, str]] = {
    "all_reduce": (0, "tensor"),
    "broadcast": (0, "tensor"),
    "reduce": (0, "tensor"),
    "all_gather": (1, "tensor"),
    "all_gather_into_tensor": (1, "input_tensor"),
    "_all_gather_base": (1, "input_tensor"),
    "reduce_scatter": (1, "input_list"),
    "reduce_scatter_tensor": (1, "input"),
    "_reduce_scatter_base": (1, "input"),
    "all_to_all": (1, "input_tensor_list"),
    "all_to_all_single": (1, "input"),
    "gather": (0, "tensor"),
    "scatter": (1, "scatter_list"),
    "send": (0, "tensor"),
    "isend": (0, "tensor"),
}
_WRITES: dict[str, tuple[int, str]] = {
    "all_reduce": (0, "tensor"),
    "broadcast": (0, "tensor"),
    "reduce": (0, "tensor"),
    "all_gather": (0, "tensor_list"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "_all_gather_base": (0, "output_tensor"),
    "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "_reduce_scatter_base": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
    "gather": (1, "gather_list"),
    "scatter": (0, "tensor"),
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
}


def api(event: Event) -> str:
    """The name of a collective without its prefix."""
    return event.stem.rpartition(".")[2]


def root(event: Event) -> int | None:
    """The rank that a rooted collective goes from or to, or the partner of a message."""
    word = api(event)
    keyword = "dst" if word in ("reduce", "gather", *operators.SENDS) else "src"
    position = {"gather": 2, "scatter": 2}.get(word, 1)
    found = argument(event, position, keyword)
    if found is None:
        found = argument(event, position, f"group_{keyword}")
    if found is None and word in ("gather", "scatter"):
        found = 0
    return found if isinstance(found, int) else None


def group(event: Event, everyone: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that take part in a collective; all of the dump where the record does not say."""
    for found in (event.record.get("process_group"), (event.record.get("input_kwargs") or {}).get("group")):
        ranks = found.get("group_ranks") if isinstance(found, dict) else None
        if isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks):
            return tuple(ranks)
    return everyone


def read(event: Event, rank: Rank) -> list[dict[str, Any]]:
    """The tensors that a collective takes on this rank; buffers that it writes to are none of them."""
    word = api(event)
    if word not in _READS:
        return []
    if word in ("broadcast", "scatter") and root(event) not in (rank, None):
        return []
    return _part(event.inputs(), "input", *_READS[word])


def written(event: Event, rank: Rank) -> list[dict[str, Any]]:
    """The tensors that a collective makes on this rank."""
    word = api(event)
    if word not in _WRITES or (word in ("reduce", "gather") and root(event) not in (rank, None)):
        return []
    position, _ = _WRITES[word]
    found = _part(event.outputs(), "output", *_WRITES[word])
    return found or ([leaf for _, leaf in event.outputs() if is_tensor(leaf)] if position == 0 else [])


def _part(slots: Sequence[Slot], head: str, position: int, keyword: str) -> list[dict[str, Any]]:
    wanted = (f"{head}.{position}.", f"{head}.{keyword}.")
    return [leaf for slot, leaf in slots if is_tensor(leaf) and f"{slot}.".startswith(wanted)]


@dataclass
class Node:
    """Calls that belong together, by rank; one call alone where nothing else does. ``whole``: none is missing."""

    members: dict[Rank, Event]
    communicates: bool = False
    whole: bool = True


@dataclass
class Exchange:
    """The collectives and messages of a step, matched. ``of`` leads from a call to its node."""

    timelines: Mapping[Rank, Timeline]
    of: dict[Event, Node] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        everyone = tuple(sorted(rank for rank in self.timelines if isinstance(rank, int)))
        sets: dict[tuple[Any, ...], Node] = {}
        for rank, timeline in self.timelines.items():
            counts: dict[tuple[Any, ...], int] = defaultdict(int)
            for event in timeline:
                if not event.is_collective or event.direction == "backward":
                    continue
                key = self._key(event, rank, everyone)
                counts[key] += 1
                node = sets.get((*key, counts[key]))
                if node is None:
                    node = sets[(*key, counts[key])] = Node({}, True)
                    self.nodes.append(node)
                node.members[rank] = event
                self.of[event] = node
        for key, node in sets.items():
            expected = set(key[1]) & set(self.timelines)
            node.whole = expected == set(node.members)

    def _key(self, event: Event, rank: Rank, everyone: tuple[int, ...]) -> tuple[Any, ...]:
        word = api(event)
        if word in operators.SENDS or word in operators.RECEIVES:
            partner = root(event)
            pair = (rank, partner) if word in operators.SENDS else (partner, rank)
            return "message", pair, argument(event, 3, "tag") or 0
        return word, group(event, everyone)

    def remarks(self) -> list[str]:
        """Ranks that groups name and the dump does not have, and the first call that some rank of a group lacks."""
        found: list[str] = []
        named = {rank for event in self.of for rank in group(event, ())}
        absent = sorted(named - {rank for rank in self.timelines if isinstance(rank, int)})
        if absent and any(isinstance(rank, int) for rank in self.timelines):
            listed = ", ".join(map(str, absent))
            found.append(Wording("groups name ranks that are not in the dump: {}; what they did is not known", listed))
        for node in self.nodes:
            event = next(iter(node.members.values()))
            missing = sorted(set(group(event, ())) & set(self.timelines) - set(node.members), key=str)
            if missing and not node.whole:
                listed = ", ".join(map(str, missing))
                found.append(
                    Wording(
                        "{} has no answer on rank {}: the ranks made or recorded different numbers of {} calls",
                        event.name,
                        listed,
                        api(event),
                    )
                )
                break
        return found

    def in_order(self) -> Iterator[Node]:
        """All calls of all ranks so that nothing comes before what it waits for."""
        places = dict.fromkeys(self.timelines, 0)
        arrived: set[int] = set()
        done: set[int] = set()
        while True:
            moved = False
            for rank, timeline in self.timelines.items():
                events = timeline.events
                while places[rank] < len(events):
                    event = events[places[rank]]
                    node = self.of.get(event)
                    if node is None:
                        yield Node({rank: event})
                    elif id(node) not in done:
                        arrived.add(id(event))
                        waits = [one for other, one in node.members.items() if id(one) not in arrived]
                        # Who sends does not wait.
                        sender_waits = any(operation(one.stem) not in operators.SENDS for one in waits)
                        if waits and not (operation(event.stem) in operators.SENDS and sender_waits):
                            break
                        if not waits:
                            done.add(id(node))
                            yield node
                    places[rank] += 1
                    moved = True
            if not moved:
                stuck = [rank for rank, timeline in self.timelines.items() if places[rank] < len(timeline.events)]
                if not stuck:
                    return
                # Calls that wait for each other in a circle, or for a call that was not recorded.
                rank = stuck[0]
                event = self.timelines[rank].events[places[rank]]
                node = self.of[event]
                if id(node) not in done:
                    done.add(id(node))
                    yield node
                places[rank] += 1
