"""Digests of tensors whose values were recorded whole, and no digest: what distinguishes them then is in their files.

Statistics do not see the order of elements. With digests a transposed weight differs where it is used first, and the
call that made a tensor is found by all its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msprobe.diagnose.differences.records import numel
from msprobe.diagnose.differences.tensor_files import TensorFiles, digest_of_file
from msprobe.diagnose.steps.timeline import Timeline, is_tensor


def add_digests(*timelines: Timeline, files: TensorFiles | None = None) -> None:
    """Give each tensor of the timelines a digest of its file, if all of them recorded whole tensors.

    A tensor whose file cannot be read, or holds a part of it, stays without; so does one that has a digest. ``files``:
    of two timelines; files of one name on both sides are read once, for the digests of both and for what the tensors
    have to do with each other.
    """
    if not all(timeline.part.header.get("task") == "tensor" for timeline in timelines):
        return
    from msprobe.store.values import Room  # numpy: a dump without tensor files is read without it

    room = Room()
    named = [_bare_tensors_by_file(timeline) for timeline in timelines]
    if files is not None:
        for name in named[0].keys() & named[1].keys():
            measured = files.measured(name, name)
            for leaves, side in zip(named, (0, 1), strict=True):
                here = leaves.pop(name)
                if measured is not None:
                    _give(here, measured.digests[side], measured.sizes[side])
    for timeline, leaves in zip(timelines, named, strict=True):
        for name, here in leaves.items():
            digest = digest_of_file(timeline.part, name, room)
            if digest is not None:
                _give(here, *digest)


def _give(leaves: list[dict[str, Any]], digest: str, size: int) -> None:
    for leaf in leaves:
        if numel(leaf) == size:
            leaf["digest"] = digest


def _bare_tensors_by_file(timeline: Timeline) -> dict[str, list[dict[str, Any]]]:
    """The tensors of a timeline that have a file and no digest, by the names of the files."""
    by_file: dict[str, list[dict[str, Any]]] = {}
    for event in timeline:
        for leaf in _bare_tensors(event.record):
            by_file.setdefault(leaf["data_name"], []).append(leaf)
    return by_file


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
