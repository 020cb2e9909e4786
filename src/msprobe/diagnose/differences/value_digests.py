"""Digests of tensors whose values were recorded whole, and no digest: what tells them apart then is in their files.

Statistics do not see the order of elements. With digests a transposed weight differs where it is used first, and the
call that made a tensor is found by all its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xxhash import xxh3_64

from msprobe.diagnose.differences.records import numel
from msprobe.diagnose.steps.timeline import Timeline, is_tensor
from msprobe.store.part import DumpPart

#: Elements that stay in the cache between being made and being read.
_PIECE = 1 << 15


def add_digests(*timelines: Timeline) -> None:
    """Give each tensor of the timelines a digest of its file, if all of them recorded whole tensors.

    A tensor whose file cannot be read, or holds a part of it, stays without; so does one that has a digest.
    """
    if all(timeline.part.header.get("task") == "tensor" for timeline in timelines):
        for timeline in timelines:
            for event in timeline:
                for leaf in _bare_tensors(event.record):
                    digest = _digest(timeline.part, leaf)
                    if digest is not None:
                        leaf["digest"] = digest


def _bare_tensors(value: Any) -> Iterator[dict[str, Any]]:
    """The tensors in a record that have a file and no digest."""
    open_values = [value]
    while open_values:
        value = open_values.pop()
        if is_tensor(value):
            if isinstance(value.get("data_name"), str) and "digest" not in value and "md5" not in value:
                yield value
        elif isinstance(value, dict):
            open_values.extend(value.values())
        elif isinstance(value, list):
            open_values.extend(value)


def _digest(part: DumpPart, leaf: dict[str, Any]) -> str | None:
    import numpy as np  # a dump without tensor files is compared without it, which takes a third of the start

    array = part.array(leaf["data_name"])
    if array is None or array.size != numel(leaf):
        return None
    flat = np.asarray(np.ascontiguousarray(array)).reshape(-1)
    digest = xxh3_64()
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        if flat.dtype.kind in "fc":
            piece = piece + 0.0  # both zeros are one number
        digest.update(piece.view(np.uint8).data)
    return f"values:{digest.hexdigest()}"
