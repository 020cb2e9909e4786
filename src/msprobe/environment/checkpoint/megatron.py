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

from msprobe.environment.checkpoint.contents import (
    Checkpoint,
    Walk,
    leaves,
    place_of,
    put,
    section_of,
    settings_of,
    small_file,
)
from msprobe.environment.checkpoint.distributed import read_distributed, read_zarr_checkpoint
from msprobe.environment.checkpoint.megatron_names import (
    EXPERT,
    LAYER,
    core_name,
    is_expert,
    is_gated,
    whole,
)
from msprobe.environment.checkpoint.megatron_optimizer import states_of_rank
from msprobe.environment.checkpoint.optimizer_states import in_one_row, plain_name
from msprobe.environment.checkpoint.tensors import CheckpointTensor, Moved, Replicas
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said

TRACKER = "latest_checkpointed_iteration.txt"
_RANK = re.compile(r"mp_rank_(\d{2,})(?:_(\d{3,}))?(?:_(\d{3,}))?$")
_FILES = ("model_optim_rng.pt", "model_rng.pt")
_CHUNK = re.compile(r"model(\d*)$")
_MOST_RANKS = 1 << 20


def is_megatron(folder: str) -> bool:
    """True if the folder has a tracker of Megatron, folders of its ranks, or its description of a distributed one."""
    names = os.listdir(folder)
    return TRACKER in names or {"metadata.json", "common.pt"} <= set(names) or any(map(_RANK.match, names))


def read_megatron(folder: str, allow_missing: bool = False) -> Checkpoint:
    """Open a checkpoint of Megatron. ``allow_missing``: go on without ranks that are missing.

    Raises PathError (naming every missing file), InvalidInputError.
    """
    place = _iteration_folder(folder)
    if os.path.isfile(os.path.join(place, ".metadata")):
        return read_distributed(place)
    if os.path.isfile(os.path.join(place, "metadata.json")) and not any(map(_RANK.match, os.listdir(place))):
        if _backend(place) == "zarr":
            return read_zarr_checkpoint(place)
        raise InvalidInputError(said("megatron-format", place, _backend(place)))
    ranks = _ranks(place, allow_missing)
    checkpoint = Checkpoint(folder, "Megatron", settings=ranks.settings, iteration=ranks.iteration)
    checkpoint.unread.update(
        {
            f"rank {os.path.basename(os.path.dirname(missing_file))}": said("file-of-rank-missing")
            for missing_file in ranks.missing
        }
    )
    chunks = {rank: _chunks(state) for rank, state in ranks.states.items()}
    offsets = _layer_offsets(chunks, ranks.sizes[1])
    checkpoint.weights = _merged(ranks, chunks, offsets)
    _optimizer(checkpoint, ranks, chunks, offsets)
    _training_state(checkpoint, ranks)
    return checkpoint


def _iteration_folder(folder: str) -> str:
    tracker = os.path.join(folder, TRACKER)
    if not os.path.isfile(tracker):
        return folder
    text = small_file(tracker).decode("utf-8", "replace").strip()
    if text != "release" and not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise InvalidInputError(said("megatron-tracker-wrong", tracker, text[:40]))
    iteration_folder = os.path.join(folder, "release" if text == "release" else f"iter_{int(text):07d}")
    if not os.path.isdir(iteration_folder):
        raise PathError(said("named-file-missing", iteration_folder, tracker))
    return iteration_folder


def _backend(place: str) -> str:
    match = re.search(rb'"sharded_backend"\s*:\s*"(\w+)"', small_file(os.path.join(place, "metadata.json")))
    return match[1].decode() if match else "of metadata.json"


_Of = dict[tuple[int, int, int], dict[int, dict[str, CheckpointTensor]]]


@dataclass
class _Ranks:
    """The files of all ranks: (tensor, pipeline, expert) -> what it holds."""

    states: dict[tuple[int, int, int], dict[Any, Any]]
    settings: dict[str, Any]
    sizes: tuple[int, int, int]
    iteration: int | None
    missing: list[str]
    folders: dict[tuple[int, int, int], str]


def _ranks(place: str, allow_missing: bool) -> _Ranks:
    folders = {name: match for name in sorted(os.listdir(place)) if (match := _RANK.match(name))}
    if not folders:
        raise InvalidInputError(said("megatron-folder-without-ranks", place))
    files: dict[str, str] = {}
    for name in folders:
        there = [file for file in _FILES if os.path.isfile(os.path.join(place, name, file))]
        if there:
            files[name] = os.path.join(place, name, there[0])
    if not files:
        raise PathError(said("megatron-file-missing", os.path.join(place, next(iter(folders)), _FILES[0])))
    first = _state(next(iter(files.values())))
    settings = settings_of(first.get("args"))
    sizes = _sizes(settings, folders)
    expected = _names(sizes)
    missing = [os.path.join(place, name, _FILES[0]) for name in expected if name not in files]
    if missing and not allow_missing:
        some = ", ".join(f'"{folder}"' for folder in missing[:5])
        more = said("and-more-of", len(missing) - 5) if len(missing) > 5 else ""
        raise PathError(said("megatron-files-missing", some, more))
    states = {}
    for number, (name, path) in enumerate(files.items()):
        if name in expected:
            states[expected[name]] = first if number == 0 else _state(path)
    if not states:
        raise InvalidInputError(said("megatron-ranks-unnamed", place, ", ".join(folders)))
    iteration = first.get("iteration")
    places = {rank: os.path.join(place, name) for name, rank in expected.items()}
    return _Ranks(states, settings, sizes, iteration if type(iteration) is int else None, missing, places)


def _state(path: str) -> dict[Any, Any]:
    tree = read_torch(path)
    if not isinstance(tree, dict):
        raise InvalidInputError(said("megatron-holds-no-state", path))
    return tree


def _sizes(settings: dict[str, Any], folders: dict[str, re.Match[str]]) -> tuple[int, int, int]:
    """How many tensor-, pipeline- and expert-parallel ranks there are: as the arguments say, else as folders do."""
    given = [settings.get(f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline", "expert")]
    seen = [max(int(match[at] or 0) for match in folders.values()) + 1 for at in (1, 2, 3)]
    sizes = [size if type(size) is int and 0 < size < 1 << 16 else seen[at] for at, size in enumerate(given)]
    if sizes[0] * sizes[1] * sizes[2] > _MOST_RANKS:
        raise InvalidInputError(said("megatron-sizes-wrong", sizes))
    return sizes[0], sizes[1], sizes[2]


def _names(sizes: tuple[int, int, int]) -> dict[str, tuple[int, int, int]]:
    tensor, pipeline, expert = sizes
    return {
        f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else "") + (f"_{e:03d}" if expert > 1 else ""): (t, p, e)
        for t in range(tensor)
        for p in range(pipeline)
        for e in range(expert)
    }


def _chunks(state: dict[Any, Any]) -> dict[int, dict[str, CheckpointTensor]]:
    """The parameters of each part of a rank's model, under the names of the core."""
    result: dict[int, dict[str, CheckpointTensor]] = {}
    for key, tree in state.items():
        match = _CHUNK.match(str(key))
        if match is None:
            continue
        named = {core_name(name): value for name, value in leaves(tree) if isinstance(value, CheckpointTensor)}
        result[int(match[1] or 0)] = {
            name: tensor for name, tensor in named.items() if not name.endswith("_extra_state")
        }
    return result


def _merged(ranks: _Ranks, chunks: _Of, offsets: dict[tuple[int, int], int]) -> dict[str, CheckpointTensor]:
    """The tensors of all ranks, weights or moments of them, as those of one model."""
    experts = ranks.settings.get("num_experts")
    shards: dict[str, dict[tuple[int, int], CheckpointTensor]] = defaultdict(dict)
    for (tensor, stage, expert), parts in sorted(chunks.items()):
        for chunk, named in parts.items():
            apart = _experts_apart(named, ranks.settings, ranks.sizes[2])
            for name, value in apart.items():
                name = LAYER.sub(lambda m: f"{m[1]}{m[2]}{int(m[3]) + offsets[chunk, stage]}{m[4]}", name)  # noqa: B023
                place = expert
                if is_expert(name) and type(experts) is int and ranks.sizes[2] > 1:
                    each = experts // ranks.sizes[2]
                    name = EXPERT.sub(lambda m: f"{m[1]}{int(m[2]) + expert * each}{m[3]}", name)  # noqa: B023
                    place = 0
                # Tied embeddings are kept by the first stage and the last: the later one is the head.
                shards[name].setdefault((tensor, place), value)
    gated = is_gated({name: next(iter(parts.values())).shape for name, parts in shards.items()}, ranks.settings)
    expert_shards = ranks.settings.get("expert_tensor_parallel_size")
    return {
        name: whole(name, parts, gated, is_expert(name) and expert_shards == 1, ranks.settings)
        for name, parts in shards.items()
    }


def _layer_offsets(chunks: _Of, stages: int) -> dict[tuple[int, int], int]:
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


def _experts_apart(
    named: dict[str, CheckpointTensor], settings: dict[str, Any], expert_ranks: int
) -> dict[str, CheckpointTensor]:
    """Grouped experts (``experts.weight1``: ``[hidden, experts x ffn]`` seen as ``[experts, hidden, ffn]``) one by
    one.
    """
    total = settings.get("num_experts")
    if type(total) is not int or total < 1 or total > 1 << 16:
        return named
    count = max(1, total // expert_ranks)
    result: dict[str, CheckpointTensor] = {}
    for name, tensor in named.items():
        stem, _, last = name.rpartition(".")
        if not stem.endswith("mlp.experts") or last not in ("weight1", "weight2") or len(tensor.shape) != 2:
            result[name] = tensor
            continue
        # Ones for the hidden size, which the first axis of weight1 and the second of weight2 have.
        rows, columns = tensor.shape
        if (columns if last == "weight1" else rows) % count:
            raise InvalidInputError(said("experts-do-not-fit", name, count, list(tensor.shape)))
        seen = (count, rows, columns // count) if last == "weight1" else (count, rows // count, columns)
        module = "linear_fc1" if last == "weight1" else "linear_fc2"
        for expert in range(count):
            moved = Moved((seen[2], seen[1]), tensor.dtype, tensor, seen, expert, transpose=True)
            result[f"{stem}.local_experts.{expert}.{module}.weight"] = moved
    return result


def _optimizer(checkpoint: Checkpoint, ranks: _Ranks, chunks: _Of, offsets: dict[tuple[int, int], int]) -> None:
    """Moments as those of one model; settings of groups are those of the first rank."""
    moments: dict[str, _Of] = defaultdict(dict)
    steps: list[CheckpointTensor] = []
    for rank, state in sorted(ranks.states.items()):
        path = os.path.join(ranks.folders[rank], "distrib_optim.pt")
        distributed = read_torch(path) if os.path.isfile(path) else None
        states = states_of_rank(state.get("optimizer"), distributed, chunks[rank])
        if not states.is_complete:
            checkpoint.unread[said("optimizer-state-of", os.path.basename(ranks.folders[rank]))] = said(
                "state-of-other-weights", path
            )
        for moment, its in states.moments.items():
            if moment == "step":
                steps += [tensor for named in its.values() for tensor in named.values()]
            else:
                moments[moment][rank] = its
        rest = in_one_row({plain_name(name): tensor for name, tensor in states.rest.items()})
        if rank == min(ranks.states):
            checkpoint.facts.update(states.facts)
            checkpoint.optimizer.update(
                {name: tensor for name, tensor in rest.items() if not name.startswith("state.")}
            )
        # What could not be given to parameters stays with its rank.
        folder = os.path.basename(ranks.folders[rank])
        checkpoint.optimizer.update(
            {f"{folder}.{name}": tensor for name, tensor in rest.items() if name.startswith("state.")}
        )
    for moment, per_rank in moments.items():
        merged = _merged(ranks, per_rank, offsets)
        checkpoint.optimizer.update({f"{name}.{moment}": tensor for name, tensor in merged.items()})
    if steps:
        checkpoint.optimizer["step"] = Replicas((), steps[0].dtype, tuple(steps))


def _training_state(checkpoint: Checkpoint, ranks: _Ranks) -> None:
    """Random states, which belong to one rank each, under its folder's name; and what else the first rank has."""
    names = {rank: name for name, rank in _names(ranks.sizes).items()}
    walk = Walk()
    for rank, state in sorted(ranks.states.items()):
        for key, tree in state.items():
            if _CHUNK.match(str(key)) or key in ("args", "optimizer"):
                continue
            section = section_of(str(key))
            if section == "random":
                put(checkpoint.random, checkpoint.facts, tree, f"{names[rank]}.{key}")
            elif rank == min(ranks.states) and section == "optimizer":
                put(checkpoint.optimizer, checkpoint.facts, tree, str(key))
            elif place_of(str(key), tree, True, walk) == "other":
                put(checkpoint.other, checkpoint.facts, tree, f"{names[rank]}.{key}", walk)
            elif rank == min(ranks.states) and isinstance(tree, (str, int, float)):
                checkpoint.facts[str(key)] = str(tree)[:200]
    checkpoint.facts.update({f"args.{key}": str(value)[:200] for key, value in ranks.settings.items()})
