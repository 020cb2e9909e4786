"""Open a checkpoint of any format: which one it is, is seen of its files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from msprobe.environment.checkpoint.array_files import read_mindspore, read_numpy, read_safetensors
from msprobe.environment.checkpoint.contents import (
    Checkpoint,
    Section,
    Walk,
    from_tree,
    inside,
    place_of,
    put,
    section_of,
    settings_of,
    small_file,
)
from msprobe.environment.checkpoint.deepspeed import is_deepspeed, read_deepspeed
from msprobe.environment.checkpoint.distributed import read_distributed
from msprobe.environment.checkpoint.megatron import is_megatron, read_megatron
from msprobe.environment.checkpoint.mindspore_ranks import is_mindspore_ranks, read_mindspore_ranks
from msprobe.environment.checkpoint.optimizer_states import name_states
from msprobe.environment.checkpoint.tensors import CheckpointTensor
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.archives import Archive
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import open_regular
from msprobe.messages import Wording, said

_INDEXES = (
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.safetensors.index.json",
)
_SINGLE = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
_TRAINER = re.compile(r"(optimizer|scheduler|scaler|rng_state(?:_\d+)?)\.(?:pt|pth|bin)$")
_TORCH = (".pt", ".pth", ".bin", ".ckpt", ".tar")


def open_checkpoint(path: str, allow_missing: bool = False) -> Checkpoint:
    """Open a file or folder; no tensor is read, and nothing in it is executed.

    ``allow_missing``: go on where files of ranks are missing. Raises PathError, and InvalidInputError for what is no
    checkpoint.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise PathError(said("checkpoint-missing", path))
    try:
        checkpoint = _open_folder(path, allow_missing) if os.path.isdir(path) else _open_file(path)
    except InvalidInputError as problem:
        if path in problem.message:
            raise
        raise InvalidInputError(Wording('"{}": {}', path, problem.message)) from problem
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as problem:
        # Whatever a checkpoint that holds other things than its format says makes of what reads it.
        raise InvalidInputError(said("checkpoint-broken", path, problem)) from problem
    except OSError as problem:
        raise PathError(said("checkpoint-unreadable", path, reason_of(problem))) from problem
    checkpoint.path = path
    return checkpoint


def _open_folder(path: str, allow_missing: bool) -> Checkpoint:
    names = sorted(os.listdir(path))
    if is_megatron(path):
        return read_megatron(path, allow_missing)
    if ".metadata" in names:
        return read_distributed(path)
    if is_deepspeed(path):
        return read_deepspeed(path, allow_missing)
    if is_mindspore_ranks(names):
        return read_mindspore_ranks(path, _named_by_mindspore)
    checkpoint = Checkpoint(path, "Hugging Face")
    index = next((name for name in _INDEXES if name in names), None)
    if index is not None:
        _sharded(checkpoint, os.path.join(path, index))
    else:
        whole = [name for name in _SINGLE if name in names] or [name for name in names if name.endswith(".safetensors")]
        if not whole:
            inner = [name for name in names if os.path.isfile(os.path.join(path, name)) and _is_tensor_file(name)]
            if len(inner) != 1:
                some = said("give-one-of-held", ", ".join(inner[:5])) if inner else ""
                raise InvalidInputError(said("checkpoint-unknown", path, some, said("known-checkpoints")))
            return _open_file(os.path.join(path, inner[0]))
        for name in whole if whole[0] not in _SINGLE else whole[:1]:
            _add(checkpoint, _tensors(os.path.join(path, name)), name)
    _beside(checkpoint, path, names)
    _further_files(checkpoint, path, names)
    return checkpoint


def _is_tensor_file(name: str) -> bool:
    return name.endswith((*_TORCH, ".npz", ".npy", ".distcp"))


def _sharded(checkpoint: Checkpoint, index: str) -> None:
    content = parse_json(small_file(index), index)
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not files:
        raise InvalidInputError(said("index-without-weight-map", index))
    missing, loaded = [], {}
    for name in sorted(set(map(str, files.values()))):
        try:
            loaded[name] = _tensors(inside(os.path.dirname(index), name, index))
        except PathError as problem:
            missing.append(problem.message)
    if missing:
        raise PathError(" ".join(missing[:5]))
    for name, file in files.items():
        if name not in loaded[str(file)]:
            raise InvalidInputError(said("index-names-absent-tensor", index, name[:80], file))
        checkpoint.weights[name] = loaded[str(file)][name]


def _add(checkpoint: Checkpoint, tensors: dict[str, CheckpointTensor], file: str) -> None:
    for name, tensor in tensors.items():
        if name in checkpoint.weights:
            raise InvalidInputError(said("parameter-in-several-files", checkpoint.path, name[:80], file))
        checkpoint.weights[name] = tensor


def _tensors(path: str) -> dict[str, CheckpointTensor]:
    if path.endswith(".safetensors"):
        return read_safetensors(path)
    checkpoint = Checkpoint(path, "torch")
    from_tree(checkpoint, read_torch(path))
    return checkpoint.weights


def _beside(checkpoint: Checkpoint, folder: str, names: list[str]) -> None:
    """What stands beside weights: settings of the model, and the state of the trainer."""
    if "config.json" in names:
        try:
            path = os.path.join(folder, "config.json")
            checkpoint.settings = settings_of(parse_json(small_file(path), path))
        except InvalidInputError as problem:
            checkpoint.notes.append(problem.message)
    if "trainer_state.json" in names:
        try:
            path = os.path.join(folder, "trainer_state.json")
            state = parse_json(small_file(path), path)
            step = state.get("global_step") if isinstance(state, dict) else None
            checkpoint.iteration = step if type(step) is int else None
        except InvalidInputError as problem:
            checkpoint.notes.append(problem.message)
    for name in names:
        match = _TRAINER.match(name)
        if match is None:
            continue
        section = "random" if section_of(match[1]) == "random" else "optimizer"
        put(
            checkpoint.random if section == "random" else checkpoint.optimizer,
            checkpoint.facts,
            _tree(checkpoint, folder, name),
            match[1],
        )
    name_states(checkpoint)


def _tree(checkpoint: Checkpoint, folder: str, name: str) -> Any:
    try:
        return read_torch(os.path.join(folder, name))
    except (InvalidInputError, PathError) as problem:
        checkpoint.unread[name] = problem.message
        return None


def _further_files(checkpoint: Checkpoint, folder: str, names: list[str]) -> None:
    """What else a folder has of tensors: averages, a second model, shards of a trainer; each under its file's name."""
    index = next((name for name in _INDEXES if name in names), None)
    stem = index.partition(".")[0] if index else ""
    whole = next((name for name in _SINGLE if name in names), None)
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            if any(map(_is_tensor_file, _listed(path))):
                checkpoint.unread[f"{name}/"] = said("own-checkpoint")
            continue
        is_read = name.startswith(f"{stem}-") if stem else name == whole or (whole is None and _is_safe(name))
        if is_read or _TRAINER.match(name) or not (_is_tensor_file(name) or _is_safe(name)):
            continue
        try:
            inner = Checkpoint(path, "")
            walk = Walk()
            tree: Any = (
                read_safetensors(path) if _is_safe(name) else read_numpy(path) if ".np" in name else read_torch(path)
            )
            if place_of("", tree, True, walk) == "other":
                put(inner.other, inner.facts, tree, os.path.splitext(name)[0], walk)
            checkpoint.other.update(inner.other)
        except (InvalidInputError, PathError) as problem:
            checkpoint.unread[name] = problem.message


def _is_safe(name: str) -> bool:
    return name.endswith(".safetensors")


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _open_file(path: str) -> Checkpoint:
    with open_regular(path) as file:
        head = file.read(16)
    if not head:
        raise InvalidInputError(said("file-is-empty", path))
    readers: dict[str, Callable[[str], dict[str, CheckpointTensor]]] = {
        ".safetensors": read_safetensors,
        ".npz": read_numpy,
        ".npy": read_numpy,
    }
    suffix = os.path.splitext(path)[1]
    if suffix in readers:
        checkpoint = Checkpoint(path, suffix[1:], readers[suffix](path))
    elif head[:1] == b"\n" and suffix == ".ckpt":
        tensors, texts = read_mindspore(path)
        checkpoint = Checkpoint(path, "MindSpore", facts=texts)
        for name, tensor in tensors.items():
            section, own = _named_by_mindspore(name)
            checkpoint.section(section)[own] = tensor
    elif suffix in _TORCH or head[:2] in (b"\x80\x02", b"PK"):
        if head[:2] == b"PK" and not _is_torch_archive(path):
            raise InvalidInputError(said("archive-without-data-pkl", path, said("known-checkpoints")))
        checkpoint = Checkpoint(path, "torch")
        from_tree(checkpoint, read_torch(path))
        name_states(checkpoint)
    else:
        raise InvalidInputError(said("checkpoint-unknown-pack-scripts", path, said("known-checkpoints")))
    if not (checkpoint.weights or checkpoint.optimizer or checkpoint.random):
        raise InvalidInputError(said("checkpoint-holds-no-tensor", path))
    return checkpoint


def _is_torch_archive(path: str) -> bool:
    with open_regular(path) as file:
        return any(name == "data.pkl" or name.endswith("/data.pkl") for name in Archive(file, path).entries)


_MOMENTS = {
    "moment1": "exp_avg", "moment2": "exp_avg_sq", "adam_m": "exp_avg", "adam_v": "exp_avg_sq", "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq", "moments": "momentum_buffer", "accum": "accum",
}  # fmt: skip


def _named_by_mindspore(name: str) -> tuple[Section, str]:
    section: Section = _section_in_mindspore(name)
    return section, _moment_last(name) if section == "optimizer" else name


def _moment_last(name: str) -> str:
    """The moment behind the name of its parameter, as all other formats have it."""
    word, _, parameter = name.partition(".")
    return f"{parameter}.{_MOMENTS[word]}" if word in _MOMENTS and parameter else name


def _section_in_mindspore(name: str) -> Any:
    moments = tuple(f"{word}." for word in _MOMENTS)
    single = (
        "global_step",
        "learning_rate",
        "beta1_power",
        "beta2_power",
        "scale_sense",
        "loss_scale",
        "epoch_num",
        "step_num",
    )
    return "optimizer" if name.startswith(moments) or name in single else "weights"
