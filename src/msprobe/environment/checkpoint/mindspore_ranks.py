"""Folders ``rank_N`` of MindSpore: slices of parameters, which strategy files say how to put together.

A strategy file is a protobuf message: for each parameter the matrix of devices, and for each axis of the parameter
along which axis of the matrix it is split, counted from the last one (-1: not at all). With a sharded optimizer, the
slice of a device is split once more along its first axis.
"""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from math import prod
from typing import Any

from msprobe.environment.checkpoint.array_files import read_mindspore, read_safetensors
from msprobe.environment.checkpoint.contents import Checkpoint
from msprobe.environment.checkpoint.tensors import CheckpointTensor, Pieces, PlacedBlock, Replicas
from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.opening import open_regular
from msprobe.foreign.protobuf import numbers, placed_fields, signed
from msprobe.messages import said

_RANK = re.compile(r"rank_(\d{1,7})$")
_SAVED = re.compile(r".*?(?:-(\d+)_(\d+))?\.(?:ckpt|safetensors)$")
_STRATEGY = re.compile(r".*strategy.*\.ckpt$")
_PLACES = (".", "strategy", os.path.join("..", "strategy"))
_MOST_STRATEGY_BYTES = 256 << 20
_MOST_AXES = 64


@dataclass(frozen=True)
class _Layout:
    devices: tuple[int, ...]
    axes: tuple[int, ...]
    shard_step: int
    shards: int

    def parts(self) -> tuple[int, ...]:
        """Into how many slices each axis is split, the sharded optimizer left out."""
        return tuple(1 if axis < 0 else self.devices[-1 - axis] for axis in self.axes)

    def place(self, device: int) -> tuple[int, ...]:
        """Which slice of each axis a device of the stage has."""
        where = []
        for axis in self.axes:
            step = prod(self.devices[len(self.devices) - axis :]) if axis >= 0 else 1
            where.append(device // step % self.devices[-1 - axis] if axis >= 0 else 0)
        return tuple(where)


def is_mindspore_ranks(names: list[str]) -> bool:
    """True if these are the names in a folder with the ranks of MindSpore."""
    return any(map(_RANK.match, names))


def read_mindspore_ranks(folder: str, section: Any) -> Checkpoint:
    """Open such a folder; ``section`` gives the section and the name of a parameter. Raises PathError,
    InvalidInputError.
    """
    ranks = {int(match[1]): name for name in os.listdir(folder) if (match := _RANK.match(name))}
    missing = sorted(set(range(max(ranks) + 1)) - set(ranks))
    if missing:
        raise PathError(said("mindspore-rank-missing", folder, missing[0]))
    checkpoint = Checkpoint(folder, "MindSpore, ranks")
    held: dict[str, dict[int, CheckpointTensor]] = {}
    for rank, name in sorted(ranks.items()):
        for parameter, tensor in _rank_parameters(checkpoint, os.path.join(folder, name)).items():
            held.setdefault(parameter, {})[rank] = tensor
    layouts = _layouts(folder, [os.path.join(folder, name) for name in ranks.values()])
    if len(ranks) > 1 and not layouts:
        checkpoint.notes.append(said("no-strategy-file"))
    for parameter, tensors in held.items():
        kind, name = section(parameter)
        if len(ranks) == 1 or layouts:
            # A moment lies as its parameter does.
            layout = layouts.get(parameter) or layouts.get(parameter.partition(".")[2])
            checkpoint.section(kind)[name] = _whole(folder, parameter, tensors, layout)
        else:
            checkpoint.section(kind).update({f"rank_{rank}.{name}": tensor for rank, tensor in tensors.items()})
    return checkpoint


def _rank_parameters(checkpoint: Checkpoint, folder: str) -> dict[str, CheckpointTensor]:
    """The parameters of the last checkpoint of a rank."""
    saved = [
        ((int(match[1] or 0), int(match[2] or 0)), name)
        for name in sorted(os.listdir(folder))
        if (match := _SAVED.match(name)) and not _STRATEGY.match(name)
    ]
    if not saved:
        raise PathError(said("mindspore-rank-empty", folder))
    (_, step), name = max(saved)
    if len(saved) > 1:
        checkpoint.notes.append(said("last-of-checkpoints", len(saved), folder, name))
    checkpoint.iteration = step or None
    path = os.path.join(folder, name)
    if name.endswith(".safetensors"):
        return read_safetensors(path)
    tensors, texts = read_mindspore(path)
    checkpoint.facts.update(texts)
    return tensors


def _layouts(folder: str, ranks: list[str]) -> dict[str, _Layout]:
    places = [os.path.join(folder, place) for place in _PLACES] + ranks
    files = [
        os.path.join(place, name)
        for place in places
        if os.path.isdir(place)
        for name in sorted(os.listdir(place))
        if _STRATEGY.match(name)
    ]
    layouts: dict[str, _Layout] = {}
    for file in files:
        try:
            layouts.update(_read_strategy(file))
        except ValueError as problem:
            raise InvalidInputError(said("strategy-file-unreadable", file)) from problem
    return layouts


def _read_strategy(path: str) -> dict[str, _Layout]:
    """``ParallelStrategyMap``: ``parallel_layout_item`` (3) with ``param_name`` (1), ``parallel_layouts`` (2)."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= _MOST_STRATEGY_BYTES:
            raise ValueError(size)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    layouts = {}
    for number, item in placed_fields(data):
        if number != 3 or isinstance(item, int):
            continue
        name, layout = "", None
        for field, value in placed_fields(data, item):
            if field == 1 and isinstance(value, slice):
                name = str(data[value], "utf-8")
            elif field == 2 and isinstance(value, slice):
                layout = _layout(data, value)
        if layout is not None:
            layouts[name] = layout
    return layouts


def _layout(data: memoryview, place: slice) -> _Layout:
    """``ParallelLayouts``: matrix of devices (1), map of axes (2), step (6) and size (7) of the optimizer's shards."""
    lists: dict[int, tuple[int, ...]] = {1: (), 2: ()}
    sizes = {6: 1, 7: 1}
    for field, value in placed_fields(data, place):
        if field in lists and isinstance(value, slice) and not lists[field]:
            lists[field] = tuple(map(signed, numbers(data, value, _MOST_AXES)))
        elif field in sizes and isinstance(value, int):
            sizes[field] = signed(value)
    devices, axes = lists[1], lists[2]
    if not devices or any(device < 1 for device in devices) or any(not -1 <= axis < len(devices) for axis in axes):
        raise ValueError("layout")
    return _Layout(devices, axes, max(1, sizes[6]), max(1, sizes[7]))


def _whole(folder: str, name: str, tensors: dict[int, CheckpointTensor], layout: _Layout | None) -> CheckpointTensor:
    """A parameter of the slices of all ranks that have it."""
    first = next(iter(tensors.values()))
    copies = tuple(tensors.values())
    whole = copies[0] if len(copies) == 1 else Replicas(first.shape, first.dtype, copies)
    if layout is None:
        return whole
    stage = prod(layout.devices)
    parts = layout.parts()
    if len(parts) != len(first.shape) or max(parts, default=1) == layout.shards == 1:
        return whole
    blocks: dict[tuple[int, ...], CheckpointTensor] = {}
    for rank, tensor in tensors.items():
        device = rank % stage
        offsets = [at * size for at, size in zip(layout.place(device), tensor.shape, strict=True)]
        if layout.shards > 1:
            offsets[0] = (offsets[0] // tensor.shape[0] * layout.shards) * tensor.shape[0]
            offsets[0] += device // layout.shard_step % layout.shards * tensor.shape[0]
        blocks.setdefault(tuple(offsets), tensor)
    shape = [size * count for size, count in zip(first.shape, parts, strict=True)]
    shape[0] *= layout.shards
    try:
        return Pieces(tuple(shape), first.dtype, tuple(PlacedBlock(at, block) for at, block in blocks.items()))
    except InvalidInputError as problem:
        raise InvalidInputError(said("parameter-of-folder-wrong", folder, name[:80], problem.message)) from problem
