"""What a call that exchanges data between ranks reads and writes, with whom, and what it belongs together with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msprobe.diagnose import operators
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.collective_places import READS, WRITES
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor

Rank = int | str
#: What stands for one exchange: the API alone (with the same group), or "message", who sends to whom, and the tag.
Key = tuple[Any, ...]

_BATCH = "batch_isend_irecv"


def api(event: Event) -> str:
    """The name of a collective without its prefix."""
    return event.stem.rpartition(".")[2]


def root(event: Event) -> int | None:
    """The rank that a rooted collective goes from or to, or the partner of a message."""
    word = api(event)
    keyword = "dst" if word in ("reduce", "gather", *operators.SENDS) else "src"
    position = {"gather": 2, "scatter": 2}.get(word, 1)
    value = argument(event, position, keyword)
    if value is None:
        value = argument(event, position, f"group_{keyword}")
    if value is None and word in ("gather", "scatter"):
        value = 0
    if value is None and word in operators.RECEIVES:
        value = event.record.get("source_rank")  # whoever it was
    return value if isinstance(value, int) else None


def read(event: Event, rank: Rank) -> list[dict[str, Any]]:
    """The tensors that a collective takes on this rank; buffers that it writes to are none of them."""
    word = api(event)
    if word == _BATCH:
        return _batched(event, "input_args", operators.SENDS)
    if word not in READS:
        return []
    if word in ("broadcast", "scatter") and root(event) not in (rank, None):
        return []
    return _part(event.inputs(), "input", *READS[word])


def written(event: Event, rank: Rank) -> list[dict[str, Any]]:
    """The tensors that a collective makes on this rank."""
    word = api(event)
    if word == _BATCH:
        return _batched(event, "output", operators.RECEIVES)
    if word not in WRITES or (word in ("reduce", "gather") and root(event) not in (rank, None)):
        return []
    position, _ = WRITES[word]
    tensors = _part(event.outputs(), "output", *WRITES[word])
    return tensors or ([leaf for _, leaf in event.outputs() if is_tensor(leaf)] if position == 0 else [])


def _part(slots: Sequence[Slot], head: str, position: int, keyword: str) -> list[dict[str, Any]]:
    wanted = (f"{head}.{position}.", f"{head}.{keyword}.")
    return [leaf for slot, leaf in slots if is_tensor(leaf) and f"{slot}.".startswith(wanted)]


def keys(event: Event, rank: Rank) -> tuple[Key, ...]:
    """What a call exchanges: the same keys, in the same order, stand for the same exchange on all ranks."""
    word = api(event)
    if word == _BATCH:
        keys_of_batch = tuple(
            _message(rank, operation["peer"], operation.get("op"), operation.get("tag"))
            for operation in _operations(event, "input_args")
            if isinstance(operation.get("peer"), int)
        )
        if keys_of_batch:
            return keys_of_batch
    if word in operators.SENDS or word in operators.RECEIVES:
        return (_message(rank, root(event), word, argument(event, 3, "tag")),)
    return ((word,),)


def form(event: Event) -> str:
    """Types and shapes of what a rank gives to a collective to which all ranks give the same; else an empty text."""
    word = api(event)
    if word not in operators.ALIKE_ON_ALL_RANKS:
        return ""
    leaves = _part(event.inputs(), "input", *READS[word])
    return "; ".join(f"{leaf.get('dtype')} {leaf.get('shape')}" for leaf in leaves)


def _message(rank: Rank, partner: int | None, word: object, tag: object) -> Key:
    pair = (rank, partner) if word in operators.SENDS else (partner, rank)
    return "message", pair, tag or 0


def _operations(event: Event, part: str) -> list[dict[str, Any]]:
    """The messages of a ``batch_isend_irecv``, as they were before or after it."""
    listed = event.record.get(part)
    first = listed[0] if isinstance(listed, list) and listed else None
    return [operation for operation in first if isinstance(operation, dict)] if isinstance(first, list) else []


def _batched(event: Event, part: str, words: frozenset[str]) -> list[dict[str, Any]]:
    tensors = [operation.get("tensor") for operation in _operations(event, part) if operation.get("op") in words]
    return [leaf for leaf in tensors if isinstance(leaf, dict) and is_tensor(leaf)]


def ranks_of_group(event: Event) -> tuple[int, ...]:
    """The ranks that take part in a collective; none where the record does not say."""
    for described in (event.record.get("process_group"), (event.record.get("input_kwargs") or {}).get("group")):
        ranks = described.get("group_ranks") if isinstance(described, dict) else None
        if isinstance(ranks, list) and ranks:
            try:
                members = _members(tuple(ranks))
            except TypeError:  # lists in it
                continue
            if members is not None:
                return members
    return ()


@lru_cache(4096)  # so that a group of a thousand ranks, which each of its calls names, is there once
def _members(ranks: tuple[Any, ...]) -> tuple[int, ...] | None:
    return ranks if all(isinstance(rank, int) for rank in ranks) else None
