"""Which calls of other ranks a communication call exchanged data with.

Calls answer to each other by their order: those of two ranks that send and receive, and those of one kind in one
process group. Words and shape of what is written: mindstudio-probe 8.1.1. A call without a group belongs to the default
one.

Those that exchanged data are one :class:`Meeting`, which all of them share, as each of 1,024 ranks that listed the
others would cost the square of their number in memory and in files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

from msprobe.compare.rank_runs import MOST_LISTED, in_runs

SENDS = frozenset(("send", "isend"))
RECEIVES = frozenset(("recv", "irecv"))
# One rank gives to all others, or all others to one; by the word that says which.
_FROM_ONE = {"broadcast": "src", "scatter": "src"}
_TO_ONE = {"gather": "dst", "reduce": "dst"}
_PLACE_OF_ONE = {"send": 1, "isend": 1, "recv": 1, "irecv": 1, "broadcast": 1, "reduce": 1, "scatter": 2, "gather": 2}
_DEFAULT_GROUP = "default"
SEND, RECEIVE, BOTH = "send", "receive", "send_receive"
_KNOWN_GROUPS = 4096


@dataclass(frozen=True)
class OneTransfer:
    """One transfer of a communication call: ``peer`` for those between two ranks, else the group's ``ranks``.

    ``api`` is the function (``isend`` inside of ``batch_isend_irecv``); ``sender`` the rank that gives to all or gets
    from all, None where there is none.
    """

    api: str
    peer: int | None
    group: str
    ranks: tuple[int, ...]
    sender: int | None


def exchanges_of(name: str, record: Any) -> tuple[OneTransfer, ...]:
    """The transfers of a forward call of ``torch.distributed``; none for other records."""
    words = name.split(".")
    if words[0] != "Distributed" or words[-1] != "forward" or not isinstance(record, Mapping):
        return ()
    api = words[1]
    arguments = record.get("input_args") or []
    keywords = record.get("input_kwargs") or {}
    group = _group(keywords.get("group")) or _group(record.get("process_group")) or (_DEFAULT_GROUP, ())
    if api == "batch_isend_irecv":
        listed = arguments[0] if arguments else keywords.get("p2p_op_list")
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            return ()
        return tuple(
            OneTransfer(
                str(operation_given.get("op")), peer, str(operation_given.get("group_id") or group[0]), (), None
            )
            for operation_given in listed
            if isinstance(operation_given, Mapping) and (peer := _whole(operation_given.get("peer"))) is not None
        )
    word = "dst" if api in SENDS else "src" if api in RECEIVES else _FROM_ONE.get(api) or _TO_ONE.get(api)
    other_rank = None
    if word is not None:
        place = _PLACE_OF_ONE[api]
        other_rank = _whole(keywords.get(word))
        if other_rank is None and place < len(arguments):
            other_rank = _whole(arguments[place])
    if api in SENDS or api in RECEIVES:
        # A receive from anyone: the recorder notes who it was.
        peer = other_rank if other_rank is not None else _whole(record.get("source_rank"))
        return () if peer is None else (OneTransfer(api, peer, group[0], (), None),)
    if not isinstance(arguments, list) or api in ("barrier", "monitored_barrier"):
        return ()
    return (OneTransfer(api, None, group[0], group[1], other_rank),)


def _group(leaf: Any) -> tuple[str, tuple[int, ...]] | None:
    if not isinstance(leaf, Mapping):
        return None
    ranks = leaf.get("group_ranks")
    members = tuple(rank for rank in ranks if type(rank) is int) if isinstance(ranks, list) else ()
    return _one_group(str(leaf.get("group_id") or ""), members)


@lru_cache(_KNOWN_GROUPS)
def _one_group(name: str, ranks: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """A group, which thousands of calls name, once in memory."""
    return name or str(list(ranks)), ranks


def _whole(leaf: Any) -> int | None:
    value = leaf.get("value") if isinstance(leaf, Mapping) else leaf
    return value if type(value) is int else None


@dataclass(frozen=True)
class CommunicationCall:
    """A communication call of one rank, in its order."""

    node: int
    name: str
    exchanges: tuple[OneTransfer, ...]


Rated = Callable[[int, int], str]
"""What is shown of a node of a rank: its index or overflow level, as text."""


@dataclass(eq=False)
class Meeting:
    """The calls that exchanged data with each other, by rank; ``rated`` is what is shown of them."""

    rated: Rated
    calls: dict[int, CommunicationCall] = field(default_factory=dict)

    def listed(self, rank: int) -> dict[str, list[str]]:
        """What is shown of the calls of other ranks than ``rank``, and their names, by rank: of all, or of
        ``MOST_LISTED``, those first of which there is something else to show than of most.
        """
        if len(self.calls) <= MOST_LISTED + 1:
            return {str(other): list(shown) for other, shown in self._shown.items() if other != rank}
        chosen = sorted(islice((other for other in self._rarest if other != rank), MOST_LISTED))
        return {str(other): list(self._shown[other]) for other in chosen}

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of the calls, each with its ranks as :func:`in_runs` gives them."""
        ranks_by_name: dict[str, list[int]] = {}
        for rank, call in self.calls.items():
            ranks_by_name.setdefault(call.name, []).append(rank)
        return {name: in_runs(ranks) for name, ranks in ranks_by_name.items()}

    @cached_property
    def _shown(self) -> dict[int, tuple[str, str]]:
        return {rank: (self.rated(rank, call.node), call.name) for rank, call in self.calls.items()}

    @cached_property
    def _rarest(self) -> list[int]:
        """Enough ranks for the list of each: those first of which there is something to show that few others have."""
        count = Counter(text for text, _ in self._shown.values())
        return sorted(self._shown, key=lambda rank: (count[self._shown[rank][0]], rank))[: MOST_LISTED + 1]


Transfer = tuple[str, Meeting]
"""One of the transfers of a call: ``send``, ``receive`` or ``send_receive``, and who took part in it."""


def transfers(
    ranks: Mapping[int, Sequence[CommunicationCall]], rated: Rated
) -> tuple[dict[int, dict[int, list[Transfer]]], int]:
    """For each rank, by node, the transfers that have another end; and how many between two ranks have none."""
    known: dict[Hashable, Meeting] = {}
    by_rank: dict[int, dict[int, list[Transfer]]] = {}
    pending: list[tuple[int, CommunicationCall, OneTransfer, Meeting]] = []
    for rank, calls in ranks.items():
        count: Counter[Hashable] = Counter()
        for call in calls:
            for exchange in call.exchanges:
                key = _key(rank, exchange)
                meeting = known.setdefault((key, count[key]), Meeting(rated))
                count[key] += 1
                meeting.calls[rank] = call
                pending.append((rank, call, exchange, meeting))
    alone = 0
    for rank, call, exchange, meeting in pending:
        if len(meeting.calls) > 1:
            by_rank.setdefault(rank, {}).setdefault(call.node, []).append((_kind(rank, exchange), meeting))
        elif exchange.peer is not None and exchange.peer != rank:
            alone += 1
    return by_rank, alone


class Partners(Mapping[int, Any]):
    """What files hold as ``matched_distributed`` of a rank, by node. It is made when it is asked for."""

    def __init__(self, rank: int, by_node: Mapping[int, list[Transfer]]) -> None:
        self._rank = rank
        self._by_node = by_node

    def __getitem__(self, node: int) -> Any:
        items = [self._item(kind, meeting) for kind, meeting in self._by_node[node]]
        return items[0] if len(items) == 1 else items

    def _item(self, kind: str, meeting: Meeting) -> dict[str, Any]:
        item: dict[str, Any] = {"communications_type": kind, "nodes_info": meeting.listed(self._rank)}
        if len(item["nodes_info"]) < len(meeting.calls) - 1:
            item["all_nodes"] = meeting.names
        return item

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)


def partners(ranks: Mapping[int, Sequence[CommunicationCall]], rated: Rated) -> tuple[dict[int, Partners], int]:
    """For each rank, by node, what files hold as ``matched_distributed``; and how many transfers found no partner.

    ``nodes_info`` lists the partners one by one. Where they are more than ``MOST_LISTED``, it has so many of them, and
    ``all_nodes`` the names of all nodes that took part, each with its ranks as text (:func:`in_runs`).
    """
    by_rank, alone = transfers(ranks, rated)
    return {rank: Partners(rank, by_node) for rank, by_node in by_rank.items()}, alone


def _key(rank: int, exchange: OneTransfer) -> Hashable:
    """The same for both ends of a transfer."""
    if exchange.peer is None:
        return exchange.group, exchange.api
    return ("to", rank, exchange.peer) if exchange.api in SENDS else ("to", exchange.peer, rank)


def _kind(rank: int, exchange: OneTransfer) -> str:
    if exchange.api in SENDS:
        return SEND
    if exchange.api in RECEIVES:
        return RECEIVE
    if exchange.api in _FROM_ONE:
        return SEND if exchange.sender == rank else RECEIVE
    if exchange.api in _TO_ONE:
        return RECEIVE if exchange.sender == rank else SEND
    return BOTH
