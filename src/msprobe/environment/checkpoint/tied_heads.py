"""Heads that are the embedding once more: one format keeps both, another one of them."""

from __future__ import annotations

from dataclasses import replace

from msprobe.environment.checkpoint.contents import Checkpoint
from msprobe.environment.checkpoint.measuring import measure
from msprobe.environment.checkpoint.tensors import Tensor
from msprobe.errors import MsprobeError

_HEADS = ("output_layer.weight", "lm_head.weight")
_EMBEDDINGS = ("word_embeddings.weight", "embed_tokens.weight", "wte.weight")


def without_tied_heads(found: Checkpoint, other: Checkpoint) -> tuple[Checkpoint, list[str]]:
    """``found`` without a head that is its embedding, if ``other`` has none; and a note that says so."""
    head, embedding = _named(found.weights, _HEADS), _named(found.weights, _EMBEDDINGS)
    if head is None or embedding is None or _named(other.weights, _HEADS) is not None or head in other.weights:
        return found, []
    try:
        if measure(head, found.weights[embedding], found.weights[head]).kind != "equal":
            return found, []
    except MsprobeError:
        return found, []
    slim = replace(
        found,
        weights={name: tensor for name, tensor in found.weights.items() if name != head},
        optimizer={name: tensor for name, tensor in found.optimizer.items() if name.rpartition(".")[0] != head},
    )
    return slim, [f'"{found.path}": {head} is the embedding once more, which the other checkpoint keeps once']


def _named(weights: dict[str, Tensor], endings: tuple[str, ...]) -> str | None:
    names = [name for name in weights if name.endswith(endings)]
    return names[0] if len(names) == 1 else None
