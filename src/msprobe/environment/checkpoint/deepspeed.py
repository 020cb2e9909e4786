"""Checkpoints of DeepSpeed: one file of weights (ZeRO 0 to 2) or one for each rank (3), and a slice of the optimizer
for each rank.

With ZeRO 1 to 3 the weights are the float32 copies that the optimizer keeps. ZeRO 1 and 2: the slices of a group of
parameters,
one behind the other, are its parameters one behind the other. ZeRO 3: each rank has ``ceil(numel / ranks)`` elements of
each parameter.
"""

from __future__ import annotations

import os
import re
from math import prod
from typing import Any

from msprobe.environment.checkpoint.contents import (
    Checkpoint,
    Walk,
    from_tree,
    leaves,
    place_of,
    put,
    settings_of,
    small_file,
)
from msprobe.environment.checkpoint.megatron_names import core_name, is_gated, whole
from msprobe.environment.checkpoint.optimizer_states import name_states
from msprobe.environment.checkpoint.tensors import CheckpointTensor, TensorSlice, joined
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import Wording, said
from msprobe.store.pickles import Opaque

_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt$")
_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_RANDOM = ("random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state", "rng_tracker_states")

# What DeepSpeed writes itself, which is read elsewhere or says nothing of the training's state.
_OWN_KEYS = (
    "module", "optimizer", "param_shapes", "frozen_param_shapes", "frozen_param_fragments", "shared_params",
    "buffer_names", "sparse_tensor_module_names", "ds_config", *_RANDOM,
)  # fmt: skip


def is_deepspeed(folder: str) -> bool:
    """True if the folder, or the one that its ``latest`` names, holds files of DeepSpeed."""
    try:
        return any(_MODEL.match(name) for name in os.listdir(_step_folder(folder)))
    except OSError:
        return os.path.isfile(os.path.join(folder, "latest"))


def _step_folder(folder: str) -> str:
    latest = os.path.join(folder, "latest")
    if not os.path.isfile(latest):
        return folder
    name = small_file(latest).decode("utf-8", "replace").strip()
    if not name or "/" in name or "\\" in name or name in (".", "..") or "\0" in name:
        raise InvalidInputError(said("latest-names-no-folder", latest, name[:80]))
    step_folder = os.path.join(folder, name)
    if not os.path.isdir(step_folder):
        raise PathError(said("named-file-missing", step_folder, latest))
    return step_folder


def read_deepspeed(folder: str, allow_missing: bool = False) -> Checkpoint:
    """Open a checkpoint of DeepSpeed. Raises PathError, InvalidInputError."""
    place = _step_folder(folder)
    names = sorted(os.listdir(place))
    models = [(name, match) for name in names if (match := _MODEL.match(name))]
    slices = [(name, match) for name in names if (match := _OPTIMIZER.match(name))]
    parts = sorted({int(match[2]) for _, match in models})
    if parts != list(range(len(parts))) and not allow_missing:
        missing = min(set(range(parts[-1])) - set(parts))
        raise PathError(said("deepspeed-lacks-model-states", place, missing))
    checkpoints = [
        _part(
            Checkpoint(folder, "DeepSpeed"),
            place,
            {int(match[1] or 0): name for name, match in models if int(match[2]) == part},
            {int(match[1]): name for name, match in slices if int(match[2]) == part},
        )
        for part in parts
    ]
    if len(checkpoints) == 1:
        return checkpoints[0]
    first, weights = checkpoints[0], [checkpoint.weights for checkpoint in checkpoints]
    if not any("linear_qkv" in core_name(name) for name in first.weights):
        raise InvalidInputError(said("deepspeed-split-unknown", place, len(parts)))
    first.notes.append(said("shards-by-names-of-megatron", len(checkpoints)))
    first.weights = _joined_shards(weights, first.settings)
    first.optimizer = _joined_shards([checkpoint.optimizer for checkpoint in checkpoints], first.settings)
    return first


def _joined_shards(parts: list[dict[str, CheckpointTensor]], settings: dict[str, Any]) -> dict[str, CheckpointTensor]:
    """Shards of model-parallel ranks, whose parameters have Megatron's names, put together."""
    named = [{core_name(name): tensor for name, tensor in part.items()} for part in parts]
    gated = is_gated({name: tensor.shape for name, tensor in named[0].items()}, settings)
    return {
        name: whole(
            name, {(at, 0): states[name] for at, states in enumerate(named) if name in states}, gated, False, settings
        )
        for name in named[0]
    }


def _part(checkpoint: Checkpoint, place: str, models: dict[int, str], ranks: dict[int, str]) -> Checkpoint:
    """What the files of one model-parallel rank hold; ``models``, ``ranks``: data-parallel rank -> file."""
    states = {rank: read_torch(os.path.join(place, name)) for rank, name in models.items()}
    first = states[min(states)]
    if not isinstance(first, dict):
        raise InvalidInputError(said("deepspeed-holds-no-state", place, models[min(models)]))
    checkpoint.iteration = first.get("global_steps") if type(first.get("global_steps")) is int else None
    checkpoint.settings = settings_of(first.get("args"))
    for key in _RANDOM:
        put(checkpoint.random, checkpoint.facts, first.get(key), key)
    module = first.get("module")
    if not ranks:
        from_tree(checkpoint, {"module": module, "optimizer": first.get("optimizer")})
        buffers = first.get("buffer_names")
        _read_client_state(checkpoint, first)
        name_states(checkpoint, buffers=buffers if isinstance(buffers, list) else ())
        return checkpoint
    optimizers = [_optimizer(os.path.join(place, ranks[rank])) for rank in sorted(ranks)]
    world = _world(place, optimizers[0], ranks)
    stage = optimizers[0].get("zero_stage")
    if stage == 3:
        checkpoint.format, merge = "DeepSpeed ZeRO 3", _merge_stage_3
    else:
        checkpoint.format, merge = f"DeepSpeed ZeRO {stage}", _merge_stage_2
    shapes = _shapes(place, first.get("param_shapes"))
    if world != len(ranks):
        checkpoint.unread[said("slices-of-ranks")] = said("ranks-there", len(ranks), world)
    try:
        _merge(checkpoint, optimizers, shapes, merge)
    except InvalidInputError as problem:
        raise InvalidInputError(Wording('"{}": {}', place, problem.message)) from problem
    _rest(checkpoint, first, states, module)
    _read_client_state(checkpoint, first)
    return checkpoint


def _read_client_state(checkpoint: Checkpoint, state: dict[str, Any]) -> None:
    """What the program gave DeepSpeed to save (``client_state``): averages, a second model."""
    walk = Walk()
    for key, value in state.items():
        if str(key) not in _OWN_KEYS and place_of(str(key), value, True, walk) == "other":
            put(checkpoint.other, checkpoint.facts, value, str(key), walk)


def _optimizer(path: str) -> dict[str, Any]:
    tree = read_torch(path)
    state = tree.get("optimizer_state_dict") if isinstance(tree, dict) else None
    stage = state.get("zero_stage") if isinstance(state, dict) else None
    if isinstance(stage, Opaque) and stage.arguments:
        stage = stage.arguments[0]  # a member of an enumeration
    if not isinstance(state, dict) or type(stage) is not int:
        raise InvalidInputError(said("zero-holds-no-state", path))
    return {**state, "zero_stage": stage}


def _world(place: str, optimizer: dict[str, Any], ranks: dict[int, str]) -> int:
    count = optimizer.get("partition_count")
    if isinstance(count, list) and count:
        count = count[0]
    count = count if type(count) is int and 0 < count < 1 << 20 else len(ranks)
    missing = [rank for rank in range(count) if rank not in ranks]
    if missing:
        some = ", ".join(map(str, missing[:8]))
        raise PathError(said("zero-lacks-files", place, some))
    return count


def _shapes(place: str, given: Any) -> list[dict[str, tuple[int, ...]]]:
    groups = given if isinstance(given, list) else [given]
    result = []
    for group in groups:
        if not isinstance(group, dict) or not all(
            isinstance(shape, tuple) and all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
            for shape in group.values()
        ):
            raise InvalidInputError(said("zero-lacks-shapes", place))
        result.append({str(name): shape for name, shape in group.items()})
    return result


def _flat(value: Any) -> CheckpointTensor:
    if isinstance(value, list) and value:
        return joined(tuple(_flat(inner) for inner in value), 0)
    if not isinstance(value, CheckpointTensor) or len(value.shape) != 1:
        raise InvalidInputError(said("zero-slice-not-flat"))
    return value


def _merge(
    checkpoint: Checkpoint, optimizers: list[dict[str, Any]], shapes: list[dict[str, tuple[int, ...]]], merge: Any
) -> None:
    key = "fp32_flat_groups" if merge is _merge_stage_3 else "single_partition_of_fp32_groups"
    groups = [optimizer.get(key) for optimizer in optimizers]
    if not all(isinstance(group_values, list) for group_values in groups):
        raise InvalidInputError(said("zero-lacks-key", key))
    checkpoint.weights.update(merge(groups, shapes))
    states = [_moments(optimizer) for optimizer in optimizers]
    for moment in sorted({name for group in states[0] for name in group}):
        per_rank = [[group[moment] for group in groups_of_rank if moment in group] for groups_of_rank in states]
        if all(
            isinstance(value, CheckpointTensor) and len(value.shape) == 1
            for values_of_rank in per_rank
            for value in values_of_rank
        ):
            merged = merge(per_rank, shapes)
            checkpoint.optimizer.update({f"{name}.{moment}": tensor for name, tensor in merged.items()})
        else:
            put(checkpoint.optimizer, checkpoint.facts, per_rank[0], moment)
    base = optimizers[0].get("base_optimizer_state")
    for number, group in enumerate(base.get("param_groups", ()) if isinstance(base, dict) else ()):
        settings = {key: value for key, value in group.items() if key != "params"} if isinstance(group, dict) else {}
        put(checkpoint.optimizer, checkpoint.facts, settings, f"param_groups.{number}")


def _moments(optimizer: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of the groups of one rank: ``exp_avg`` and others, which are flat as the weights are."""
    base = optimizer.get("base_optimizer_state", optimizer.get("optimizer_state_dict"))
    if isinstance(base, dict) and isinstance(base.get("state"), dict):
        base = [base["state"][key] for key in sorted(base["state"], key=str)]
    return [state for state in base if isinstance(state, dict)] if isinstance(base, list) else []


def _merge_stage_2(groups: list[list[Any]], shapes: list[dict[str, tuple[int, ...]]]) -> dict[str, CheckpointTensor]:
    result: dict[str, CheckpointTensor] = {}
    for number, group in enumerate(shapes):
        if any(len(groups_of_rank) <= number for groups_of_rank in groups):
            raise InvalidInputError(said("zero-lacks-groups", len(shapes)))
        whole = joined(tuple(_flat(groups_of_rank[number]) for groups_of_rank in groups), 0)
        place = 0
        for name, shape in group.items():
            result[name] = TensorSlice(shape, whole.dtype, whole, place, prod(shape))
            place += prod(shape)
    return result


def _merge_stage_3(groups: list[list[Any]], shapes: list[dict[str, tuple[int, ...]]]) -> dict[str, CheckpointTensor]:
    ranks = [_flat(groups_of_rank) for groups_of_rank in groups]
    result: dict[str, CheckpointTensor] = {}
    place = 0
    for name, shape in ((name, shape) for group in shapes for name, shape in group.items()):
        share = -(-prod(shape) // len(ranks))
        parts = tuple(TensorSlice((share,), tensor.dtype, tensor, place, share) for tensor in ranks)
        whole = joined(parts, 0)
        result[name] = TensorSlice(shape, whole.dtype, whole, 0, prod(shape))
        place += share
    return result


def _rest(checkpoint: Checkpoint, first: dict[str, Any], states: dict[int, Any], module: Any) -> None:
    """What the optimizer does not have: buffers, frozen parameters, and second names of shared ones."""
    buffers = first.get("buffer_names")
    saved = dict(leaves(module)) if isinstance(module, dict) else {}
    for name in buffers if isinstance(buffers, list) else ():
        if isinstance(saved.get(name), CheckpointTensor):
            checkpoint.weights[name] = saved[name]
    frozen, shapes = first.get("frozen_param_fragments"), first.get("frozen_param_shapes")
    if isinstance(frozen, dict) and isinstance(shapes, dict):
        for name in frozen:
            parts = [
                state["frozen_param_fragments"][name] for _, state in sorted(states.items()) if isinstance(state, dict)
            ]
            if not all(isinstance(part, CheckpointTensor) for part in parts):
                raise InvalidInputError(said("frozen-parameter-is-no-tensor", checkpoint.path, str(name)[:80]))
            if len(parts) == 1:
                checkpoint.weights[name] = parts[0]
            else:
                whole = joined(tuple(map(_flat, parts)), 0)
                checkpoint.weights[name] = TensorSlice(shapes[name], whole.dtype, whole, 0, prod(shapes[name]))
    shared = first.get("shared_params")
    pairs = shared.items() if isinstance(shared, dict) else shared if isinstance(shared, list) else ()
    for pair in pairs:
        if isinstance(pair, (list, tuple)) and len(pair) == 2 and pair[1] in checkpoint.weights:
            checkpoint.weights[pair[0]] = checkpoint.weights[pair[1]]
