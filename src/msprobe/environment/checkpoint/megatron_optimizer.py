"""The optimizer of each rank of Megatron: its states by the names that the rank has for its parameters.

Without a distributed optimizer they stand beside the weights, numbered as torch does it. With one, the first
data-parallel rank writes ``distrib_optim.pt``: flat buffers, in which parameters stand from the last to the first, each
at a multiple of 64 elements. Where they begin is checked with the float32 copies of the weights that are in it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from msprobe.environment.checkpoint.contents import leaves, put
from msprobe.environment.checkpoint.megatron_names import is_expert
from msprobe.environment.checkpoint.optimizer_states import MASTER, by_parameter
from msprobe.environment.checkpoint.tensors import CheckpointTensor, TensorSlice, rows_of
from msprobe.errors import InvalidInputError

Chunks = dict[int, dict[str, CheckpointTensor]]
_ALIGNED = 64
_BUCKETS = (0, 40_000_000)
_MOMENTS = {"param": MASTER, "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum_buffer": "momentum_buffer"}
_CHECKED = 4
_CHECKED_ELEMENTS = 1 << 20


@dataclass
class RankStates:
    """States of one rank. ``moments``: moment -> part of the model -> name of the rank -> values."""

    moments: dict[str, Chunks] = field(default_factory=dict)
    rest: dict[str, CheckpointTensor] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    def take(self, moment: str, chunk: int, name: str, tensor: CheckpointTensor) -> None:
        """Put a state under its parameter."""
        self.moments.setdefault(moment, {}).setdefault(chunk, {})[name] = tensor


def states_of_rank(optimizer: Any, distributed: Any, chunks: Chunks) -> RankStates:
    """The states of the trees ``optimizer`` and ``distributed`` (None: there is none) of a rank with these weights."""
    states = RankStates()
    flat: dict[str, CheckpointTensor] = {}
    put(flat, states.facts, optimizer, "optimizer")
    weights = {f"{chunk}/{name}": tensor for chunk, named in sorted(chunks.items()) for name, tensor in named.items()}
    named, states.rest = by_parameter(flat, states.facts, weights)
    for key, tensor in named.items():
        subject, _, moment = key.rpartition(".")
        chunk, _, name = subject.partition("/")
        states.take(moment, int(chunk), name, tensor)
    if distributed is not None:
        shares = _shares(chunks)
        for buffer in _buffers(distributed):
            placed = next((places for share in shares if (places := _place_all(buffer, share))), None)
            if placed is None:
                states.is_complete = False
                continue
            shares = [share for share in shares if not any((chunk, name) in placed for chunk, name, _ in share)]
            for (chunk_number, name), moments in placed.items():
                for moment, tensor in moments.items():
                    states.take(moment, chunk_number, name, tensor)
    return states


def _buffers(tree: Any) -> Iterator[dict[str, CheckpointTensor]]:
    """The flat buffers of a file, in order: moment -> values."""
    by_stem: dict[str, dict[str, CheckpointTensor]] = {}
    for name, value in leaves(tree):
        stem, _, last = name.rpartition(".")
        if isinstance(value, CheckpointTensor) and last in _MOMENTS and len(value.shape) == 1:
            by_stem.setdefault(stem, {})[_MOMENTS[last]] = value
    yield from by_stem.values()


Share = list[tuple[int, str, CheckpointTensor]]


def _shares(chunks: Chunks) -> list[Share]:
    """Which parameters a buffer may have: those of a part of the model, of which experts may have one of their own."""
    parts: list[Share] = [
        [(chunk, name, tensor) for name, tensor in named.items()] for chunk, named in sorted(chunks.items())
    ]
    dense = [[tensor for tensor in part if not is_expert(tensor[1])] for part in parts]
    experts = [[tensor for tensor in part if is_expert(tensor[1])] for part in parts]
    shares: list[Share] = []
    for share in (*parts, *dense, *experts):
        if share and share not in shares:
            shares.append(share)
    return shares


def _place_all(
    buffer: dict[str, CheckpointTensor], share: Share
) -> dict[tuple[int, str], dict[str, CheckpointTensor]] | None:
    """Parameter -> its states; None where parameters and buffer do not belong together."""
    total = max((values_of_moment.numel for values_of_moment in buffer.values()), default=0)
    for starts in _layouts(share):
        end = max((starts[at] + prod(tensor.shape) for at, (_, _, tensor) in enumerate(share)), default=0)
        if end != total:
            continue
        try:
            if not _is_right(buffer, share, starts):
                continue
            return {
                (chunk, name): {
                    moment: TensorSlice(tensor.shape, values.dtype, values, starts[at], prod(tensor.shape))
                    for moment, values in buffer.items()
                }
                for at, (chunk, name, tensor) in enumerate(share)
            }
        except InvalidInputError:
            continue
    return None


def _layouts(share: Share) -> Iterator[list[int]]:
    """Where each parameter may begin. The embeddings that two stages share have a bucket of their own, if so."""
    for apart in (False, True):
        for size in _BUCKETS:
            yield _starts(share, apart, size)


def _starts(share: Share, apart: bool, bucket: int) -> list[int]:
    starts = [0] * len(share)
    begin = place = 0  # of the bucket in the buffer; in the bucket
    for at in range(len(share) - 1, -1, -1):
        _, name, tensor = share[at]
        is_shared = apart and name.endswith(("word_embeddings.weight", "output_layer.weight"))
        if is_shared and place:
            begin, place = begin + place, 0
        place = -(-place // _ALIGNED) * _ALIGNED
        starts[at] = begin + place
        place += prod(tensor.shape)
        if is_shared or (bucket and place >= bucket):
            begin, place = begin + place, 0
    return starts


def _is_right(buffer: dict[str, CheckpointTensor], share: Share, starts: list[int]) -> bool:
    """Do the float32 copies of some parameters lie where they should?"""
    copies = buffer.get(MASTER)
    if copies is None:
        return True
    small = [at for at, (_, _, tensor) in enumerate(share) if 0 < tensor.numel <= _CHECKED_ELEMENTS]
    small = [*small[:_CHECKED], *small[-_CHECKED:]] or list(range(min(1, len(share))))
    for at in small:
        weight = share[at][2]
        copy = rows_of(copies, starts[at], starts[at] + weight.numel).reshape(weight.shape)
        if not np.allclose(copy, weight.read(), rtol=1e-2, atol=1e-6, equal_nan=True):
            return False
    return True
