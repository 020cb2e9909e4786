"""Do two runs have different layouts? By how many ranks they have, and by what those hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msprobe.compare.entry_names import plain_path, read_name
from msprobe.diagnose.steps.timeline import flatten, is_tensor
from msprobe.store.part import DumpPart

Shapes = dict[str, tuple[Any, ...]]


def layouts_differ(candidate: Sequence[DumpPart], reference: Sequence[DumpPart]) -> bool:
    """Both sides of one step. Runs of as many ranks have one layout unless their first ranks hold other parts of the
    parameters, or other modules of a model that is the same together. Of other numbers of ranks it may be that one
    was recorded in part: then communications speak of as many ranks, or the first ranks hold the same.
    """
    if len(candidate) == len(reference) == 1:
        return False
    ours, other = _parameters(candidate[0]), _parameters(reference[0])
    if len(candidate) != len(reference):
        worlds = _world(candidate), _world(reference)
        if worlds[0] == worlds[1] and max(worlds) > min(len(candidate), len(reference)):
            return _divided(ours, other)
        return _divided(ours, other) or ours.keys() != other.keys() or _inputs(candidate[0]) != _inputs(reference[0])
    if ours.keys() != other.keys():
        names = [[set(_parameters(part)) for part in parts] for parts in (candidate, reference)]
        pipelines = [any(rank != ranks[0] for rank in ranks) for ranks in names]
        if pipelines[0] != pipelines[1]:
            return True
        return pipelines[0] and set().union(*names[0]) == set().union(*names[1])
    return _divided(ours, other)


def _divided(shapes: Shapes, other: Shapes) -> bool:
    """True if parameters of one name are other parts of the same tensor."""
    for name, mine in shapes.items():
        theirs = other.get(name)
        if theirs is None or mine == theirs or len(mine) != len(theirs):
            continue
        apart = [(a, b) for a, b in zip(mine, theirs, strict=True) if a != b]
        if len(apart) <= 2 and all(max(a, b) % max(min(a, b), 1) == 0 for a, b in apart):
            return True
    return False


def _parameters(part: DumpPart) -> Shapes:
    """The shape of what the rank has of each parameter."""
    shapes: Shapes = {}
    for name, leaf in _recorded(part):
        local = leaf.get("local_shape") or leaf.get("shape")
        if isinstance(local, list):
            shapes[name] = tuple(local)
    return shapes


def _recorded(part: DumpPart) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in part.names():
        parts = read_name(name)
        if parts.kind not in ("module", "optimizer") or parts.direction == "backward":
            continue
        record = part.record(name)
        if not isinstance(record, dict):
            continue
        key = "parameters" if parts.kind == "module" else "input_kwargs"
        leaves: list[tuple[str, Any]] = []
        flatten(parts.path, record.get(key), leaves)
        for slot, leaf in leaves:
            if is_tensor(leaf):
                yield plain_path(slot), leaf


def _inputs(part: DumpPart) -> list[Any]:
    """The shapes of what goes into the first module, or the first call where there are no modules."""
    for wanted in ("module", "api"):
        for name in part.names():
            if read_name(name).kind != wanted:
                continue
            leaves: list[tuple[str, Any]] = []
            record = part.record(name)
            flatten("input", record.get("input_args") if isinstance(record, dict) else None, leaves)
            shapes = [leaf.get("shape") for _, leaf in leaves if is_tensor(leaf)]
            if shapes:
                return shapes
    return []


def _world(parts: Sequence[DumpPart]) -> int:
    """Of how many ranks the run speaks: those recorded, those of its groups and meshes."""
    most = max((part.rank + 1 if isinstance(part.rank, int) else 1 for part in parts), default=1)
    part = parts[0]
    for name in part.names():
        record = part.record(name)
        group = record.get("process_group") if isinstance(record, dict) else None
        ranks = group.get("group_ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list):
            most = max([most, *(rank + 1 for rank in ranks if isinstance(rank, int))])
    return most
