"""Megatron's folders ``mp_rank_TT[_PPP][_EEE]``: the parameters of all ranks as those of one model.

Tensor-parallel shards are put together, layers and experts get the numbers that they have in the whole model, and names
become those of Megatron's core.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from msprobe.environment.checkpoint.contents import Checkpoint, leaves, put, section_of, settings_of, small_file
from msprobe.environment.checkpoint.distributed import read_distributed
from msprobe.environment.checkpoint.megatron_names import EXPERT, LAYER, core_name, is_expert, sharded_axis
from msprobe.environment.checkpoint.tensors import Moved, Replicas, Tensor, joined
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.errors import InvalidInputError, PathError

TRACKER = "latest_checkpointed_iteration.txt"
_RANK = re.compile(r"mp_rank_(\d{2,})(?:_(\d{3,}))?(?:_(\d{3,}))?$")
_FILES = ("model_optim_rng.pt", "model_rng.pt")
_CHUNK = re.compile(r"model(\d*)$")
_MOST_RANKS = 1 << 20


def is_megatron(folder: str) -> bool:
    """True if the folder has a tracker of Megatron, or folders of its ranks."""
    return os.path.isfile(os.path.join(folder, TRACKER)) or any(map(_RANK.match, os.listdir(folder)))


def read_megatron(folder: str, allow_missing: bool = False) -> Checkpoint:
    """Open a checkpoint of Megatron. ``allow_missing``: go on without ranks that are missing.

    Raises PathError (naming every missing file), InvalidInputError.
    """
    place = _iteration_folder(folder)
    if os.path.isfile(os.path.join(place, ".metadata")):
        found = read_distributed(place)
        found.weights = {core_name(name): tensor for name, tensor in found.weights.items()}
        return found
    if os.path.isfile(os.path.join(place, "metadata.json")) and not any(map(_RANK.match, os.listdir(place))):
        raise InvalidInputError(
            f'"{place}" is a checkpoint of Megatron in the format {_backend(place)}, of which only torch_dist is read; '
            "convert it with Megatron's tools/checkpoint."
        )
    ranks = _ranks(place, allow_missing)
    found = Checkpoint(folder, "Megatron", settings=ranks.settings, iteration=ranks.iteration)
    found.notes += ranks.notes
    found.weights = _merged(ranks)
    _training_state(found, ranks)
    return found


def _iteration_folder(folder: str) -> str:
    tracker = os.path.join(folder, TRACKER)
    if not os.path.isfile(tracker):
        return folder
    text = small_file(tracker).decode("utf-8", "replace").strip()
    if text != "release" and not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise InvalidInputError(f'"{tracker}" holds {text[:40]!r}; an iteration or the word release is expected.')
    found = os.path.join(folder, "release" if text == "release" else f"iter_{int(text):07d}")
    if not os.path.isdir(found):
        raise PathError(f'"{found}" does not exist; "{tracker}" names it.')
    return found


def _backend(place: str) -> str:
    found = re.search(rb'"sharded_backend"\s*:\s*"(\w+)"', small_file(os.path.join(place, "metadata.json")))
    return found[1].decode() if found else "of metadata.json"


@dataclass
class _Ranks:
    """The files of all ranks: (tensor, pipeline, expert) -> what it holds."""

    states: dict[tuple[int, int, int], dict[Any, Any]]
    settings: dict[str, Any]
    sizes: tuple[int, int, int]
    iteration: int | None
    notes: list[str]


def _ranks(place: str, allow_missing: bool) -> _Ranks:
    folders = {name: match for name in sorted(os.listdir(place)) if (match := _RANK.match(name))}
    if not folders:
        raise InvalidInputError(
            f'"{place}" holds no folders mp_rank_*; give the folder of the checkpoint, not one of a rank.'
        )
    files: dict[str, str] = {}
    for name in folders:
        there = [one for one in _FILES if os.path.isfile(os.path.join(place, name, one))]
        if there:
            files[name] = os.path.join(place, name, there[0])
    if not files:
        raise PathError(f'"{os.path.join(place, next(iter(folders)), _FILES[0])}" does not exist.')
    first = _state(next(iter(files.values())))
    settings = settings_of(first.get("args"))
    sizes = _sizes(settings, folders)
    expected = _names(sizes)
    missing = [os.path.join(place, name, _FILES[0]) for name in expected if name not in files]
    if missing and not allow_missing:
        some = ", ".join(f'"{one}"' for one in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise PathError(f"missing: {some}{more}; copy what is missing, or give --allow-missing to compare without.")
    states = {}
    for number, (name, path) in enumerate(files.items()):
        if name in expected:
            states[expected[name]] = first if number == 0 else _state(path)
    if not states:
        raise InvalidInputError(f'"{place}" has the ranks {", ".join(folders)}, which its arguments do not tell of.')
    iteration = first.get("iteration")
    notes = [f"missing: {one}" for one in missing]
    for name in folders:
        if os.path.isfile(os.path.join(place, name, "distrib_optim.pt")):
            notes.append("the state of the distributed optimizer (distrib_optim.pt) is not compared")
            break
    return _Ranks(states, settings, sizes, iteration if type(iteration) is int else None, notes)


def _state(path: str) -> dict[Any, Any]:
    tree = read_torch(path)
    if not isinstance(tree, dict):
        raise InvalidInputError(f'"{path}" holds no state of a training.')
    return tree


def _sizes(settings: dict[str, Any], folders: dict[str, re.Match[str]]) -> tuple[int, int, int]:
    """How many tensor-, pipeline- and expert-parallel ranks there are: as the arguments say, else as folders do."""
    told = [settings.get(f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline", "expert")]
    seen = [max(int(match[at] or 0) for match in folders.values()) + 1 for at in (1, 2, 3)]
    sizes = [size if type(size) is int and 0 < size < 1 << 16 else seen[at] for at, size in enumerate(told)]
    if sizes[0] * sizes[1] * sizes[2] > _MOST_RANKS:
        raise InvalidInputError(f"the arguments of the checkpoint tell of {sizes} ranks.")
    return sizes[0], sizes[1], sizes[2]


def _names(sizes: tuple[int, int, int]) -> dict[str, tuple[int, int, int]]:
    tensor, pipeline, expert = sizes
    return {
        f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "") + (f"_{e:03d}" if expert > 1 else ""): (t, p, e)
        for t in range(tensor)
        for p in range(pipeline)
        for e in range(expert)
    }


def _chunks(state: dict[Any, Any]) -> dict[int, dict[str, Tensor]]:
    """The parameters of each part of a rank's model, under the names of the core."""
    result: dict[int, dict[str, Tensor]] = {}
    for key, tree in state.items():
        match = _CHUNK.match(str(key))
        if match is None:
            continue
        named = {core_name(name): value for name, value in leaves(tree) if isinstance(value, Tensor)}
        result[int(match[1] or 0)] = {name: one for name, one in named.items() if not name.endswith("_extra_state")}
    return result


def _merged(ranks: _Ranks) -> dict[str, Tensor]:
    chunks = {rank: _chunks(state) for rank, state in ranks.states.items()}
    offsets = _layer_offsets(chunks, ranks.sizes[1])
    experts = ranks.settings.get("num_experts")
    shards: dict[str, dict[tuple[int, int], Tensor]] = defaultdict(dict)
    for (tensor, stage, expert), parts in sorted(chunks.items()):
        for chunk, named in parts.items():
            whole = _experts_apart(named, ranks.settings, ranks.sizes[2])
            for name, value in whole.items():
                name = LAYER.sub(lambda m: f"{m[1]}{m[2]}{int(m[3]) + offsets[chunk, stage]}{m[4]}", name)  # noqa: B023
                place = expert
                if is_expert(name) and type(experts) is int and ranks.sizes[2] > 1:
                    each = experts // ranks.sizes[2]
                    name = EXPERT.sub(lambda m: f"{m[1]}{int(m[2]) + expert * each}{m[3]}", name)  # noqa: B023
                    place = 0
                # Tied embeddings are kept by the first stage and the last: the later one is the head.
                shards[name].setdefault((tensor, place), value)
    gated = _gated(ranks.settings, shards)
    expert_shards = ranks.settings.get("expert_tensor_parallel_size")
    return {
        name: _whole(name, parts, gated, alone=is_expert(name) and expert_shards == 1) for name, parts in shards.items()
    }


def _layer_offsets(chunks: dict[Any, dict[int, dict[str, Tensor]]], stages: int) -> dict[tuple[int, int], int]:
    """(part, stage) -> the number of the first layer there: parts go round the stages."""
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for (_, stage, _), parts in chunks.items():
        for chunk, named in parts.items():
            layers = [int(match[3]) + 1 for name in named if (match := LAYER.search(name))]
            counts[chunk, stage] = max(counts[chunk, stage], max(layers, default=0))
    usual = max(counts.values(), default=0)
    offsets, begin = {}, 0
    for chunk in range(max((chunk for chunk, _ in counts), default=0) + 1):
        for stage in range(stages):
            offsets[chunk, stage] = begin
            begin += counts.get((chunk, stage), usual)
    return offsets


def _experts_apart(named: dict[str, Tensor], settings: dict[str, Any], expert_ranks: int) -> dict[str, Tensor]:
    """Grouped experts (``experts.weight1``: ``[hidden, experts x ffn]`` seen as ``[experts, hidden, ffn]``) one by
    one.
    """
    total = settings.get("num_experts")
    if type(total) is not int or total < 1 or total > 1 << 16:
        return named
    count = max(1, total // expert_ranks)
    result: dict[str, Tensor] = {}
    for name, tensor in named.items():
        stem, _, last = name.rpartition(".")
        if not stem.endswith("mlp.experts") or last not in ("weight1", "weight2") or len(tensor.shape) != 2:
            result[name] = tensor
            continue
        # Ones for the hidden size, which the first axis of weight1 and the second of weight2 have.
        rows, columns = tensor.shape
        if (columns if last == "weight1" else rows) % count:
            raise InvalidInputError(f"{name}: {count} experts do not fit into the shape {list(tensor.shape)}.")
        seen = (count, rows, columns // count) if last == "weight1" else (count, rows // count, columns)
        module = "linear_fc1" if last == "weight1" else "linear_fc2"
        for expert in range(count):
            one = Moved((seen[2], seen[1]), tensor.dtype, tensor, seen, expert, transpose=True)
            result[f"{stem}.local_experts.{expert}.{module}.weight"] = one
    return result


def _gated(settings: dict[str, Any], shards: dict[str, dict[tuple[int, int], Tensor]]) -> bool:
    """Do the first layers of MLPs hold a gate and what is gated? Shapes tell, else the arguments."""
    for name, parts in shards.items():
        second = shards.get(name.replace("linear_fc1", "linear_fc2"))
        if name.endswith("linear_fc1.weight") and second:
            first_shape, second_shape = next(iter(parts.values())).shape, next(iter(second.values())).shape
            if len(first_shape) == len(second_shape) == 2:
                return first_shape[0] == 2 * second_shape[1]
    return any(settings.get(key) is True for key in ("swiglu", "gated_linear_unit", "geglu"))


def _whole(name: str, parts: dict[tuple[int, int], Tensor], gated: bool, alone: bool) -> Tensor:
    """One parameter of the shards of tensor-parallel ranks, and of its copies on expert-parallel ones."""
    copies: dict[int, dict[int, Tensor]] = defaultdict(dict)
    for (tensor, expert), part in sorted(parts.items()):
        copies[expert][tensor] = part
    axis = None if alone else sharded_axis(name)
    if axis is None:
        every = [part for one in copies.values() for part in one.values()]
    else:
        every = [joined(tuple(one.values()), axis, gated and "linear_fc1" in name) for one in copies.values()]
    if len(every) == 1:
        return every[0]
    return Replicas(every[0].shape, every[0].dtype, tuple(every))


def _training_state(found: Checkpoint, ranks: _Ranks) -> None:
    """Optimizer and random states, which belong to one rank each, under its folder's name."""
    names = {rank: name for name, rank in _names(ranks.sizes).items()}
    for rank, state in sorted(ranks.states.items()):
        for key, tree in state.items():
            if _CHUNK.match(str(key)) or key == "args":
                continue
            section = section_of(str(key))
            if section in ("optimizer", "random"):
                put(found.section(section), found.facts, tree, f"{names[rank]}.{key}")
            elif rank == min(ranks.states) and isinstance(tree, (str, int, float)):
                found.facts[str(key)] = str(tree)[:200]
    found.facts.update({f"args.{key}": str(value)[:200] for key, value in ranks.settings.items()})
