"""The dump of a plain model that generates, as ``with debugger.recording(model)`` writes it: no file of an engine.

A pass is a padded batch [B, T] of token ids: the request of a row is its place in the batch, its position that of
``position_ids`` (or ``positions``), of the mask, or what came before. The model's attention is no module; it is what
its output projection was given, for what the projections in front of it gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.rollout.engine_file import Engine, EngineModule
from msprobe.rollout.torch.digests import row_digests

_POSITIONS = ("position_ids", "positions")
_QUERIES, _KEYS, _VALUES, _OUT = ("q_norm", "q_proj"), ("k_norm", "k_proj"), ("v_proj",), "o_proj"


@dataclass(frozen=True)
class Batch:
    """The request, position and token of each row that is no padding. ``keep``: [B * T], which those are."""

    requests: list[str]
    positions: Any
    tokens: Any
    shape: tuple[int, int]
    keep: Any

    def rows_of(self, values: Any) -> Any:
        """A tensor [B, T, ...] as rows without padding; others as they are."""
        count, length = self.shape
        if values.dim() >= 3 or (values.dim() == 2 and tuple(values.shape) in (self.shape, (1, length))):
            if values.is_floating_point() and values.dim() == 2:
                return values
            if values.shape[0] == 1 and count > 1:
                values = values.expand(count, *values.shape[1:])
            if values.shape[0] == count:
                values = values.reshape(-1, *values.shape[2:])
        return values[self.keep] if values.dim() and len(values) == len(self.keep) else values


class Batches:
    """Whose rows each pass has. Passes are given in their order."""

    def __init__(self) -> None:
        self._seen: dict[str, list[int]] = {}

    def rows(self, given: Sequence[Any], named: Mapping[str, Any]) -> Batch | None:
        """Whose rows a pass has; None where it has no token ids."""
        tokens = named.get("input_ids")
        if tokens is None:
            tokens = next((tensor for tensor in given if tensor is not None and not tensor.is_floating_point()), None)
        if tokens is None or tokens.dim() not in (1, 2):
            return None
        tokens = tokens.reshape(1, -1) if tokens.dim() == 1 else tokens
        count, length = tokens.shape
        mask = named.get("attention_mask")
        if mask is not None and mask.dim() == 2 and mask.shape[0] == count and mask.shape[1] >= length:
            real, places = mask[:, -length:] > 0, mask.long().cumsum(1)[:, -length:] - 1
        else:
            real, places = torch.ones_like(tokens, dtype=torch.bool), self._counted(tokens)
        for name in _POSITIONS:
            if (tensor := named.get(name)) is not None and tensor.numel() in (length, count * length):
                places = tensor.reshape(-1, length).expand(count, length)
                break
        for row in range(count):
            self._note(str(row), tokens[row][real[row]].tolist(), places[row][real[row]].tolist())
        names = [str(row) for row in range(count) for is_real in real[row].tolist() if is_real]
        keep = real.reshape(-1)
        return Batch(names, places.reshape(-1)[keep], tokens.reshape(-1)[keep], (count, length), keep)

    def _counted(self, tokens: Any) -> Any:
        """Behind what came before, unless a pass begins with all of that again."""
        starts = []
        for row in range(len(tokens)):
            seen = self._seen.get(str(row), [])
            again = len(seen) < tokens.shape[1] and tokens[row, : len(seen)].tolist() == seen
            starts.append(0 if again else len(seen))
        return torch.tensor(starts)[:, None] + torch.arange(tokens.shape[1])

    def _note(self, name: str, tokens: list[int], places: list[int]) -> None:
        known = self._seen.setdefault(name, [])
        for token, place in zip(tokens, places, strict=True):
            if place == len(known):
                known.append(token)


class Attentions:
    """Attention between the projections of a module: their results as they come by."""

    def __init__(self) -> None:
        self._results: dict[str, Any] = {}
        self._attended: dict[str, Any] = {}

    def note(self, path: str, given: Sequence[Any], results: Sequence[Any]) -> None:
        """A module has been called."""
        around, _, name = path.rpartition(".")
        if name in (*_QUERIES, *_KEYS, *_VALUES) and results and results[0] is not None:
            self._results[path] = results[0].reshape(len(results[0]), -1)
        elif name == _OUT and given and given[0] is not None:
            self._attended[around] = given[0]

    def ended(self, path: str, angles: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
        """A module around such projections has ended: (queries, keys, values, cos, sin), and what attention gave."""
        taken = [self._taken(path, names) for names in (_QUERIES, _KEYS, _VALUES)]
        attended = self._attended.pop(path, None)
        self._results = {name: result for name, result in self._results.items() if not name.startswith(f"{path}.")}
        tensors = [*taken, *angles]
        if attended is None or len(tensors) != 5 or any(tensor is None for tensor in tensors):
            return None
        return tensors, [attended]

    def _taken(self, path: str, names: Sequence[str]) -> Any:
        return next((self._results[f"{path}.{name}"] for name in names if f"{path}.{name}" in self._results), None)


def modules_of(parameters: Mapping[str, Mapping[str, Any]]) -> Engine:
    """What modules held, of the recorded parameters: path -> name -> tensor."""
    return Engine(
        {},
        {
            path: EngineModule(
                weights={name: row_digests(tensor) for name, tensor in tensors.items()},
                dtypes={name: str(tensor.dtype) for name, tensor in tensors.items()},
            )
            for path, tensors in parameters.items()
        },
    )
