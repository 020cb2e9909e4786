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
_BATCH = "batch_isend_irecv"


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
    if found is None and word in operators.RECEIVES:
        found = event.record.get("source_rank")  # whoever it was
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
    if word == _BATCH:
        return _batched(event, "input_args", operators.SENDS)
    if word not in _READS:
        return []
    if word in ("broadcast", "scatter") and root(event) not in (rank, None):
        return []
    return _part(event.inputs(), "input", *_READS[word])


def written(event: Event, rank: Rank) -> list[dict[str, Any]]:
    """The tensors that a collective makes on this rank."""
    word = api(event)
    if word == _BATCH:
        return _batched(event, "output", operators.RECEIVES)
    if word not in _WRITES or (word in ("reduce", "gather") and root(event) not in (rank, None)):
        return []
    position, _ = _WRITES[word]
    found = _part(event.outputs(), "output", *_WRITES[word])
    return found or ([leaf for _, leaf in event.outputs() if is_tensor(leaf)] if position == 0 else [])


def _part(slots: Sequence[Slot], head: str, position: int, keyword: str) -> list[dict[str, Any]]:
    wanted = (f"{head}.{position}.", f"{head}.{keyword}.")
    return [leaf for slot, leaf in slots if is_tensor(leaf) and f"{slot}.".startswith(wanted)]


def _keys(event: Event, rank: Rank, everyone: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """What a call exchanges: the same keys, in the same order, stand for the same exchange on all ranks."""
    word = api(event)
    if word == _BATCH:
        found = [
            _message(rank, one["peer"], one.get("op"), one.get("tag"))
            for one in _operations(event, "input_args")
            if isinstance(one.get("peer"), int)
        ]
        if found:
            return found
    if word in operators.SENDS or word in operators.RECEIVES:
        return [_message(rank, root(event), word, argument(event, 3, "tag"))]
    return [(word, group(event, everyone))]


def _message(rank: Rank, partner: int | None, word: object, tag: object) -> tuple[Any, ...]:
    pair = (rank, partner) if word in operators.SENDS else (partner, rank)
    return "message", pair, tag or 0


def _operations(event: Event, part: str) -> list[dict[str, Any]]:
    """The messages of a ``batch_isend_irecv``, as they were before or after it."""
    listed = event.record.get(part)
    first = listed[0] if isinstance(listed, list) and listed else None
    return [one for one in first if isinstance(one, dict)] if isinstance(first, list) else []


def _batched(event: Event, part: str, words: frozenset[str]) -> list[dict[str, Any]]:
    found = [one.get("tensor") for one in _operations(event, part) if one.get("op") in words]
    return [leaf for leaf in found if isinstance(leaf, dict) and is_tensor(leaf)]


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
                numbered = []
                for key in _keys(event, rank, everyone):
                    counts[key] += 1
                    numbered.append((*key, counts[key]))
                node = self._joined(sets, numbered, rank)
                node.members[rank] = event
                self.of[event] = node
        for key, node in sets.items():
            node.whole &= set(key[1]) & set(self.timelines) <= set(node.members)
        self._from_anybody()

    def _from_anybody(self) -> None:
        """A receive that names no sender takes the first message to its rank that nobody has taken."""
        for node in [node for node in self.nodes if len(node.members) == 1]:
            ((rank, event),) = node.members.items()
            if api(event) not in operators.RECEIVES or root(event) is not None:
                continue
            for other in self.nodes:
                sender = next(iter(other.members.values()))
                if len(other.members) == 1 and api(sender) in operators.SENDS and root(sender) == rank:
                    other.members[rank], other.whole = event, True
                    self.of[event] = other
                    self.nodes.remove(node)
                    break

    def _joined(self, sets: dict[tuple[Any, ...], Node], keys: list[tuple[Any, ...]], rank: Rank) -> Node:
        """The node of a call that exchanges what the keys say; several become one, unless a rank has two calls then."""
        node: Node | None = None
        for key in keys:
            other = sets.get(key)
            if other is None or rank in other.members:
                continue
            if node is None:
                node = other
            elif other is not node and node.members.keys().isdisjoint(other.members):
                node.members.update(other.members)
                self.of.update(dict.fromkeys(other.members.values(), node))
                sets.update({each: node for each, one in sets.items() if one is other})
                self.nodes.remove(other)
        if node is None:
            node = Node({}, True)
            self.nodes.append(node)
        for key in keys:
            sets.setdefault(key, node)
        return node

    def unmatched(self) -> list[tuple[Rank, str]]:
        """Rank and name of the calls that some rank of their group does not answer."""
        return [(rank, event.name) for node in self.nodes if not node.whole for rank, event in node.members.items()]

    def mismatch(self) -> str | None:
        """The first collective whose ranks give tensors of different types or shapes, where they must be alike."""
        for node in self.nodes:
            first = next(iter(node.members.values()))
            if len(node.members) < 2 or api(first) not in operators.ALIKE_ON_ALL_RANKS:
                continue
            forms: dict[str, list[Rank]] = {}
            for rank, event in node.members.items():
                position, keyword = _READS[api(event)]
                leaves = _part(event.inputs(), "input", position, keyword)
                told = "; ".join(f"{leaf.get('dtype')} {leaf.get('shape')}" for leaf in leaves)
                if told:
                    forms.setdefault(told, []).append(rank)
            if len(forms) > 1:
                told = ", ".join(f"{form} (rank {', '.join(map(str, ranks))})" for form, ranks in forms.items())
                return Wording("the ranks take part in {} with different tensors: {}", first.name, told)
        return None

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
