"""Which calls of other ranks a communication call exchanged data with.

Calls answer to each other by their order: those of two ranks that send and receive, and those of one kind in one
process group. Words and shape of what is written: mindstudio-probe 8.1.1. A call without a group belongs to the default
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SENDS = frozenset(("send", "isend"))
RECEIVES = frozenset(("recv", "irecv"))
# One rank gives to all others, or all others to one; by the word that says which.
_FROM_ONE = {"broadcast": "src", "scatter": "src"}
_TO_ONE = {"gather": "dst", "reduce": "dst"}
_PLACE_OF_ONE = {"send": 1, "isend": 1, "recv": 1, "irecv": 1, "broadcast": 1, "reduce": 1, "scatter": 2, "gather": 2}
_DEFAULT_GROUP = "default"
SEND, RECEIVE, BOTH = "send", "receive", "send_receive"


@dataclass(frozen=True)
class Exchange:
    """One transfer of a communication call: ``peer`` for those between two ranks, else the group's ``ranks``.

    ``api`` is the function (``isend`` inside of ``batch_isend_irecv``); ``one`` the rank that gives to all or gets from
    all, None where there is none.
    """

    api: str
    peer: int | None
    group: str
    ranks: tuple[int, ...]
    one: int | None


def exchanges_of(name: str, record: Any) -> tuple[Exchange, ...]:
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
            Exchange(str(one.get("op")), peer, str(one.get("group_id") or group[0]), (), None)
            for one in listed
            if isinstance(one, Mapping) and (peer := _whole(one.get("peer"))) is not None
        )
    word = "dst" if api in SENDS else "src" if api in RECEIVES else _FROM_ONE.get(api) or _TO_ONE.get(api)
    one = None
    if word is not None:
        place = _PLACE_OF_ONE[api]
        one = _whole(keywords.get(word))
        if one is None and place < len(arguments):
            one = _whole(arguments[place])
    if api in SENDS or api in RECEIVES:
        # A receive from anyone: the recorder notes who it was.
        peer = one if one is not None else _whole(record.get("source_rank"))
        return () if peer is None else (Exchange(api, peer, group[0], (), None),)
    if not isinstance(arguments, list) or api in ("barrier", "monitored_barrier"):
        return ()
    return (Exchange(api, None, group[0], group[1], one),)


def _group(leaf: Any) -> tuple[str, tuple[int, ...]] | None:
    if not isinstance(leaf, Mapping):
        return None
    ranks = leaf.get("group_ranks")
    found = tuple(rank for rank in ranks if type(rank) is int) if isinstance(ranks, list) else ()
    return str(leaf.get("group_id") or list(found)), found


def _whole(leaf: Any) -> int | None:
    value = leaf.get("value") if isinstance(leaf, Mapping) else leaf
    return value if type(value) is int else None


@dataclass(frozen=True)
class Call:
    """A communication call of one rank, in its order."""

    node: int
    name: str
    exchanges: tuple[Exchange, ...]


Rated = Callable[[int, int], str]
"""What is shown of a node of a rank: its index or overflow level, as text."""


def partners(ranks: Mapping[int, Sequence[Call]], rated: Rated) -> tuple[dict[int, dict[int, Any]], int]:
    """For each rank, by node, what files hold as ``matched_distributed``; and how many transfers found no partner."""
    known: dict[Hashable, dict[int, Call]] = {}
    todo: list[tuple[int, Call, list[tuple[Exchange, Hashable]]]] = []
    for rank, calls in ranks.items():
        count: Counter[Hashable] = Counter()
        for call in calls:
            keyed: list[tuple[Exchange, Hashable]] = []
            for exchange in call.exchanges:
                key = _key(rank, exchange)
                full: Hashable = (key, count[key])
                count[key] += 1
                known.setdefault(full, {})[rank] = call
                keyed.append((exchange, full))
            todo.append((rank, call, keyed))
    found: dict[int, dict[int, Any]] = {}
    alone = 0
    for rank, call, keyed in todo:
        items = []
        for exchange, full in keyed:
            others = {
                str(other): [rated(other, there.node), there.name]
                for other, there in known[full].items()
                if other != rank
            }
            if exchange.peer is not None and exchange.peer != rank and not others:
                alone += 1
            if others:
                items.append({"communications_type": _kind(rank, exchange), "nodes_info": others})
        if items:
            found.setdefault(rank, {})[call.node] = items[0] if len(items) == 1 else items
    return found, alone


def _key(rank: int, exchange: Exchange) -> Hashable:
    """The same for both ends of a transfer."""
    if exchange.peer is None:
        return exchange.group, exchange.api
    return ("to", rank, exchange.peer) if exchange.api in SENDS else ("to", exchange.peer, rank)


def _kind(rank: int, exchange: Exchange) -> str:
    if exchange.api in SENDS:
        return SEND
    if exchange.api in RECEIVES:
        return RECEIVE
    if exchange.api in _FROM_ONE:
        return SEND if exchange.one == rank else RECEIVE
    if exchange.api in _TO_ONE:
        return RECEIVE if exchange.one == rank else SEND
    return BOTH
