"""Arguments that are only written over, of collectives above all: what stands in them before means nothing."""

from __future__ import annotations

from typing import Any

from msprobe.diagnose.steps.collective_places import OVERWRITES
from msprobe.statistics_table import USUAL_KEYS

Slot = tuple[str, Any]

#: What a message in a batch of several does to its tensor.
_RECEIVES = ("irecv", "recv")
#: What functions of the framework write their result to, whatever is there.
_OUT = "input.out"
#: By the beginning of a record's name, where the buffer stands: by place, and by keyword.
_BUFFERS = {
    **{f"Distributed.{name}": (str(place), keyword) for name, (place, keyword) in OVERWRITES.items()},
    # The buffer that each rank writes its own part of.
    "Ops.fsdp_all_gather_copy_in": ("1", "all_gather_output"),
    # What an exchange between ranks is going to write, before it is waited for.
    "Ops._c10d_functional_wait_tensor": ("0", ""),
    "Ops._c10d_functional__wrap_tensor_autograd": ("0", ""),
    "Aten._foreach_copy_": ("0", ""),
    # Level L2 records what these call.
    **{
        f"Ops.c10d_{name}_": ("0", "")
        for name in (
            "recv",
            "recv_any_source",
            "allgather",
            "_allgather_base",
            "allgather_into_tensor_coalesced",
            "scatter",
            "gather",
            "reduce_scatter",
            "_reduce_scatter_base",
            "reduce_scatter_tensor_coalesced",
            "alltoall",
            "alltoall_base",
        )
    },
}


def without_overwritten(stem: str, slots: list[Slot]) -> list[Slot]:
    """The arguments of the call ``stem``, those that it only writes over as memory that nobody has written."""
    results = {slot for slot, leaf in slots if isinstance(leaf, dict) and (slot == _OUT or slot.startswith(f"{_OUT}."))}
    gone = _buffers(stem, slots) | results
    return [(slot, as_unset(leaf) if slot in gone else leaf) for slot, leaf in slots] if gone else slots


def overwritten(stem: str, slots: list[Slot]) -> list[Any]:
    """Those of the arguments of the call ``stem``, as they were recorded, that it only writes over."""
    gone = _buffers(stem, slots)
    return [leaf for slot, leaf in slots if slot in gone]


def _buffers(stem: str, slots: list[Slot]) -> set[str]:
    """The slots of tensors that a call only writes over."""
    if stem == "Distributed.batch_isend_irecv":
        receives = {slot.rpartition(".")[0] for slot, leaf in slots if slot.endswith(".op") and leaf in _RECEIVES}
        return {f"{place}.tensor" for place in receives}
    places = _BUFFERS.get(stem)
    if places is None:
        return set()
    names = {f"input.{place}" for place in places}
    return {slot for slot, leaf in slots if isinstance(leaf, dict) and ".".join(slot.split(".")[:2]) in names}


def as_unset(leaf: dict[str, Any]) -> dict[str, Any]:
    """A tensor by its shape alone, as the recorder writes it of memory that nobody has written."""
    if "dtype" not in leaf:
        return leaf
    kept = {key: value for key, value in leaf.items() if key in ("type", "dtype", "shape", "requires_grad", "stride")}
    return {**kept, **dict.fromkeys(USUAL_KEYS), "unset": True}
