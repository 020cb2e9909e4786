"""Layers that ran again for the backward pass (activation checkpointing), found at the top of the hierarchy.

Nothing around them ran at that time, so a dump names no parent. They belong to the backward pass of their own layer,
which begins when they are done.
"""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.compare.entry_names import read_name
from msprobe.store.part import DumpPart

_FRAMES = ("recompute_fn", "torch/autograd/function.py", "torch\\autograd\\function.py")


def places(part: DumpPart, names: Sequence[str], parents: Sequence[int]) -> dict[int, int]:
    """Recomputed module pass at the top -> the next backward pass of the same module."""
    next_backward: dict[str, int] = {}
    partners: dict[int, int] = {}
    for node in sorted(range(1, len(names)), reverse=True):
        name = names[node]
        if parents[node] != 0 and ".backward." not in name:
            continue
        if not name.startswith(("Module.", "Cell.")):
            continue
        parts = read_name(name)
        if parts.kind != "module":
            continue
        if parts.direction == "backward":
            next_backward[parts.stem] = node
        elif parts.number and parents[node] == 0 and parts.stem in next_backward and _ran_again(part, name):
            partners[node] = next_backward[parts.stem]
    return partners


def _ran_again(part: DumpPart, name: str) -> bool:
    """True if the record says so, or its stack: a frame of checkpointing or of a backward pass of autograd."""
    if name in part:
        record = part.record(name)
        said = record.get("is_recompute") if isinstance(record, dict) else None
        if isinstance(said, bool):
            return said
    return any(word in frame for frame in part.stack(name) for word in _FRAMES)
