"""Arguments of collectives that are only written over: what stands in them before means nothing."""

from __future__ import annotations

from typing import Any

#: By the beginning of a record's name, where the buffer stands: by place, and by keyword.
_BUFFERS = {
    **{
        f"Distributed.{name}": ("0", keyword)
        for name, keyword in {
            "recv": "tensor",
            "irecv": "tensor",
            "all_gather": "tensor_list",
            "all_gather_into_tensor": "output_tensor",
            "all_gather_single": "output_tensor",
            "_all_gather_base": "output_tensor",
            "scatter": "tensor",
            "reduce_scatter": "output",
            "reduce_scatter_tensor": "output",
            "reduce_scatter_single": "output",
            "_reduce_scatter_base": "output",
            "all_to_all": "output_tensor_list",
            "all_to_all_single": "output",
        }.items()
    },
    "Distributed.gather": ("1", "gather_list"),
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


def without_overwritten(stem: str, slots: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The arguments of the call ``stem``, those that it only writes over as memory that nobody has written."""
    places = _BUFFERS.get(stem)
    if places is None:
        return slots
    names = {f"input.{place}" for place in places}
    return [
        (slot, _unset(leaf) if isinstance(leaf, dict) and ".".join(slot.split(".")[:2]) in names else leaf)
        for slot, leaf in slots
    ]


def _unset(leaf: dict[str, Any]) -> dict[str, Any]:
    """A tensor by its shape alone, as the recorder writes it of memory that nobody has written."""
    if "dtype" not in leaf:
        return leaf
    kept = {key: value for key, value in leaf.items() if key in ("type", "dtype", "shape", "requires_grad", "stride")}
    return {**kept, "Max": None, "Min": None, "Mean": None, "Norm": None, "unset": True}
