"""A dump of a training against one of the inference engine that answers for it, as in reinforcement learning.

Both are tensor dumps of modules (level L0). The engine joins layers that the training keeps apart (query, key and
value; gate and up), so several tensors of the training may answer to one of the engine.

Source of the names and of what is joined: the consistency check of mindstudio-probe 26.2.0. Ours: joined in the
order of the engine, not of appearance; recomputed calls are left out; a row that cannot be compared does not pass. What
an engine hands on apart is what the training has as one: hidden states and the residual of a layer, and the sum that a
norm makes of both. A fused activation, which multiplies with the other half, and packed weights answer to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from msprobe.compare import verdicts
from msprobe.compare.entry_names import read_name
from msprobe.compare.measures_tensor import UNSUPPORTED, TensorMeasures, all_six, measure_tensors
from msprobe.compare.problems import TaskMismatchError
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import Wording, said
from msprobe.statistics_table import USUAL_KEYS
from msprobe.store.columns import is_tensor, leaves
from msprobe.store.dtypes import Array
from msprobe.store.part import DumpPart
from msprobe.store.values import read_values

Backend = Literal["fsdp", "megatron"]
BACKENDS: tuple[Backend, ...] = ("fsdp", "megatron")

ERROR, WARNING, PASS = "error", "warning", "pass"
NO_PARTNER = "No bench data matched."

# Module of the training -> module of the engine, those that are joined in the order of the engine.
_NAMES: dict[str, dict[str, str]] = {
    "fsdp": {
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
        **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
    },
    "megatron": {
        "word_embeddings": "embed_tokens",
        "self_attention": "self_attn",
        "linear_qkv": "qkv_proj",
        "q_layernorm": "q_norm",
        "k_layernorm": "k_norm",
        "core_attention": "attn",
        "linear_proj": "o_proj",
        "router": "gate",
        "linear_fc1": "gate_up_proj",
        "linear_fc2": "down_proj",
    },
}
# Behind the backward pass of the whole model nothing is its forward, until tokens are embedded again.
_MODELS = frozenset(("Qwen2Model", "Qwen3Model", "Qwen3MoeModel", "GPTModel"))
_EMBEDDINGS = frozenset(("embed_tokens", "word_embeddings"))
_FUSED_ACTIVATION = "AndMul"
_ORDER = {"input": 0, "parameters": 1, "output": 2}
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")


class PairingKey(NamedTuple):
    """What pairs tensors: the call, the slot, the layer's number (-1 outside of layers) and the engine's name."""

    call: int
    slot: str
    layer: int
    module: str


@dataclass(frozen=True)
class DumpedTensor:
    """One tensor of a dump. ``statistics`` are max, min, mean and norm, None where the dump has none."""

    name: str
    module: str
    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool | None
    statistics: tuple[float | None, ...]
    data_name: str | None
    #: Tensors that are added to this one before it is compared.
    added: tuple[DumpedTensor, ...] = ()


@dataclass(frozen=True)
class PlacePair:
    """The tensors that answer to each other (none of a side that has none), measures, result and messages."""

    candidate: tuple[DumpedTensor, ...]
    reference: tuple[DumpedTensor, ...]
    measures: TensorMeasures
    result: str
    messages: tuple[str, ...]


def compare_training(training: DumpPart, inference: DumpPart, backend: Backend) -> Iterator[PlacePair]:
    """Compare place by place, in the training's order; at the end stands what the engine alone has.

    Raises TaskMismatchError unless both are tensor dumps; what the reader raises for broken files.
    """
    for part in (training, inference):
        if part.header.get("task") != "tensor":
            task = part.header.get("task")
            raise TaskMismatchError(said("inference-needs-tensors", part.path, task))
    names = _NAMES[backend]
    ours, theirs = collect(training, names), collect(inference, {}, is_engine=True)
    order = {module: number for number, module in enumerate(names)}
    for place, pieces_found in ours.items():
        pieces = tuple(sorted(_first_inputs(place, pieces_found), key=lambda piece: order.get(piece.module, 0)))
        yield _compared(place, pieces, theirs.get(place, ())[:1], (training, inference))
    for place, pieces_found in theirs.items():
        if place not in ours:
            yield _alone((), pieces_found[:1], said("target-row-missing"))


def _alone(ours: tuple[DumpedTensor, ...], theirs: tuple[DumpedTensor, ...], message: str) -> PlacePair:
    return PlacePair(ours, theirs, all_six(UNSUPPORTED), WARNING, (f"{WARNING}: {message}",))


def collect(
    part: DumpPart, names: Mapping[str, str], is_engine: bool = False
) -> dict[PairingKey, tuple[DumpedTensor, ...]]:
    """The tensors of all forward calls of modules, by place. Several of one place are joined modules, or a module
    that occurs again (the first of those counts).
    """
    pieces_by_place: dict[PairingKey, dict[str, DumpedTensor]] = {}
    forward = True
    for entry in part.names():
        name = read_name(entry)
        if name.kind != "module" or name.number is None:
            continue
        if name.direction == "backward":
            forward = forward and name.owner not in _MODELS
            continue
        module = _module(name.path)
        forward = forward or module in _EMBEDDINGS
        record = part.record(entry)
        if not forward or (isinstance(record, dict) and record.get("is_recompute") is True):
            continue
        layer = _LAYER.search(name.path)
        # In the order of the sheet: inputs, parameters, results.
        ordered = sorted(leaves(entry, record), key=lambda leaf: _ORDER.get(leaf[0].partition(".")[0], 0))
        pieces = {slot: _piece(entry, module, slot, leaf) for slot, leaf in ordered if is_tensor(leaf)}
        if is_engine:
            pieces = _as_training_has_them(pieces, module, name.owner)
        for slot, piece in pieces.items():
            place = PairingKey(name.number, slot, int(layer.group(1)) if layer else -1, names.get(module, module))
            pieces_by_place.setdefault(place, {}).setdefault(module, piece)
    return {place: tuple(pieces.values()) for place, pieces in pieces_by_place.items()}


def _as_training_has_them(pieces: dict[str, DumpedTensor], module: str, kind: str) -> dict[str, DumpedTensor]:
    """The tensors of a call of the engine in the slots in which the training has the same numbers."""
    if kind.endswith(_FUSED_ACTIVATION):
        return {}
    inputs = [slot for slot, piece in pieces.items() if slot.startswith("input.") and "float" in piece.dtype]
    results = [slot for slot in pieces if slot.startswith("output.")]
    if module.endswith("norm") and len(inputs) == 2 and len(results) == 2:
        done = {"input.0": pieces[results[1]], results[0]: pieces[results[0]]}
    elif module == "layers" and inputs and len(results) == 2:
        done = {"input.0": _sum_of([pieces[slot] for slot in inputs])}
        done["output.0"] = _sum_of([pieces[slot] for slot in results])
    else:
        return pieces
    return {**{slot: piece for slot, piece in pieces.items() if slot.startswith("parameters")}, **done}


def _sum_of(pieces: Sequence[DumpedTensor]) -> DumpedTensor:
    first = pieces[0]
    if len(pieces) == 1:
        return first
    name = " + ".join(piece.name for piece in pieces)
    # Of a sum nothing is known but its values.
    return replace(first, name=name, statistics=(None,) * 4, added=tuple(pieces[1:]))


def _module(path: str) -> str:
    """The last word of a path that is no number: ``model.layers.0`` is ``layers``."""
    return next((word for word in reversed(path.split(".")) if not word.isdigit()), "")


def _piece(entry: str, module: str, slot: str, leaf: dict[str, Any]) -> DumpedTensor:
    shape = leaf.get("shape")
    grad = leaf.get("requires_grad")
    data_name = leaf.get("data_name")
    numbers = (leaf.get(word) for word in USUAL_KEYS)
    return DumpedTensor(
        f"{entry}.{slot}",
        module,
        str(leaf["dtype"]),
        tuple(shape) if isinstance(shape, list) else (),
        grad if isinstance(grad, bool) else None,
        tuple(float(number) if isinstance(number, (int, float)) else None for number in numbers),
        data_name if isinstance(data_name, str) and data_name != "-1" else None,
    )


def _first_inputs(place: PairingKey, pieces: tuple[DumpedTensor, ...]) -> tuple[DumpedTensor, ...]:
    """Modules that are joined read the same input; one of them stands for it."""
    return pieces[:1] if place.slot.startswith("input") else pieces


def _compared(
    place: PairingKey,
    ours: tuple[DumpedTensor, ...],
    theirs: tuple[DumpedTensor, ...],
    parts: tuple[DumpPart, DumpPart],
) -> PlacePair:
    if not theirs:
        return _alone(ours, theirs, NO_PARTNER)
    if place.slot.startswith("parameters") and theirs[0].shape and not prod(theirs[0].shape):
        return _alone(ours, theirs, said("weight-is-packed"))
    try:
        left, right = (_joined(place, pieces, part) for pieces, part in zip((ours, theirs), parts, strict=True))
        measured = measure_tensors(left, right, "26.2")
    except MsprobeError as problem:
        return PlacePair(ours, theirs, all_six(UNSUPPORTED), ERROR, (Wording("{}: {}", ERROR, problem.message),))
    except (OSError, ValueError) as problem:
        # A mapped file on a disk that fails; pieces that do not fit to each other.
        return PlacePair(ours, theirs, all_six(UNSUPPORTED), ERROR, (Wording("{}: {}.", ERROR, problem),))
    word = verdicts.accuracy(measured)
    if word == verdicts.UNMATCHED or "N/A" in measured.values:
        result = ERROR
    else:
        result = WARNING if word == verdicts.NO else PASS
    notes = tuple(Wording("{}: {}", result, note) for note in measured.notes) if result != PASS else measured.notes
    if result == WARNING and not notes:
        notes = (Wording("{}: {}", WARNING, said("values-of-row-differ")),)
    return PlacePair(ours, theirs, measured, result, notes)


def _joined(place: PairingKey, pieces: tuple[DumpedTensor, ...], part: DumpPart) -> Array:
    """The values of all pieces without dimensions of length 1: parameters below, all else beside each other."""
    arrays = []
    for piece in pieces:
        total: Array | None = None
        for part_of_sum in (piece, *piece.added):
            if part_of_sum.data_name is None:
                raise InvalidInputError(said("tensor-without-file", part_of_sum.name))
            values = read_values(part.tensor_path(part_of_sum.data_name)).array.squeeze()
            total = values if total is None else total + values
        assert total is not None
        arrays.append(total)
    if len(arrays) == 1:
        return arrays[0]
    joined: Array = np.concatenate(arrays, axis=0 if place.slot.startswith("parameters") else -1)
    return joined


def joint_statistics(pieces: tuple[DumpedTensor, ...]) -> tuple[float | None, ...]:
    """Max, min, mean and norm of all pieces together; None where one of them has none."""
    if not pieces:
        return (None,) * 4
    high, low, mean, norm = ([piece.statistics[kind] for piece in pieces] for kind in range(4))
    sizes = [prod(piece.shape) for piece in pieces]

    def known(values: list[float | None]) -> list[float]:
        return [value for value in values if value is not None]

    def whole(values: list[float | None]) -> bool:
        return None not in values

    total = sum(sizes)
    return (
        max(known(high)) if whole(high) else None,
        min(known(low)) if whole(low) else None,
        sum(value * size for value, size in zip(known(mean), sizes, strict=True)) / total
        if whole(mean) and total
        else None,
        sqrt(sum(value * value for value in known(norm))) if whole(norm) else None,
    )
