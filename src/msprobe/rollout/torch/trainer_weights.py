"""A trainer's weights by the names of transformers, in rows: of a model, of shards of FSDP2, of Megatron-core.

Digests travel between ranks, never the weights themselves: a row that one rank holds is digested there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.rollout.torch.digests import row_digests
from msprobe.rollout.torch.fused import Paths

_NO_WEIGHTS = ("_extra_state",)


@dataclass(frozen=True)
class _Block:
    """Rows of a tensor, in the order in which they stand in a weight; ``beside``: its further columns, by rank."""

    tensor: Any
    rows: tuple[slice, ...] = (slice(None),)
    beside: tuple[Any, ...] = ()


class TrainerWeights:
    """Weights by name. Made by ``of_model``, ``of_state_dict`` or ``of_megatron``."""

    def __init__(self, blocks: Mapping[str, Sequence[_Block]], head: str | None = None) -> None:
        self._blocks = {name: list(those) for name, those in blocks.items()}
        self._paths = Paths(name.rpartition(".")[0] for name in self._blocks)
        self._head = head
        self._digests: dict[tuple[str, Any, Any], list[int]] = {}

    @classmethod
    def of_model(cls, model: Any) -> TrainerWeights:
        """Those of a module: parameters, and the matrices of adapters. Plain, or sharded by FSDP2."""
        tensors = dict(model.named_parameters(remove_duplicate=False))
        tensors.update(
            (name, tensor) for name, tensor in model.named_buffers() if name.rpartition(".")[2].startswith("lora_")
        )
        return cls.of_state_dict(tensors)

    @classmethod
    def of_state_dict(cls, tensors: Mapping[str, Any]) -> TrainerWeights:
        """Those of a state dict with the names of transformers; values may be DTensors, whose mesh must be alive."""
        plain = {_plain(name): tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
        head = next(
            (name for name in ("lm_head.weight", "embed_out.weight", "model.embed_tokens.weight") if name in plain),
            None,
        )
        return cls({name: [_Block(tensor)] for name, tensor in plain.items()}, head)

    @classmethod
    def of_megatron(cls, ranks: Sequence[Mapping[str, Any]], heads: int, kv_heads: int) -> TrainerWeights:
        """Those of the state dicts of a Megatron-core GPT, one for each tensor-parallel rank, in their order.

        ``heads``, ``kv_heads``: attention heads of the whole model. Raises InvalidInputError for names that are none of
        a dense GPT's.
        """
        return cls(*_megatron_blocks([_tensors(state) for state in ranks], heads, kv_heads))

    def names(self) -> list[str]:
        """All names."""
        return list(self._blocks)

    def has(self, name: str) -> bool:
        """Is there a weight of this name?"""
        return name in self._blocks

    def parts(self, path: str) -> list[str]:
        """The paths that an engine's module is made of."""
        return self._paths.parts(path)

    def head(self) -> str | None:
        """The weight that makes logits."""
        return self._head

    def tied(self) -> set[str]:
        """Names that share their memory with another's."""
        first: dict[int, str] = {}
        done: set[str] = set()
        for name, blocks in self._blocks.items():
            tensor = blocks[0].tensor
            place = id(tensor) if _is_sharded(tensor) or not tensor.numel() else tensor.data_ptr()
            if first.setdefault(place, name) != name:
                done.update((name, first[place]))
        return done

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the whole weight."""
        blocks = self._blocks[name]
        block = blocks[0]
        if block.tensor.dim() < 2:
            return (sum(_length(block) for block in blocks),)
        width = block.tensor.shape[1] + sum(part.shape[1] for part in block.beside)
        return (sum(_length(block) for block in blocks), width, *block.tensor.shape[2:])

    def width(self, name: str) -> int:
        """Columns of the whole weight."""
        return self.shape(name)[1] if len(self.shape(name)) > 1 else self.shape(name)[0]

    def tensor(self, name: str) -> Any:
        """The tensor itself where it is one plain tensor; None where it is spread over ranks, or missing."""
        blocks = self._blocks.get(name, [])
        if len(blocks) != 1 or blocks[0].beside or blocks[0].rows != (slice(None),) or _is_sharded(blocks[0].tensor):
            return None
        return blocks[0].tensor.detach()

    def vector(self, name: str) -> Any:
        """The whole of a weight of one dimension. Collective where it is sharded."""
        pieces = []
        for block in self._blocks[name]:
            tensor = block.tensor.full_tensor() if _is_sharded(block.tensor) else block.tensor
            pieces += [tensor.detach()[part] for part in block.rows]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def rows(self, name: str, kind: torch.dtype | None, columns: slice | None) -> list[int]:
        """Digests of the rows of the whole weight in a type; of some columns alone. Collective where it is sharded."""
        key = name, kind, None if columns is None else (columns.start, columns.stop)
        if key not in self._digests:
            self._digests[key] = self._rows(name, kind, columns)
        return self._digests[key]

    def _rows(self, name: str, kind: Any, columns: slice | None) -> list[int]:
        if len(self.shape(name)) == 1:
            return row_digests(self.vector(name), kind)
        done: list[int] = []
        for block in self._blocks[name]:
            tensor = block.tensor.detach() if not block.beside else torch.cat([block.tensor, *block.beside], 1).detach()
            gathered = _gathered(tensor, kind, columns) if _is_sharded(tensor) else row_digests(tensor, kind, columns)
            done += [digest for part in block.rows for digest in gathered[part]]
        return done


def _length(block: _Block) -> int:
    return sum(len(range(*part.indices(block.tensor.shape[0]))) for part in block.rows)


def _plain(name: str) -> str:
    """Names without what wrappers put in front."""
    for word in ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module."):
        name = name.replace(word, "")
    return name.removeprefix("module.").removeprefix("base_model.model.")


def _tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    inner = state.get("model")
    tensors = inner if isinstance(inner, Mapping) else state
    return {_plain(name): tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}


# ---- FSDP2


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def _gathered(tensor: Any, kind: Any, columns: slice | None) -> list[int]:
    """Of a DTensor: rows that are spread over ranks are digested where they lie, and the digests gathered."""
    spread = [place for place in tensor.placements if not place.is_replicate()]
    if not spread:
        return row_digests(tensor.to_local(), kind, columns)
    plain = len(spread) == 1 and type(spread[0]).__name__ == "Shard" and spread[0].dim == 0
    if not plain:
        return row_digests(tensor.full_tensor(), kind, columns)
    group = tensor.device_mesh.get_group(list(tensor.placements).index(spread[0]))
    parts: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(parts, row_digests(tensor.to_local(), kind, columns), group=group)
    return [digest for part in parts for digest in part][: tensor.shape[0]]


# ---- Megatron-core

_TABLES = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "output_layer.weight": "lm_head.weight"}
_ONCE = {
    "decoder.final_layernorm.weight": "model.norm.weight",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "input_layernorm.weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
}
_COLUMNS = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}
_QKV, _FC1 = "self_attention.linear_qkv.", "mlp.linear_fc1."
_LAYERS = "decoder.layers."


def _megatron_blocks(
    ranks: Sequence[Mapping[str, Any]], heads: int, kv_heads: int
) -> tuple[dict[str, list[_Block]], str | None]:
    done: dict[str, list[_Block]] = {}
    strange = []
    for name in ranks[0] if ranks else ():
        shards = [state[name] for state in ranks if name in state]
        layer, short = "", name
        if name.startswith(_LAYERS):
            number, _, short = name.removeprefix(_LAYERS).partition(".")
            layer = f"model.layers.{number}."
        last = short.rpartition(".")[2]
        if short in _TABLES:
            done[_TABLES[short]] = [_Block(shard) for shard in shards]
        elif short in _ONCE:
            done[layer + _ONCE[short]] = [_Block(shards[0])]
        elif short in _COLUMNS:
            done[layer + _COLUMNS[short]] = [_Block(shards[0], beside=tuple(shards[1:]))]
        elif short in (f"{_QKV}weight", f"{_QKV}bias"):
            for place, projection in enumerate(("q_proj", "k_proj", "v_proj")):
                done[f"{layer}self_attn.{projection}.{last}"] = [
                    _Block(shard, _rows_by_group(shard.shape[0], len(shards), heads, kv_heads)[place])
                    for shard in shards
                ]
        elif short in (f"{_FC1}weight", f"{_FC1}bias"):
            half = shards[0].shape[0] // 2
            done[f"{layer}mlp.gate_proj.{last}"] = [_Block(shard, (slice(0, half),)) for shard in shards]
            done[f"{layer}mlp.up_proj.{last}"] = [_Block(shard, (slice(half, 2 * half),)) for shard in shards]
        elif not short.endswith(_NO_WEIGHTS):
            strange.append(name)
    if strange or not done:
        shown = ", ".join(strange[:5]) or "nothing"
        raise InvalidInputError(said("megatron-names-unknown", shown))
    head = next((name for name in ("lm_head.weight", "model.embed_tokens.weight") if name in done), None)
    return done, head


def _rows_by_group(rows: int, ranks: int, heads: int, kv_heads: int) -> list[tuple[slice, ...]]:
    """Rows of queries, keys, values in a shard that has them by groups: the queries of one, its key, its value."""
    groups, each = max(1, kv_heads // ranks), heads // kv_heads
    size = rows // (groups * (each + 2))
    if size * groups * (each + 2) != rows:
        raise InvalidInputError(said("megatron-heads", rows, heads, kv_heads))
    whole = (each + 2) * size
    bounds = ((0, each * size), (each * size, (each + 1) * size), ((each + 1) * size, whole))
    return [tuple(slice(at * whole + a, at * whole + b) for at in range(groups)) for a, b in bounds]
