"""Where an optimizer keeps the gradients, moments and master weights of a model's parameters.

Optimizers of torch keep them by parameter. Those of Megatron and DeepSpeed step on tensors of their own, in another
type or cut into shards; which of these belongs to which parameter is read from the attributes that their authors
document for it. Parameters that this rank does not own are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import torch

from msprobe import log
from msprobe.capture.torch.optimizers.updated_parameters import gradient_of
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.monitor.steps import MOMENTS, KeptParameter

_NO_MOMENTS: Mapping[str, torch.Tensor] = {}


class Optimizers:
    """Reads one optimizer, whatever its class. ``main_grad``: "auto" takes the attribute ``main_grad`` of a parameter
    where it has one, else ``grad``; True and False force one of them.
    """

    def __init__(self, optimizer: Any, main_grad: bool | str = "auto") -> None:
        self.given = optimizer
        self.main_grad = main_grad
        self._read = _READERS.get(type(optimizer).__name__)
        # What watches the given optimizer, and how often those of torch have stepped.
        self._outer: list[_After] = []
        self._steps = 0

    def steps_taken(self) -> int:
        """How many steps the optimizers of torch say that they have taken: by what they keep of their parameters."""
        steps = 0
        for member in members(self.given):
            for state in list(getattr(member, "state", {}).values()):
                step = state.get("step") if isinstance(state, Mapping) else None
                if isinstance(step, (int, float)) or (isinstance(step, torch.Tensor) and step.numel() == 1):
                    steps = max(steps, int(step))
        return steps

    def followed(self) -> list[Any]:
        """The optimizers of torch whose steps are those of the given one, each as often as it steps in one of them."""
        stepped_on = getattr(self.given, _STEPPED_ON.get(type(self.given).__name__, ""), None)
        return members(self.given) * (len(stepped_on) if stepped_on else 1)

    def kept(
        self, event: Any, parameters: Mapping[int, torch.Tensor], moments: bool = True
    ) -> Mapping[int, KeptParameter]:
        """See :class:`msprobe.monitor.steps.Optimizers`. ``event`` None: of all parts of a step."""
        all_kept = self._all_kept(parameters, moments)
        if event is None or len(self.followed()) <= 1:
            return all_kept
        changed = {id(parameter) for group in event.optimizer.param_groups for parameter in group["params"]}
        return {key: kept for key, kept in all_kept.items() if (kept.owner or id(kept.weight)) in changed}

    def _all_kept(self, parameters: Mapping[int, torch.Tensor], moments: bool) -> Mapping[int, KeptParameter]:
        if self._read is not None:
            return {key: kept for key, kept in self._read(self.given) if key in parameters}
        if not moments:
            return {
                key: KeptParameter(parameter, self.gradient(parameter), _NO_MOMENTS, 0.0)
                for key, parameter in parameters.items()
            }
        states = [member.state for member in members(self.given) or [self.given] if hasattr(member, "state")]
        kept: dict[int, KeptParameter] = {}
        for key, parameter in parameters.items():
            state = next((by_parameter[parameter] for by_parameter in states if parameter in by_parameter), None)
            kept[key] = KeptParameter(parameter, self.gradient(parameter), *_moments_of(state))
        return kept

    def rates(self) -> Mapping[int, tuple[float, tuple[float, float], float]]:
        """Of the weights of optimizers like Adam, by identity: learning rate, betas, eps."""
        rates: dict[int, tuple[float, tuple[float, float], float]] = {}
        for member in members(self.given):
            for group in member.param_groups:
                if {"lr", "betas", "eps"} <= group.keys():
                    rate = float(group["lr"]), tuple(map(float, group["betas"])), float(group["eps"])
                    rates.update((id(weight), rate) for weight in group["params"])  # type: ignore[misc]
        return rates

    def watch_outer_step(self, ready: Callable[[], None], left_out: Callable[[], None]) -> None:
        """Watch the steps of an optimizer that is not one of torch, but has some: ``ready`` is called when it has
        prepared its gradients and has not clipped them yet (Megatron), ``left_out`` when it has returned and the
        optimizers of torch have not stepped, as with gradients that are not finite.
        """
        if self._outer or isinstance(self.given, torch.optim.Optimizer) or not members(self.given):
            return
        self._outer = [_After(self.given, _PREPARE, lambda is_overflow, steps: None if is_overflow else ready())]
        self._outer.append(
            _After(self.given, "step", lambda is_overflow, steps: left_out() if steps == self._steps else None)
        )
        for step_watched in self._outer:
            step_watched.begin(lambda: self._steps)

    def note_step(self) -> None:
        """An optimizer of torch steps."""
        self._steps += 1

    def leave_outer_step(self) -> None:
        """Nothing of that is wanted any more."""
        outer, self._outer = self._outer, []
        for step_watched in outer:
            step_watched.end()

    def gradient(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """The gradient that the optimizer is about to use."""
        if self.main_grad is True:
            return getattr(parameter, "main_grad", None)
        return gradient_of(parameter) if self.main_grad else parameter.grad


def innermost(optimizer: Any) -> Any:
    """The optimizer of torch in wrappers that keep the wrapped one as ``optimizer``; None if there is none."""
    for _ in range(8):
        if isinstance(optimizer, torch.optim.Optimizer):
            inner = getattr(optimizer, "optimizer", None)
            if not isinstance(inner, torch.optim.Optimizer):
                return optimizer
            optimizer = inner
        else:
            optimizer = getattr(optimizer, "optimizer", None)
        if optimizer is None:
            return None
    return None


def members(optimizer: Any) -> list[Any]:
    """The optimizers of torch that an optimizer is made of: itself, that of a wrapper, or those of a chain."""
    chained = getattr(optimizer, "chained_optimizers", None)
    if isinstance(chained, (list, tuple)):
        return [member for part in chained for member in members(part)]
    inner = innermost(optimizer)
    return [] if inner is None else [inner]


def _moments_of(state: Any) -> tuple[dict[str, torch.Tensor], float]:
    if not isinstance(state, Mapping):
        return {}, 0.0
    moments: dict[str, torch.Tensor] = {
        name: state[name] for name in MOMENTS if isinstance(state.get(name), torch.Tensor)
    }
    step = state.get("step", 0)
    # Kept on the host, but by optimizers that say "capturable" or "fused".
    is_at_hand = isinstance(step, (int, float)) or (isinstance(step, torch.Tensor) and step.device.type == "cpu")
    return moments, float(step) if is_at_hand else 0.0


# The method of Megatron's optimizers that gives the optimizer of torch its gradients, unscaled and not yet clipped, and
# returns whether one of them is not finite (megatron-core 0.5 and newer).
_PREPARE = "prepare_grads"


class _After:
    """Calls a function behind a method of one object, with what the method returned and what was so before it."""

    def __init__(self, owner: Any, name: str, then: Callable[[Any, Any], None]) -> None:
        self._owner = owner
        self._name = name
        self._then = then
        self._mine: Any = None
        self._before: Any = None

    def begin(self, so_far: Callable[[], Any]) -> None:
        """From now on; nothing happens if there is no such method, or no place for another."""
        method = getattr(self._owner, self._name, None)
        own = getattr(self._owner, "__dict__", None)
        if not callable(method) or own is None:
            return
        then, name = self._then, self._name

        def called(owner: Any, *args: Any, **kwargs: Any) -> Any:
            before = so_far()
            result = method(*args, **kwargs)
            try:
                then(result, before)
            except Exception as error:
                pass_on(error)
                where = f"{type(owner).__name__}.{name}"
                log.once(("monitor", where), "error", said("optimizer-not-followed", where, error))
            return result

        self._before = own.get(self._name)
        self._mine = own[self._name] = MethodType(called, self._owner)

    def end(self) -> None:
        """Put the method back, unless somebody else has put another in its place."""
        if self._mine is None or vars(self._owner).get(self._name) is not self._mine:
            return
        if self._before is None:
            del vars(self._owner)[self._name]
        else:
            vars(self._owner)[self._name] = self._before


# ---------------------------------------------------------------- Megatron

_KeptById = list[tuple[int, KeptParameter]]


def _kept(
    optimizer: Any, parameter: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor | None
) -> tuple[int, KeptParameter]:
    return id(parameter), KeptParameter(weight, gradient, *_moments_of(_state_of(optimizer, weight)))


def _state_of(optimizer: Any, weight: torch.Tensor) -> Any:
    inner = innermost(optimizer)
    return None if inner is None else inner.state.get(weight)


def _megatron_half(optimizer: Any) -> _KeptById:
    """``Float16OptimizerWithFloat16Params``: groups of half parameters and, in the same order, of their float32 copies;
    parameters that are float32 themselves stand in groups of their own.
    """
    kept: _KeptById = []
    pairs = zip(
        getattr(optimizer, "float16_groups", ()), getattr(optimizer, "fp32_from_float16_groups", ()), strict=True
    )
    for half, single in pairs:
        for parameter, weight in zip(half, single, strict=True):
            kept.append(_kept(optimizer, parameter, weight, weight.grad))
    for group in getattr(optimizer, "fp32_from_fp32_groups", ()):
        for parameter in group:
            kept.append(_kept(optimizer, parameter, parameter, parameter.grad))
    return kept


def _megatron_distributed(optimizer: Any) -> _KeptById:
    """``DistributedOptimizer``: of each parameter this rank has a shard, or none; groups stand in the same order."""
    kept: _KeptById = []
    for whole_name, shard_name in (
        ("model_float16_groups", "shard_fp32_from_float16_groups"),
        ("model_fp32_groups", "shard_fp32_groups"),
    ):
        for whole, shards in zip(getattr(optimizer, whole_name, ()), getattr(optimizer, shard_name, ()), strict=True):
            for parameter, shard in zip(whole, shards, strict=True):
                if shard is not None:
                    kept.append(_kept(optimizer, parameter, shard, shard.grad))
    return kept


def _megatron_chained(optimizer: Any) -> _KeptById:
    """``ChainedOptimizer``: the members in a row."""
    kept: _KeptById = []
    for member in optimizer.chained_optimizers:
        read = _READERS.get(type(member).__name__)
        if read is not None:
            kept += read(member)
            continue
        for group in member.param_groups:
            for parameter in group["params"]:
                kept.append(_kept(member, parameter, parameter, gradient_of(parameter)))
    return kept


# ---------------------------------------------------------------- DeepSpeed


def _deepspeed_unfused(optimizer: Any) -> _KeptById:
    """``FP16_UnfusedOptimizer`` (stage 0 with half types): groups of half parameters and of their float32 copies."""
    kept: _KeptById = []
    for half, single in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True):
        for parameter, weight in zip(half, single, strict=True):
            kept.append(_kept(optimizer, parameter, weight, weight.grad))
    return kept


def _deepspeed_partitioned(optimizer: Any) -> _KeptById:
    """``DeepSpeedZeroOptimizer`` (stages 1 and 2): each group has one flat tensor with this rank's part of all its
    parameters; which part of it is a parameter's, DeepSpeed links to that.
    """
    kept: _KeptById = []
    for parameters, flat in zip(optimizer.bit16_groups, optimizer.single_partition_of_fp32_groups, strict=True):
        for parameter in parameters:
            mapping = getattr(parameter, "_hp_mapping", None)
            if mapping is not None:
                place = mapping.hp_fragment_address
                kept.append((id(parameter), _part_of(optimizer, flat, int(place.start), int(place.numel))))
    return kept


def _deepspeed_sharded(optimizer: Any) -> _KeptById:
    """``DeepSpeedZeroOptimizer_Stage3``: a flat tensor for each sub-group, with this rank's part of each parameter."""
    kept: _KeptById = []
    flats = optimizer.fp32_partitioned_groups_flat
    for parameters in optimizer.fp16_groups:
        for parameter in parameters:
            group, start, count = optimizer.grad_position[optimizer.get_param_id(parameter)]
            flat = flats[group]
            kept.append((id(parameter), _part_of(optimizer, flat, int(start), min(int(count), flat.numel() - start))))
    return kept


def _part_of(optimizer: Any, flat: torch.Tensor, start: int, count: int) -> KeptParameter:
    """What is kept of a part of a flat tensor."""

    def part(whole: torch.Tensor) -> torch.Tensor:
        return whole.detach().narrow(0, start, count)

    moments, step = _moments_of(_state_of(optimizer, flat))
    gradient = None if flat.grad is None else part(flat.grad)
    return KeptParameter(part(flat), gradient, {name: part(moment) for name, moment in moments.items()}, step, id(flat))


# In a step of theirs, an optimizer of torch steps so often: once for each of these.
_STEPPED_ON = {
    "DeepSpeedZeroOptimizer": "single_partition_of_fp32_groups",
    "DeepSpeedZeroOptimizer_Stage3": "fp16_groups",
}
_READERS: dict[str, Any] = {
    "Float16OptimizerWithFloat16Params": _megatron_half,
    "DistributedOptimizer": _megatron_distributed,
    "SwapDistributedOptimizer": _megatron_distributed,
    "ChainedOptimizer": _megatron_chained,
    "FP16_UnfusedOptimizer": _deepspeed_unfused,
    "DeepSpeedZeroOptimizer": _deepspeed_partitioned,
    "DeepSpeedZeroOptimizer_Stage3": _deepspeed_sharded,
}
