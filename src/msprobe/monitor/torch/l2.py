"""Features of layers (``recording_l2_features``): how sharp attention is, how large weights are, how routers choose.

Formulas as in mindstudio-probe 26.2.0. Numbers stay on the device until the step is written. Nothing here takes a
number from the generators of the program: what starts at random has a generator of its own, always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.events import Direction, EventKind, OptimizerStep, path_of
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.torch import private
from msprobe.capture.torch.modules.models import name_modules
from msprobe.capture.torch.modules.user_modules import is_training
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import unwrap
from msprobe.capture.torch.tensors.storages import in_backward
from msprobe.messages import said
from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.measurements import Quantity
from msprobe.monitor.names import Targets, exactly
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.watched import WatchedModule

COLUMNS: dict[Quantity, tuple[str, ...]] = {
    "attention_hook": ("entropy", "softmax_max"),
    "linear_hook": ("sr", "kernel_norm"),
    "moe_router_weight_hook": ("router_weight_similarity",),
    "moe_router_logit_hook": ("per_token_expert_entropy",),
}
# Matrices whose shorter side is at most this have an exact largest singular value.
_EXACT = 256
# Dimensions of the Krylov space: of a matrix that is new, and of one that was known in the last step.
_FIRST_ROUNDS = 32
_ROUNDS = 12
_WEIGHTS = ("weight", "wg")


class LayerFeatures(Observer):
    """Measures the features of the modules that ``l2_targets`` names. ``is_of_training``: whether the steps of an
    optimizer are those of the training.
    """

    is_careful = True

    def __init__(self, state: ConfiguredState, is_of_training: Callable[[Any], bool]) -> None:
        self.state = state
        self._is_of_training = is_of_training
        # Quantity -> key of the module in events -> the module.
        self._wanted: dict[Quantity, dict[str, WatchedModule]] = {name: {} for name in COLUMNS}
        self._modules: dict[str, nn.Module] = {}
        self._choose()
        passes = {*self._wanted["attention_hook"], *self._wanted["moe_router_logit_hook"]}
        self.wants = Wants(
            kinds=frozenset[EventKind](("pass", "optimizer") if passes else ("optimizer",)),
            modules=[exactly(path_of(key)) for key in sorted(passes)],
            directions=frozenset[Direction](("forward",)),
        )
        self._times: dict[tuple[Quantity, str], int] = {}
        self._waiting: list[tuple[TensorCells, torch.Tensor]] = []
        # Of large matrices: the direction that they stretched most in the last step.
        self._directions: dict[str, torch.Tensor] = {}

    def _choose(self) -> None:
        state = self.state
        named = name_modules(state.models[0] if len(state.models) == 1 else state.models, True)
        modules = dict(named)
        for name, targets in state.config.l2_targets.items():
            quantity: Quantity = name  # type: ignore[assignment]
            takes_all = quantity == "linear_hook" and not targets
            known = Targets(targets)
            for key, watched in state.watched.modules.items():
                module = modules[key]
                if takes_all:
                    is_wanted = "Embedding" not in type(module).__name__ and _matrix_of(module) is not None
                else:
                    is_wanted = bool(targets) and known.has_module(watched.stage, watched.full, watched.name)
                if is_wanted:
                    self._wanted[quantity][key] = watched
                    self._modules[key] = module
            missing = known.unmatched()
            if missing:
                log.warning(said("l2-target-unknown", ", ".join(missing), name))

    # ---------------------------------------------------------------- when

    def step_begin(self, event: Any) -> None:
        """Nothing of the last step is left."""
        self._times.clear()
        self._waiting.clear()

    def before(self, event: Any) -> None:
        """A module is about to run, or an optimizer to step."""
        with private.without_functions():
            if isinstance(event, OptimizerStep):
                if self._is_of_training(event.optimizer):
                    self._measure_weights()
            elif event.key in self._wanted["attention_hook"] and self._counts(event):
                self._measure_attention(event)

    def after(self, event: Any, result: Any) -> None:
        """It has run."""
        if isinstance(event, OptimizerStep) or event.key not in self._wanted["moe_router_logit_hook"]:
            return
        with private.without_functions():
            logits = next((tensor for tensor in _flat(result) if isinstance(tensor, torch.Tensor)), None)
            if self._counts(event) and logits is not None and logits.dim():
                self._measure_logits(event, logits)

    @staticmethod
    def _counts(event: Any) -> bool:
        return is_training(event.module) and in_backward() == -1

    # ---------------------------------------------------------------- what

    def _measure_attention(self, event: Any) -> None:
        """Of the first head of the first sample: p = softmax(Q K^T / sqrt(d)), causal where the scores are square."""
        given = [tensor for tensor in event.args if isinstance(tensor, torch.Tensor)]
        if len(given) < 2:
            log.once(("monitor", "attention", event.key), "warning", said("attention-without-q-and-k", event.key))
            return
        query, key = (unwrap(tensor).values for tensor in given[:2])
        if query is None or key is None or query.dim() != 4 or key.dim() != 4:
            return
        with OwnWork():
            first = (slice(None), 0, 0) if self.state.config.sa_order == "s,b,h,d" else (0, slice(None), 0)
            scores = _wide(query[first]) @ _wide(key[first]).T / math.sqrt(query.shape[-1])
            if scores.shape[0] == scores.shape[1]:
                above = torch.ones(scores.shape, dtype=torch.bool, device=scores.device).triu_(1)
                scores = scores.masked_fill_(above, -math.inf)
            shares = scores.softmax(-1)
            entropy_and_largest = torch.stack([torch.special.entr(shares).sum(-1).mean(), shares.amax(-1).mean()])
        self._add("attention_hook", event.key, ".attention", entropy_and_largest, by_micro_step=True)

    def _measure_logits(self, event: Any, logits: torch.Tensor) -> None:
        """The mean over tokens of the entropy of softmax over the last dimension."""
        values = unwrap(logits).values
        if values is None or not values.numel():
            return
        with OwnWork():
            entropy = torch.special.entr(_wide(values).softmax(-1)).sum(-1).mean().reshape(1)
        self._add("moe_router_logit_hook", event.key, ".moe_router", entropy, by_micro_step=True)

    def _measure_weights(self) -> None:
        for key in self._wanted["linear_hook"]:
            matrix = _values_of(self._modules[key])
            if matrix is not None:
                with OwnWork():
                    largest = self._largest_singular_value(key, matrix)
                    numbers = torch.stack(
                        [torch.linalg.vector_norm(_wide(matrix)).to(largest.dtype) / largest, largest]
                    )
                self._add("linear_hook", key, ".linear", numbers)
        for key in self._wanted["moe_router_weight_hook"]:
            matrix = _values_of(self._modules[key])
            if matrix is not None:
                with OwnWork():
                    numbers = _similarity(_wide(matrix)).reshape(1)
                self._add("moe_router_weight_hook", key, ".moe_router", numbers)

    def _largest_singular_value(self, key: str, matrix: torch.Tensor) -> torch.Tensor:
        """Exact for small matrices; else the best in a Krylov space (Golub and Van Loan, Matrix Computations, chapter
        10) that begins with the direction found in the last step.
        """
        if not bool(torch.isfinite(matrix).all()):
            return torch.full((), math.nan, dtype=_wide_type(matrix), device=matrix.device)
        if min(matrix.shape) <= _EXACT:
            wide = _wide(matrix)
            gram = wide @ wide.T if wide.shape[0] <= wide.shape[1] else wide.T @ wide
            largest: torch.Tensor = torch.linalg.eigvalsh(gram)[-1]
            return largest.clamp_(min=0).sqrt_()
        single = matrix.float()
        vector, rounds = self._directions.get(key), _ROUNDS
        if vector is None or vector.shape[0] != single.shape[1] or vector.device != single.device:
            generator = torch.Generator().manual_seed(0)
            vector = torch.randn(single.shape[1], generator=generator).to(single.device)
            rounds = _FIRST_ROUNDS
        basis = _krylov(single, vector, rounds)
        image = _wide(single @ basis.T)
        stretched, directions = torch.linalg.eigh(image.T @ image)
        self._directions[key] = basis.T @ directions[:, -1].to(basis.dtype)
        estimate: torch.Tensor = stretched[-1]
        return estimate.clamp_(min=0).sqrt_()

    def _add(
        self, quantity: Quantity, key: str, end: str, tensor: torch.Tensor, *, by_micro_step: bool = False
    ) -> None:
        state, watched = self.state, self._wanted[quantity][key]
        state.gathering.columns[quantity] = COLUMNS[quantity]
        micro_step = None
        if by_micro_step:
            times = self._times.get((quantity, key), 0)
            self._times[quantity, key] = times + 1
            micro_step = times % state.micro_steps
        cells = TensorCells(None, None, None)
        self._waiting.append((cells, tensor))
        state.gathering.add(quantity, watched.stage, watched.name + end, cells, micro_step)

    def collect(self) -> Callable[[], None]:
        """The step is over; call what is returned when its numbers are needed."""
        waiting, self._waiting = self._waiting, []

        def finish() -> None:
            for cells, numbers in waiting:
                cells.values = tuple(numbers.tolist())

        return finish


def _krylov(matrix: torch.Tensor, start: torch.Tensor, rounds: int) -> torch.Tensor:
    """An orthonormal basis, [rounds, columns], of what ``matrix.T @ matrix`` makes of ``start`` again and again."""
    basis: torch.Tensor = (start / torch.linalg.vector_norm(start)).reshape(1, -1)
    for _ in range(min(rounds, *matrix.shape) - 1):
        vector = matrix.T @ (matrix @ basis[-1])
        for _ in range(2):
            vector = vector - basis.T @ (basis @ vector)
        basis = torch.cat([basis, (vector / torch.linalg.vector_norm(vector).clamp_(min=1e-30)).reshape(1, -1)])
    return basis


def _similarity(matrix: torch.Tensor) -> torch.Tensor:
    """The mean cosine of two different experts; experts are the shorter side."""
    experts = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    count = experts.shape[0]
    if count < 2:
        return torch.full((), math.nan, dtype=matrix.dtype, device=matrix.device)
    experts = experts / torch.linalg.vector_norm(experts, dim=1, keepdim=True).clamp_(min=1e-12)
    cosines = experts @ experts.T
    mean: torch.Tensor = (cosines.sum() - cosines.diagonal().sum()) / (count * (count - 1))
    return mean


def _matrix_of(module: nn.Module) -> torch.Tensor | None:
    """The matrix of weights that a module itself owns."""
    for name in _WEIGHTS:
        value = module._parameters.get(name)
        if value is not None and value.dim() == 2 and value.numel():
            return value
    return None


def _values_of(module: nn.Module) -> torch.Tensor | None:
    """Its elements, as far as they are in this process."""
    matrix = _matrix_of(module)
    values = None if matrix is None else unwrap(matrix).values
    return None if values is None or values.dim() != 2 or not values.numel() else values.detach()


def _wide_type(values: torch.Tensor) -> torch.dtype:
    return torch.float32 if values.device.type in ("mps", "npu") else torch.float64


def _wide(values: torch.Tensor) -> torch.Tensor:
    wide: torch.Tensor = values.detach().to(_wide_type(values))
    return wide


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
