"""Folders of ``torch.distributed.checkpoint``: a pickled ``.metadata``, and files of blocks; Megatron's
``torch_dist`` too.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from msprobe.environment.checkpoint.contents import (
    Checkpoint,
    Section,
    as_tensor,
    from_tree,
    inside,
    leaves,
    section_of,
    settings_of,
)
from msprobe.environment.checkpoint.megatron_names import core_name, joined_parts
from msprobe.environment.checkpoint.optimizer_states import name_states
from msprobe.environment.checkpoint.tensors import CheckpointTensor, Pieces, PlacedBlock, slices
from msprobe.environment.checkpoint.torch_files import REBUILD, read_torch
from msprobe.environment.checkpoint.zarr_folders import read_zarr
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.opening import open_regular, size_of
from msprobe.messages import said
from msprobe.store.dtypes import ELEMENT_TYPES, Array
from msprobe.store.pickles import Name, Opaque, PickleError, read_pickle

_MOST_METADATA_BYTES = 1 << 30
_MOST_STACKED = 4096
# Megatron keeps the layers of a stack in one tensor whose first axis is the layer.
_STACKED = re.compile(r"(?:^|\.)layers\.(?!\d)")
# So are all experts of a layer.
_EXPERTS = re.compile(r"\.mlp\.experts\.experts\.(?=linear_fc[12]\.)")
_CHAINED = re.compile(r"chained_\d+$")
# What the state of an optimizer consists of, whatever the program calls it; a list of them has numbers in between.
_OF_OPTIMIZERS = ("state", "param_groups")
_INNER = tuple([word] for word in _OF_OPTIMIZERS)


@dataclass(frozen=True)
class _Entry(CheckpointTensor):
    """A tensor in an entry of a file of blocks; the entry is a file of ``torch.save`` by itself."""

    path: str
    offset: int
    length: int

    def read(self) -> Array:
        tensor = read_torch(self.path, self.offset, self.length)
        if not isinstance(tensor, CheckpointTensor) or tensor.shape != self.shape:
            raise InvalidInputError(said("distributed-entry-is-no-tensor", self.path, self.offset, list(self.shape)))
        return tensor.read()


def read_distributed(folder: str) -> Checkpoint:
    """Open a folder with ``.metadata``. Raises PathError, InvalidInputError."""
    path = os.path.join(folder, ".metadata")
    metadata = _metadata(path)
    described, stored = _state(metadata, "state_dict_metadata"), _state(metadata, "storage_data")
    if not isinstance(described, dict) or not isinstance(stored, dict):
        raise InvalidInputError(said("no-distributed-checkpoint", path))
    places: dict[str, dict[tuple[int, ...] | None, Any]] = {}
    for key, place in stored.items():
        index = key.state if isinstance(key, Opaque) else None
        if not isinstance(index, dict) or not isinstance(index.get("fqn"), str):
            raise InvalidInputError(said("distributed-entry-without-name", path))
        offset = index.get("offset")
        places.setdefault(index["fqn"], {})[offset if isinstance(offset, tuple) else None] = place
    checkpoint = Checkpoint(folder, "torch distributed checkpoint")
    tops = {str(name).partition(".")[0] for name in described if "." in str(name)}
    has_model = any(section_of(top) == "weights" for top in tops)
    objects = _Objects(path, tops if has_model else ())
    for name, entry in described.items():
        _take(checkpoint, objects, str(name), entry, places.get(str(name), {}))
    common = os.path.join(folder, "common.pt")
    if os.path.isfile(common):
        _common(checkpoint, read_torch(common))
        name_states(checkpoint, core_name)
    else:
        name_states(checkpoint)
    if not (checkpoint.weights or checkpoint.optimizer or checkpoint.random):
        raise InvalidInputError(said("checkpoint-holds-no-tensor", folder))
    return checkpoint


def read_zarr_checkpoint(folder: str) -> Checkpoint:
    """Open a checkpoint of Megatron's core in its format ``zarr``. Raises PathError, InvalidInputError."""
    checkpoint = Checkpoint(folder, "Megatron, zarr")
    for name, tensor in read_zarr(folder).items():
        section, own = _section(name)
        checkpoint.section(section)[own] = tensor
    common = os.path.join(folder, "common.pt")
    _common(checkpoint, read_torch(common) if os.path.isfile(common) else None)
    name_states(checkpoint, core_name)
    if not (checkpoint.weights or checkpoint.optimizer):
        raise InvalidInputError(said("checkpoint-holds-no-tensor", folder))
    return checkpoint


def _metadata(path: str) -> Any:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 < size <= _MOST_METADATA_BYTES:
                raise InvalidInputError(said("distributed-description-too-large", path, size))
            # Not closed by hand: an error on its way may still hold a view of it.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return read_pickle(data, REBUILD)[0]
    except PickleError as problem:
        raise InvalidInputError(said("file-unreadable", path, problem)) from problem
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem


def _state(value: Any, key: str) -> Any:
    return value.state.get(key) if isinstance(value, Opaque) and isinstance(value.state, dict) else None


class _Objects:
    """Reads values that are no tensors, each of which stands in bytes of its own."""

    def __init__(self, path: str, beside_model: Collection[str] = ()) -> None:
        self.path = path
        #: First words of names that are no part of the model.
        self.beside_model = beside_model
        self._read: dict[str, int] = {}

    def read(self, name: str, place: Any) -> Any:
        """The tree that is stored at a place. Raises PathError, InvalidInputError."""
        file, begin, length = _place(self.path, name, place)
        read = self._read[file] = self._read.get(file, 0) + length
        if read > size_of(file):
            raise InvalidInputError(said("distributed-bytes-shared", self.path, file))
        return read_torch(file, begin, length)


def _take(checkpoint: Checkpoint, objects: _Objects, name: str, entry: Any, places: dict[Any, Any]) -> None:
    path = objects.path
    top = name.partition(".")[0]
    whole = name
    section, name = _section(name)
    if section == "weights" and whole == name and top in objects.beside_model:
        section = "other"
    chunks = _state(entry, "chunks")
    if chunks is None:
        _take_object(checkpoint, objects, name, top, section, places)
        return
    size, kind = _state(entry, "size"), _kind(_state(entry, "properties"))
    if not isinstance(size, tuple) or not _whole(size) or kind not in ELEMENT_TYPES or not isinstance(chunks, list):
        raise InvalidInputError(said("distributed-tensor-not-as-torch", path, name[:80]))
    if len(chunks) > len(places):
        raise InvalidInputError(said("distributed-blocks-missing", path, name[:80], len(chunks), len(places)))
    pieces = tuple(
        _piece(path, name, kind, _state(chunk, "offsets"), _state(chunk, "sizes"), places) for chunk in chunks
    )
    checkpoint.section(section)[name] = Pieces(size, kind, pieces)


def _section(name: str) -> tuple[Section, str]:
    """The section that a tensor belongs to, and its name there."""
    top, _, below = name.partition(".")
    section = "optimizer" if _CHAINED.match(top) else section_of(top)
    if section == "weights" and below:
        return "weights", below
    if section == "random":
        return section, name
    if section == "fact":
        words = below.split(".")
        section = "optimizer" if words[0] in _OF_OPTIMIZERS or words[1:2] in _INNER else "weights"
    return section, name


def _piece(path: str, name: str, kind: str, offsets: Any, sizes: Any, places: dict[Any, Any]) -> PlacedBlock:
    if not isinstance(offsets, tuple) or not isinstance(sizes, tuple) or not _whole((*offsets, *sizes)):
        raise InvalidInputError(said("distributed-block-without-place", path, name[:80]))
    file, begin, length = _place(path, name, places.get(offsets))
    if prod(sizes) * ELEMENT_TYPES[kind].bytes > length:
        raise InvalidInputError(said("distributed-block-size-wrong", path, name[:80], list(sizes)[:32], length))
    return PlacedBlock(offsets, _Entry(sizes, kind, file, begin, length))


def _place(path: str, name: str, place: Any) -> tuple[str, int, int]:
    begin, length = _state(place, "offset"), _state(place, "length")
    if not _whole((begin, length)):
        raise InvalidInputError(said("distributed-place-missing", path, name[:80]))
    if _state(place, "transform_descriptors"):
        raise InvalidInputError(said("distributed-transformed", path, name[:80]))
    return inside(os.path.dirname(path), _state(place, "relative_path"), path), begin, length


def _take_object(
    checkpoint: Checkpoint, objects: _Objects, name: str, top: str, section: Any, places: dict[Any, Any]
) -> None:
    """A value that is no tensor: a learning rate, a state of TransformerEngine."""
    if name.endswith("_extra_state") or "_extra_state/" in name or not places:
        note = said("extra-states-not-compared")
        checkpoint.notes += [note] if places and note not in checkpoint.notes else []
        return
    try:
        tree = objects.read(name, next(iter(places.values())))
    except InvalidInputError as problem:
        checkpoint.unread[name] = problem.message
        return
    if section == "weights" and top in ("iteration", "step", "global_step") and type(tree) is int:
        checkpoint.iteration = tree
        return
    for inner, value in leaves(tree, name):
        tensor = as_tensor(value)
        if tensor is not None and section in ("optimizer", "random"):
            checkpoint.section(section)[inner] = tensor
        elif isinstance(value, (str, int, float)):
            checkpoint.facts[inner] = str(value)[:200]


def _kind(properties: Any) -> str:
    state = properties.state if isinstance(properties, Opaque) else None
    kind = (
        state[0]
        if isinstance(state, (tuple, list)) and state
        else state.get("dtype")
        if isinstance(state, dict)
        else None
    )
    return kind.name if isinstance(kind, Name) else ""


def _whole(numbers: tuple[Any, ...]) -> bool:
    return all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)


def _common(checkpoint: Checkpoint, tree: Any) -> None:
    """What all ranks of Megatron have in common: arguments, iteration, settings of the optimizer."""
    checkpoint.format = "Megatron, zarr" if checkpoint.format == "Megatron, zarr" else "Megatron, torch_dist"
    if isinstance(tree, dict):
        checkpoint.settings = settings_of(tree.pop("args", None))
        rest = Checkpoint(checkpoint.path, checkpoint.format)
        rest.weights = {"": next(iter(checkpoint.weights.values()))} if checkpoint.weights else {}
        from_tree(rest, tree)
        checkpoint.iteration = rest.iteration
        checkpoint.optimizer.update(rest.optimizer)
        checkpoint.random.update(rest.random)
        checkpoint.other.update(rest.other)
        checkpoint.facts.update(rest.facts)
    checkpoint.weights = _in_core_words(checkpoint.weights)
    checkpoint.optimizer = _in_core_words(checkpoint.optimizer, str)


def _in_core_words(
    tensors: dict[str, CheckpointTensor], renamed: Callable[[str], str] = core_name
) -> dict[str, CheckpointTensor]:
    apart = _unstacked(_unstacked(tensors, _STACKED, "{before}{number}.{after}"), _EXPERTS, _EXPERT_NAME)
    return {renamed(name): tensor for name, tensor in joined_parts(apart).items()}


_EXPERT_NAME = "{stem}.mlp.experts.local_experts.{number}.{after}"


def _unstacked(
    tensors: dict[str, CheckpointTensor], stacked: re.Pattern[str], form: str
) -> dict[str, CheckpointTensor]:
    """The tensors of one layer, or of one expert, of those whose first axis counts them."""
    result: dict[str, CheckpointTensor] = {}
    for name, tensor in tensors.items():
        place = stacked.search(name)
        if place is None or not tensor.shape or not 0 < tensor.shape[0] <= _MOST_STACKED or len(tensor.shape) < 2:
            result[name] = tensor
            continue
        words = {"before": name[: place.end()], "stem": name[: place.start()], "after": name[place.end() :]}
        for number, slice_of_layer in enumerate(slices(tensor)):
            result[form.format(number=number, **words)] = slice_of_layer
    return result
