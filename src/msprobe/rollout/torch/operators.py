"""The trainer's own operators on what the engine recorded: each result of the engine against theirs, row by row.

Nothing of two runs is paired, so nothing drifts: an operator is judged on the very inputs that the engine gave it. The
truth is the trainer's operator in float64. Deviations are root mean squares of a row over that of the truth, in units
of the engine's type. Limits: 64 units in float32, 3 in half types, on healthy pairs of a small Llama and Qwen3-MoE
(docs/rollout.md); and 4 times what the trainer's own operator in its own type is away from the truth.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from msprobe.rollout.torch.trainer import Trainer

UNITS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-52}
LIMITS = {torch.float32: 64.0, torch.bfloat16: 3.0, torch.float16: 3.0, torch.float64: 64.0}
_TIMES_OWN = 4.0
#: A row is measured against at least this share of the usual row.
_FLOOR = 0.1


@dataclass(frozen=True)
class Judged:
    """A call of the engine. ``rows``: units of each row; ``limit``: beyond it a row is wrong.

    ``bits``: the share of elements that equal the trainer's operator in the engine's type; ``own``: units of that one.
    ``skipped``: rows that could not be judged, with the reason.
    """

    path: str
    call: int
    rows: np.ndarray[Any, np.dtype[np.float64]]
    limit: float
    bits: float
    own: float
    skipped: tuple[int, str] = (0, "")

    @property
    def wrong(self) -> Any:
        """The numbers of the rows beyond the limit."""
        return np.flatnonzero(~(self.rows <= self.limit))


#: Why a module that only calls others is not judged.
CONTAINER = "its own modules are judged"


class NotKnown(Exception):
    """No operator of the trainer computes this call; the text says why."""


@dataclass
class _Keys:
    """Keys and values of one request by position, as the attention of one layer was given them."""

    keys: dict[int, Any] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)


class Operators:
    """Judges calls in the order of execution: attention needs the keys of earlier ones."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._wide: dict[int, Any] = {}
        self._cache: dict[tuple[str, str], _Keys] = {}

    def judge(
        self,
        path: str,
        call: int,
        given: Sequence[Any],
        results: Sequence[Any],
        requests: Sequence[str],
        positions: Any,
    ) -> Judged:
        """Judge one call. ``given`` and ``results``: tensors or None. Raises NotKnown."""
        parts = self.trainer.parts(path)
        if len(parts) == 1 and any(True for _ in parts[0].module.children()):
            raise NotKnown(CONTAINER)
        tensors = [one for one in given if one is not None]
        found = [one for one in results if one is not None]
        if not tensors or not found or not found[0].is_floating_point():
            raise NotKnown("no tensors of it were recorded")
        name = path.rpartition(".")[2]
        keep: Any = None
        if name == "rotary_emb":
            operator: Callable[[bool], list[Any]] = lambda wide: self._rotary(path, tensors, wide)  # noqa: E731
        elif name in ("attn", "attention") and len(tensors) == 3:
            keep = self._remember(path, tensors, requests, positions)
            operator = lambda wide: self._attention(path, tensors, requests, positions, keep, wide)  # noqa: E731
        elif name == "logits_processor":
            operator = lambda wide: [self._ran(self.trainer.head(), [tensors[-1]], wide)]  # noqa: E731
        else:
            operator = lambda wide: self._plain(path, tensors, found, wide)  # noqa: E731
        truth, own = operator(True), operator(False)
        return _measured(path, call, found, truth, own, keep)

    # ---- operators

    def _plain(self, path: str, tensors: Sequence[Any], found: Sequence[Any], wide: bool) -> list[Any]:
        parts = self.trainer.parts(path)
        if not parts:
            raise NotKnown("the trainer has no such module")
        first, width = tensors[0], found[0].shape[-1]
        if len(parts) > 1:
            done = torch.cat([self._ran(one.module, [first], wide) for one in parts], -1)
        elif len(tensors) == 2 and len(found) == 2:
            # A norm that adds the residual first, and hands the sum on.
            total = _cast(tensors[0], wide) + _cast(tensors[1], wide)
            return [self._ran(parts[0].module, [total], wide), total]
        elif len(tensors) == 1 and 2 * width == first.shape[-1] and _keeps_width(parts[0].module):
            # An activation that is multiplied with the other half.
            done = self._ran(parts[0].module, [first[..., :width]], wide) * _cast(first[..., width:], wide)
        else:
            done = self._ran(parts[0].module, [first], wide)
        if done.shape != found[0].shape:
            raise NotKnown(f"the trainer's result has the shape {list(done.shape)}")
        return [done]

    def _ran(self, module: Any, given: Sequence[Any], wide: bool) -> Any:
        if module is None:
            raise NotKnown("the trainer has no such module")
        if wide:
            module = self._wide.setdefault(id(module), copy.deepcopy(module).double())
        answer = module(*[_cast(one, wide) if one.is_floating_point() else one.long() for one in given])
        return answer[0] if isinstance(answer, tuple) else answer

    def _rotary(self, path: str, tensors: Sequence[Any], wide: bool) -> list[Any]:
        found = next(iter(self.trainer.named("rotary_emb")), None)
        attention = self.trainer.parent_of(path)
        apply = getattr(sys.modules.get(type(attention).__module__), "apply_rotary_pos_emb", None)
        if found is None or apply is None or len(tensors) != 3:
            raise NotKnown("the trainer has no rotary embedding that is known")
        positions, queries, keys = tensors
        size = attention.head_dim
        # Angles in the trainer's own precision: in float32 as it computes them, applied in float64.
        cos, sin = found.module(torch.zeros(1, dtype=torch.float32), positions.long()[None])
        done = []
        for one in (queries, keys):
            heads = _cast(one, wide).reshape(1, one.shape[0], -1, size).transpose(1, 2)
            kind = heads.dtype
            turned, _ = apply(heads, heads, cos.to(kind), sin.to(kind))
            done.append(turned.transpose(1, 2).reshape(one.shape))
        return done

    def _remember(self, path: str, tensors: Sequence[Any], requests: Sequence[str], positions: Any) -> Any:
        """Keep keys and values; which rows have all earlier positions."""
        if positions is None or len(requests) != len(positions) or len(positions) != len(tensors[0]):
            raise NotKnown("whose rows these are was not recorded")
        whole = np.zeros(len(requests), bool)
        for row, (request, place) in enumerate(zip(requests, positions.tolist(), strict=True)):
            kept = self._cache.setdefault((path, request), _Keys())
            if place == 0:
                kept.keys.clear()
                kept.values.clear()
            kept.keys[place], kept.values[place] = tensors[1][row], tensors[2][row]
            whole[row] = len(kept.keys) == place + 1
        if not whole.any():
            raise NotKnown("earlier keys of its requests were cached before the recording")
        return whole

    def _attention(
        self, path: str, tensors: Sequence[Any], requests: Sequence[str], positions: Any, keep: Any, wide: bool
    ) -> list[Any]:
        attention = self.trainer.parent_of(path)
        size, scale = getattr(attention, "head_dim", None), getattr(attention, "scaling", None)
        if size is None or scale is None:
            raise NotKnown("the trainer's attention does not say its scale")
        done = torch.zeros_like(_cast(tensors[0], wide))
        window = getattr(attention, "sliding_window", None)
        for row in np.flatnonzero(keep).tolist():
            place = int(positions[row])
            kept = self._cache[path, requests[row]]
            first = 0 if window is None else max(0, place + 1 - window)
            keys, values = (
                torch.stack([_cast(table[at], wide) for at in range(first, place + 1)]).reshape(
                    place + 1 - first, -1, size
                )
                for table in (kept.keys, kept.values)
            )
            queries = _cast(tensors[0][row], wide).reshape(-1, size)
            times = queries.shape[0] // keys.shape[1]
            keys, values = keys.repeat_interleave(times, 1), values.repeat_interleave(times, 1)
            scores = torch.einsum("hd,khd->hk", queries, keys) * scale
            done[row] = torch.einsum("hk,khd->hd", torch.softmax(scores, -1), values).reshape(-1)
        return [done]


def _keeps_width(module: Any) -> bool:
    probe = torch.zeros(1, 4)
    try:
        return bool(module(probe).shape == probe.shape)
    except Exception:
        return False


def _cast(one: Any, wide: bool) -> Any:
    return one.double() if wide else one


def _measured(
    path: str, call: int, found: Sequence[Any], truth: Sequence[Any], own: Sequence[Any], keep: Any
) -> Judged:
    kind = found[0].dtype
    unit = UNITS.get(kind)
    if unit is None:
        raise NotKnown(f"results of {kind} have no limit")
    rows: Any = 0.0
    trainers: Any = 0.0
    equal: list[float] = []
    for result, true, mine in zip(found, truth, own, strict=False):
        flat, right = result.double().reshape(len(result), -1), true.reshape(len(result), -1)
        size = right.square().mean(1).sqrt()
        size = torch.maximum(size, _FLOOR * size[torch.isfinite(size)].mean())
        size = torch.where(size > 0, size, torch.ones_like(size))
        rows = np.maximum(rows, _units(flat, right, size, unit))
        theirs = mine.to(kind).reshape(len(result), -1)
        trainers = np.maximum(trainers, _units(theirs.double(), right, size, unit))
        equal.append(float((theirs == result.reshape(len(result), -1)).double().mean()))
    skipped = (0, "")
    if keep is not None and not keep.all():
        skipped = (int((~keep).sum()), "earlier keys of its requests were cached before the recording")
        rows = np.where(keep, rows, 0.0)
    own_units = float(np.median(trainers))
    return Judged(
        path, call, rows, max(LIMITS[kind], _TIMES_OWN * own_units), float(np.mean(equal)), own_units, skipped
    )


def _units(values: Any, truth: Any, size: Any, unit: float) -> Any:
    same = (values == truth) | (torch.isnan(values) & torch.isnan(truth))
    difference = torch.where(same, torch.zeros_like(values), values - truth)
    return (difference.square().mean(1).sqrt() / size / unit).numpy()


def settings_that_differ(numbers: Mapping[str, float], module: Any) -> dict[str, tuple[float, float]]:
    """Numbers that a module of the engine and one of the trainer have by one name (or by one meaning), and differ."""
    meanings = (("variance_epsilon", "eps"), ("scaling", "scale"), ("base", "rope_theta"))
    mine = {name: float(value) for name, value in vars(module).items() if type(value) in (int, float)}
    differ = {}
    for names in (*meanings, *((name,) for name in numbers)):
        one = next((numbers[name] for name in names if name in numbers), None)
        other = next((mine[name] for name in names if name in mine), None)
        if one is not None and other is not None and one != other:
            differ[names[0]] = (one, other)
    return differ
