"""What is computed between modules, which no operator shows: residuals, multipliers, scales of embeddings.

The trainer runs each request once, and what its modules are given is compared with what the engine's were given, in the
order of execution. Two runs drift, by rounding that adds up; a different computation between modules is a jump: what a
module is given differs several times more than anything before it, and than rounding of an operator may. In healthy
recordings of six families in bfloat16 (``python -m rollout.families``) what a norm is given differs by up to 1.06 times
what was before, what others are given, behind attention and activations, by up to 1.65 times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from msprobe.rollout.contract import RolloutFinding
from msprobe.rollout.torch.measuring import LIMITS, UNITS
from msprobe.rollout.torch.recorded import ModuleCall
from msprobe.rollout.torch.trainer import Trainer

_TIMES_OF_NORMS, _TIMES_OF_OTHERS = 3.0, 6.0
#: Elements of inputs of a trainer's modules that are kept at once.
_MOST_KEPT = 1 << 28
_FEWEST_ROWS = 2


def between_modules(
    calls: Iterable[ModuleCall], trainer: Trainer, tokens: Mapping[str, Sequence[int]]
) -> RolloutFinding | None:
    """The first module that is given something different, while all before were given what the trainer's are."""
    deviations: dict[str, _Deviation] = {}
    given = _Given(trainer, tokens)
    for call in calls:
        paths = [part.path for part in trainer.parts(call.path)]
        tensor = _stream(call, trainer.module(call.path))
        if not paths or tensor is None or call.positions is None or len(call.requests) != len(tensor):
            continue
        for request in dict.fromkeys(call.requests):
            rows = [row for row, name in enumerate(call.requests) if name == request]
            other = given.of(request, paths[0], call.positions[rows])
            if other is not None and other.shape == tensor[rows].shape:
                deviation = deviations.setdefault(call.path, _Deviation(str(tensor.dtype).removeprefix("torch.")))
                deviation.add(request, call.positions[rows], tensor[rows], other)
    before = 0.0
    for path, deviation in deviations.items():
        times = _TIMES_OF_NORMS if "norm" in path.rpartition(".")[2] else _TIMES_OF_OTHERS
        limit = times * max(before, deviation.floor)
        if deviation.rows >= _FEWEST_ROWS and deviation.usual > limit:
            numbers = {"module": path, "deviation": deviation.usual, "before": before, "rows": deviation.rows}
            return RolloutFinding("between-modules-differs", tuple(deviation.requests), numbers)
        before = max(before, deviation.usual)
    return None


def _stream(call: ModuleCall, module: Any) -> Any:
    """What a module is given: of a norm that adds the residual first, the sum."""
    tensors = [tensor for tensor in call.given if tensor is not None]
    if not tensors or not tensors[0].is_floating_point() or tensors[0].dim() != 2:
        return None
    if len(tensors) == 2 and tensors[0].shape == tensors[1].shape and "norm" in call.path.rpartition(".")[2]:
        results = [result for result in call.results if result is not None]
        return results[1] if len(results) == 2 and not torch.equal(results[1], tensors[1]) else tensors[0]
    return tensors[0] if len(tensors) == 1 and module is not None else None


class _Deviation:
    """Of the rows of a module: how far what it was given is from the trainer's, relative to that."""

    def __init__(self, kind: str) -> None:
        self._values: list[float] = []
        dtype = getattr(torch, kind)
        self.floor = LIMITS[dtype] * UNITS[dtype]
        self.requests: dict[str, None] = {}

    def add(self, request: str, positions: Any, mine: Any, theirs: Any) -> None:
        """Rows of one request."""
        theirs = theirs.double()
        size = theirs.square().mean(1).sqrt().clamp_min(1e-30)
        self._values += ((mine.double() - theirs).square().mean(1).sqrt() / size).tolist()
        self.requests.setdefault(request)

    @property
    def rows(self) -> int:
        return len(self._values)

    @property
    def usual(self) -> float:
        """Of the middle row: routers that flip, or a prefix of other weights, concern some."""
        return float(torch.tensor(self._values).median())


class _Given:
    """What the trainer's modules are given in a forward pass over the tokens of a request."""

    def __init__(self, trainer: Trainer, tokens: Mapping[str, Sequence[int]]) -> None:
        self._trainer, self._tokens = trainer, tokens
        self._known: dict[str, dict[str, Any]] = {}
        self._kept = 0

    def of(self, request: str, path: str, positions: Any) -> Any:
        """Rows of a module's input; None where the request or the module has none."""
        if request not in self._known:
            self._known[request] = self._run(request)
        whole = self._known[request].get(path)
        return None if whole is None or int(positions.max()) >= len(whole) else whole[positions.long()]

    def _run(self, request: str) -> dict[str, Any]:
        tokens = self._tokens.get(request)
        if not tokens or self._kept > _MOST_KEPT:
            return {}
        inputs: dict[str, Any] = {}
        with torch.no_grad(), self._noting(inputs):
            self._trainer.model(torch.tensor([list(tokens)]))
        self._kept += sum(tensor.numel() for tensor in inputs.values())
        return inputs

    @contextmanager
    def _noting(self, inputs: dict[str, Any]) -> Iterator[None]:
        handles = []
        for path, module in self._trainer.modules.items():
            if any(True for _ in module.children()):
                continue

            def note(module: Any, given: Any, path: str = path) -> None:
                first = given[0] if given else None
                if isinstance(first, torch.Tensor) and first.is_floating_point() and first.dim() == 3:
                    inputs.setdefault(path, first[0].detach())

            handles.append(module.register_forward_pre_hook(note))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
