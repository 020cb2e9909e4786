"""The trainer's attention on the queries, keys and values that the engine recorded, each request by its positions.

Keys of earlier passes come from the record. Where they were cached before it began, those of a request with the same
tokens in front stand in for them, which are the same numbers; and else the trainer's own of the same tokens, which
differ by what two forward passes drift: limits are widened by four times the drift of the keys that both have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from msprobe.messages import said
from msprobe.rollout.torch.measuring import UNITS, JudgedRows, NotKnown
from msprobe.rollout.torch.trainer import Trainer

#: A piece of the catalogue: why a row is not judged.
CACHED = "keys-cached-before"
_TIMES_DRIFT = 4.0


@dataclass
class _Keys:
    """Keys and values of one request by position, as the attention of one layer was given them.

    ``widened``: units by which limits are widened, as some are the trainer's; 0 where all are the engine's own.
    """

    keys: dict[int, Any] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    widened: float = 0.0


class Attention:
    """Judges calls in the order of execution. ``tokens``: request -> prompt and answer, for keys that stand in."""

    def __init__(self, trainer: Trainer, tokens: Mapping[str, Sequence[int]]) -> None:
        self.trainer = trainer
        self.tokens = tokens
        self._cache: dict[str, dict[str, _Keys]] = {}
        self._own: dict[str, list[tuple[Any, Any]]] = {}

    def remember(self, path: str, tensors: Sequence[Any], requests: Sequence[str], positions: Any) -> JudgedRows:
        """Keep keys and values; which rows can be judged, and by how much limits are widened. Raises NotKnown."""
        if positions is None or len(requests) != len(positions) or len(positions) != len(tensors[0]):
            raise NotKnown(said("rows-unknown"))
        layer = self._cache.setdefault(path, {})
        for row, (request, place) in enumerate(zip(requests, positions.tolist(), strict=True)):
            kept = layer.setdefault(request, _Keys())
            if place == 0:
                kept = layer[request] = _Keys()
            kept.keys[place], kept.values[place] = tensors[1][row], tensors[2][row]
        whole, widened = np.ones(len(requests), bool), np.zeros(len(requests))
        last = dict(zip(requests, positions.tolist(), strict=True))
        unknown = set()
        for request, place in last.items():
            missing = [at for at in range(place) if at not in layer[request].keys]
            if missing and not self._same_in_front(layer, request, missing):
                drift = self._stand_in(path, layer[request], request, missing)
                layer[request].widened = drift or 0.0
                if drift is None:
                    unknown.add(request)
        for row, request in enumerate(requests):
            whole[row] = request not in unknown
            widened[row] = layer[request].widened
        lost = sum(request in unknown for request in requests)
        skipped = {CACHED: lost} if lost else {}
        if not whole.any():
            raise NotKnown(said(CACHED))
        return JudgedRows(whole, skipped, widened if (widened > 0).any() else None)

    def _same_in_front(self, layer: Mapping[str, _Keys], request: str, missing: Sequence[int]) -> bool:
        """Take keys of another request that begins with the same tokens; False where no such one was recorded."""
        mine = list(self.tokens.get(request, ()))[: missing[-1] + 1]
        if len(mine) <= missing[-1]:
            return False
        for other, kept in layer.items():
            if other == request or kept.widened or list(self.tokens.get(other, ()))[: len(mine)] != mine:
                continue
            if all(at in kept.keys for at in missing):
                for at in missing:
                    layer[request].keys[at], layer[request].values[at] = kept.keys[at], kept.values[at]
                return True
        return False

    def _stand_in(self, path: str, kept: _Keys, request: str, missing: Sequence[int]) -> float | None:
        """Put the trainer's keys where the record has none: units by which limits are widened; None without any."""
        number = getattr(self.trainer.parent_of(path), "layer_idx", None)
        tokens = self.tokens.get(request)
        if number is None or not tokens or len(tokens) <= missing[-1]:
            return None
        if request not in self._own:
            self._own[request] = _keys_of(self.trainer.model, tokens)
        if number >= len(self._own[request]):
            return None
        keys, values = self._own[request][number]
        both = [at for at in kept.keys if at < len(keys)]
        if not both or keys[0].shape != kept.keys[both[0]].shape:
            return None
        drift = max(
            _relative(torch.stack([table[at] for at in both]), own[both])
            for table, own in ((kept.keys, keys), (kept.values, values))
        )
        for at in missing:
            kept.keys[at], kept.values[at] = keys[at], values[at]
        return max(1.0, _TIMES_DRIFT * drift / UNITS[keys.dtype])

    def of(
        self, path: str, tensors: Sequence[Any], requests: Sequence[str], positions: Any, keep: Any, wide: bool
    ) -> list[Any]:
        """The trainer's result of the rows in ``keep``; 0 elsewhere. Raises NotKnown."""
        attention = self.trainer.parent_of(path)
        size, scale = getattr(attention, "head_dim", None), getattr(attention, "scaling", None)
        if size is None or scale is None:
            raise NotKnown(said("scale-unknown"))
        done = torch.zeros_like(cast(tensors[0], wide))
        window = getattr(attention, "sliding_window", None)
        cap = getattr(attention, "attn_logit_softcapping", None)
        for row in np.flatnonzero(keep).tolist():
            place = int(positions[row])
            kept = self._cache[path][requests[row]]
            first = 0 if window is None else max(0, place + 1 - window)
            keys, values = (
                torch.stack([cast(table[at], wide) for at in range(first, place + 1)]).reshape(
                    place + 1 - first, -1, size
                )
                for table in (kept.keys, kept.values)
            )
            queries = cast(tensors[0][row], wide).reshape(-1, size)
            times = queries.shape[0] // keys.shape[1]
            keys, values = keys.repeat_interleave(times, 1), values.repeat_interleave(times, 1)
            done[row] = _attended(queries, keys, values, scale, cap).reshape(-1)
        return [done]


def _attended(queries: Any, keys: Any, values: Any, scale: float, cap: float | None) -> Any:
    """Queries of one token [heads, size] over keys and values [tokens, heads, size]."""
    if not cap and queries.dtype != torch.float64:
        # As a trainer runs it: sums in float32 also for half types.
        query, two, three = queries[:, None], keys.transpose(0, 1), values.transpose(0, 1)
        return torch.nn.functional.scaled_dot_product_attention(query[None], two[None], three[None], scale=scale)[
            0, :, 0
        ]
    scores = torch.einsum("hd,khd->hk", queries, keys) * scale
    if cap:
        scores = torch.tanh(scores / cap) * cap
    return torch.einsum("hk,khd->hd", torch.softmax(scores, -1), values)


def _keys_of(model: Any, tokens: Sequence[int]) -> list[tuple[Any, Any]]:
    """Keys (after the rotary embedding) and values of each layer of a model of transformers: [tokens, heads * size]."""
    from transformers import DynamicCache

    cache = DynamicCache()
    with torch.no_grad():
        model(torch.tensor([list(tokens)]), past_key_values=cache, use_cache=True)
    layers = getattr(cache, "layers", [])
    return [
        (
            layer.keys[0].transpose(0, 1).reshape(len(tokens), -1),
            layer.values[0].transpose(0, 1).reshape(len(tokens), -1),
        )
        for layer in layers
    ]


def _relative(tensor: Any, other: Any) -> float:
    tensor, other = tensor.double(), other.double()
    return float((tensor - other).square().mean().sqrt() / other.square().mean().sqrt().clamp_min(1e-30))


def cast(tensor: Any, wide: bool) -> Any:
    """The tensor, or in float64."""
    return tensor.double() if wide else tensor
