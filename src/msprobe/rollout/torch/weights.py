"""Does the engine hold the trainer's weights? Digests of each row in the engine's type, without any tolerance."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import xxhash

from msprobe.coverage import NotRead
from msprobe.messages import said
from msprobe.rollout.contract import RolloutFinding
from msprobe.rollout.engine_file import EngineModule
from msprobe.rollout.layout import MatrixPiece, pieces
from msprobe.rollout.torch.digests import row_digests, set_digests
from msprobe.rollout.torch.trainer_weights import TrainerWeights

#: Path and weight of an engine -> one number for the digests of its rows.
Folded = Mapping[tuple[str, str], int]
_OF_EXPERTS = {"w13_weight": "gate_up_proj", "w2_weight": "down_proj"}
_NARROWER = (torch.bfloat16, torch.float16, getattr(torch, "float8_e4m3fn", None))


@dataclass(frozen=True)
class EarlierWeights:
    """What an engine held after an earlier synchronisation, and the number of that."""

    step: int
    weights: Folded


def fold(rows: Sequence[int]) -> int:
    """One number for the digests of all rows."""
    return xxhash.xxh3_64_intdigest(array("Q", rows).tobytes())


@dataclass(frozen=True)
class _Held:
    """A weight of the engine: its rows, and the trainer's names and pieces that it should be made of."""

    path: str
    name: str
    digests: list[int]
    kind: torch.dtype | None
    names: list[str]
    pieces: list[MatrixPiece]
    blocks: list[list[int]]

    @property
    def wanted(self) -> list[int]:
        return [digest for block in self.blocks for digest in block]


def hold_weights(
    modules: Mapping[str, EngineModule], trainer: TrainerWeights, before: Sequence[EarlierWeights] = ()
) -> tuple[list[RolloutFinding], int, list[NotRead]]:
    """Findings, how many weights are equal, and what nobody could compare.

    ``before``: what the engine held earlier, which distinguishes a weight that never arrived from one that is wrong.
    """
    findings: list[RolloutFinding] = []
    not_read: list[NotRead] = []
    equal, seen = 0, set()
    for path, module in modules.items():
        not_read += [NotRead(said("weight-of-engine", f"{path}.{name}"), why) for name, why in module.unread.items()]
        for name, digests in module.weights.items():
            held = _held(path, name, digests, module, trainer)
            if held is None:
                not_read.append(NotRead(said("weight-of-engine", f"{path}.{name}"), said("trainer-lacks-module")))
                continue
            seen.update(held.names)
            # A table of embeddings is padded to the sizes of kernels.
            if held.digests[: len(held.wanted)] == held.wanted or _is_same_set(held, module, trainer):
                equal += 1
            else:
                findings.append(_finding(held, trainer, before))
    unread = {
        f"{part}.{name}" for path, module in modules.items() for name in module.unread for part in trainer.parts(path)
    }
    lost = sorted(set(trainer.names()) - seen - unread - trainer.tied())
    not_read += [NotRead(said("weight-of-trainer", name), said("engine-lacks-weight")) for name in lost]
    return findings, equal, not_read


def _held(path: str, name: str, digests: list[int], module: EngineModule, trainer: TrainerWeights) -> _Held | None:
    stem, _, number = name.partition(".")
    parts = trainer.parts(path)
    if stem in ("lora_a", "lora_b") and number.isdigit():
        if int(number) >= len(parts):
            return None
        return _adapter(path, name, digests, module, trainer, f"{parts[int(number)]}.{stem}")
    names = [f"{part}.{_OF_EXPERTS.get(name, name)}" for part in parts]
    names = [weight for weight in names if trainer.has(weight)]
    if not names and path.rpartition(".")[2] == "lm_head":
        names = [weight for weight in (trainer.head(),) if weight is not None]
    if not names:
        return None
    kind = _kind(module.dtypes.get(name, ""))
    cut = pieces(module.numbers, [trainer.shape(weight)[0] for weight in names])
    if all(len(trainer.shape(weight)) == 1 for weight in names):
        # A fused vector has one digest, whatever it is made of.
        whole = [trainer.vector(weight)[piece.rows or slice(None)] for weight, piece in zip(names, cut, strict=True)]
        blocks = [row_digests(torch.cat(whole), kind)]
    else:
        blocks = [_rows(trainer, weight, kind, piece) for weight, piece in zip(names, cut, strict=True)]
    return _Held(path, name, digests, kind, names, cut, blocks)


def _is_same_set(held: _Held, module: EngineModule, trainer: TrainerWeights) -> bool:
    """Are the numbers of each expert the trainer's, in the order in which a kernel packs them?"""
    tensor = trainer.tensor(held.names[0]) if len(held.names) == 1 else None
    digest = module.sets.get(held.name)
    return tensor is not None and digest is not None and tensor.dim() > 2 and digest == set_digests(tensor, held.kind)


def _adapter(
    path: str, name: str, digests: list[int], module: EngineModule, trainer: TrainerWeights, own: str
) -> _Held:
    """An adapter's matrix: the engine has room for a larger rank, which is filled with zeros."""
    kind = _kind(module.dtypes.get(name, ""))
    tensor = trainer.tensor(own)
    if tensor is None:
        wanted: list[int] = [digests[-1] if digests else 0] * len(digests)
        is_empty = len(set(digests)) <= 1
        return _Held(path, name, digests, kind, [], [], [wanted if is_empty else [-1] * len(digests)])
    rank = max(int(module.numbers.get("max_lora_rank", 0)), tensor.shape[0 if name.startswith("lora_a") else 1])
    wide = tensor.new_zeros((rank, tensor.shape[1]) if name.startswith("lora_a") else (len(tensor), rank))
    wide[: tensor.shape[0], : tensor.shape[1]] = tensor
    return _Held(path, name, digests, kind, [own], [MatrixPiece()], [row_digests(wide, kind)])


def _kind(dtype: str) -> torch.dtype | None:
    kind = getattr(torch, dtype.removeprefix("torch."), None) if dtype else None
    return kind if isinstance(kind, torch.dtype) else None


def _rows(trainer: TrainerWeights, name: str, kind: Any, piece: MatrixPiece) -> list[int]:
    rows = trainer.rows(name, kind, piece.columns)
    return rows if piece.rows is None else rows[piece.rows]


# ---- what an unequal weight is


def _finding(held: _Held, trainer: TrainerWeights, before: Sequence[EarlierWeights]) -> RolloutFinding:
    digests, wanted = held.digests, held.wanted
    arguments: dict[str, Any] = {
        "module": held.path,
        "weight": held.name,
        "rows": len(wanted),
        "engine_rows": len(digests),
        "parts": [weight.rpartition(".")[0] for weight in held.names],
    }
    differ = sum(digest != other for digest, other in zip(digests, wanted, strict=False))
    arguments["differ"] = max(differ, len(wanted) - len(digests))
    if held.name.startswith("lora_") and len(set(digests)) <= 1:
        return RolloutFinding("adapter-not-bound", (), arguments)
    if len(digests) == len(wanted) and sorted(digests) == sorted(wanted):
        turned = [digest for block in reversed(held.blocks) for digest in block]
        name = "weights-exchanged" if len(held.blocks) > 1 and digests == turned else "weight-rows-exchanged"
        return RolloutFinding(name, (), arguments)
    now = fold(digests)
    same = [earlier.step for earlier in before if earlier.weights.get((held.path, held.name)) == now]
    if same:
        # The oldest synchronisation since which nothing has come.
        return RolloutFinding("weights-stale", (), {**arguments, "step": min(same)})
    return _value_finding(held, trainer, arguments) or RolloutFinding("weights-differ", (), arguments)


def _value_finding(held: _Held, trainer: TrainerWeights, arguments: dict[str, Any]) -> RolloutFinding | None:
    """What can be said where the trainer's tensors are at hand: cast, transposed, another weight, another shard."""
    tensors = [trainer.tensor(name) for name in held.names]
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return None
    cut = list(zip(tensors, held.pieces, strict=True))
    if tensors[0].dim() < 2:
        cut = [(torch.cat([tensor[piece.rows or slice(None)] for tensor, piece in cut]), MatrixPiece())]
    whole = all(piece == MatrixPiece() for piece in held.pieces)
    for kind in _NARROWER:
        if kind is None or kind == held.kind:
            continue
        cast = [digest for tensor, piece in cut for digest in _cut(tensor.to(kind), held.kind or tensor.dtype, piece)]
        if cast == held.digests[: len(cast)]:
            return RolloutFinding("weights-cast", (), {**arguments, "type": str(kind).removeprefix("torch.")})
    if whole and all(tensor.dim() == 2 for tensor in tensors):
        # Of fused matrices one alone may be turned.
        first = 0
        for tensor, block in zip(tensors, held.blocks, strict=True):
            mine = held.digests[first : first + len(block)]
            first += len(block)
            if mine != block and tensor.shape[0] == tensor.shape[1] and mine == row_digests(tensor.t(), held.kind):
                return RolloutFinding("weights-transposed", (), arguments)
    if all(tensor.unique().numel() > 1 for tensor in tensors):
        for filled in (0.0, 1.0):
            same = [
                digest for tensor, piece in cut for digest in _cut(torch.full_like(tensor, filled), held.kind, piece)
            ]
            if held.digests == same:
                return RolloutFinding("weights-missing", (), {**arguments, "filled": filled})
    if not whole:
        everything = {digest for name in held.names for digest in trainer.rows(name, held.kind, None)}
        others = [_other_rank(held, trainer, piece) for piece in held.pieces if piece.columns is not None]
        if everything.issuperset(held.digests) or any(others):
            return RolloutFinding("weights-wrong-shard", (), arguments)
    other = _same_elsewhere(held, trainer)
    return None if other is None else RolloutFinding("weights-of-another", (), {**arguments, "other": other})


def _cut(tensor: Any, kind: torch.dtype | None, piece: MatrixPiece) -> list[int]:
    rows = row_digests(tensor, kind, piece.columns)
    return rows if piece.rows is None else rows[piece.rows]


def _other_rank(held: _Held, trainer: TrainerWeights, piece: MatrixPiece) -> bool:
    """Are the columns those of a different rank?"""
    assert piece.columns is not None
    size = piece.columns.stop - piece.columns.start
    width = trainer.width(held.names[0])
    return any(
        held.digests == trainer.rows(held.names[0], held.kind, slice(first, first + size))
        for first in range(0, width - size + 1, size)
    )


def _same_elsewhere(held: _Held, trainer: TrainerWeights) -> str | None:
    """The name of another weight of the trainer, of the same shape, that the engine holds in this place."""
    shapes = [trainer.shape(name) for name in held.names]
    ending = held.names[0].rpartition(".")[2]
    for name in trainer.names():
        if name in held.names or name.rpartition(".")[2] != ending or trainer.shape(name) != shapes[0]:
            continue
        rows = trainer.rows(name, held.kind, None)
        first = 0
        for block in held.blocks:
            if held.digests[first : first + len(block)] == rows and rows != block:
                return name
            first += len(block)
    return None
