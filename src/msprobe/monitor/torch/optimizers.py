"""Where an optimizer keeps the gradients, moments and master weights of a model's parameters.

Optimizers of torch keep them by parameter. Those of Megatron and DeepSpeed step on tensors of their own, in another
type or cut into shards; which of these belongs to which parameter is read from the attributes that their authors
document for it. Parameters that this rank does not own are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from msprobe.monitor.steps import MOMENTS, Kept

_NO_MOMENTS: Mapping[str, torch.Tensor] = {}


class Optimizers:
    """Reads one optimizer, whatever its class. ``main_grad``: "auto" takes the attribute ``main_grad`` of a parameter
    where it has one, else ``grad``; True and False force one of them.
    """

    def __init__(self, optimizer: Any, main_grad: bool | str = "auto") -> None:
        self.given = optimizer
        self.main_grad = main_grad
        #: The optimizer of torch whose step is that of the given one.
        self.torch = innermost(optimizer)
        self._read = _READERS.get(type(optimizer).__name__)

    def is_meant(self, optimizer: Any) -> bool:
        """True for the optimizer whose steps are those of the training."""
        return self.torch is None or optimizer is self.torch or optimizer in members(self.given)

    def followed(self) -> list[Any]:
        """The optimizers of torch whose steps are those of the given one."""
        return members(self.given)

    def kept(self, event: Any, parameters: Mapping[int, torch.Tensor], moments: bool = True) -> Mapping[int, Kept]:
        """See :class:`msprobe.monitor.steps.Optimizers`."""
        if self._read is not None:
            return {key: one for key, one in self._read(self.given) if key in parameters}
        if not moments:
            return {key: Kept(one, self.gradient(one), _NO_MOMENTS, 0.0) for key, one in parameters.items()}
        states = [one.state for one in members(self.given) or [self.given] if hasattr(one, "state")]
        found: dict[int, Kept] = {}
        for key, parameter in parameters.items():
            state: Any = next((kept for kept in (one.get(parameter) for one in states) if kept is not None), None)
            found[key] = Kept(parameter, self.gradient(parameter), *_moments_of(state))
        return found

    def rates(self) -> Mapping[int, tuple[float, tuple[float, float], float]]:
        """Of the weights of optimizers like Adam, by identity: learning rate, betas, eps."""
        found: dict[int, tuple[float, tuple[float, float], float]] = {}
        for one in members(self.given):
            for group in one.param_groups:
                if {"lr", "betas", "eps"} <= group.keys():
                    rate = float(group["lr"]), tuple(map(float, group["betas"])), float(group["eps"])
                    found.update((id(weight), rate) for weight in group["params"])  # type: ignore[misc]
        return found

    def gradient(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """The gradient that the optimizer is about to use."""
        if self.main_grad is not False and (self.main_grad is True or "main_grad" in parameter.__dict__):
            gradient = getattr(parameter, "main_grad", None)
            if gradient is not None or self.main_grad is True:
                return gradient
        return parameter.grad


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
        return [one for part in chained for one in members(part)]
    found = innermost(optimizer)
    return [] if found is None else [found]


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


# ---------------------------------------------------------------- Megatron

_Found = list[tuple[int, Kept]]


def _state_of(optimizer: Any, weight: torch.Tensor) -> Any:
    inner = innermost(optimizer)
    return None if inner is None else inner.state.get(weight)


def _megatron_half(optimizer: Any) -> _Found:
    """``Float16OptimizerWithFloat16Params``: groups of half parameters and, in the same order, of their float32 copies;
    parameters that are float32 themselves stand in groups of their own.
    """
    found: _Found = []
    pairs = zip(
        getattr(optimizer, "float16_groups", ()), getattr(optimizer, "fp32_from_float16_groups", ()), strict=True
    )
    for half, single in pairs:
        for parameter, weight in zip(half, single, strict=True):
            found.append((id(parameter), Kept(weight, weight.grad, *_moments_of(_state_of(optimizer, weight)))))
    for group in getattr(optimizer, "fp32_from_fp32_groups", ()):
        for parameter in group:
            state = _state_of(optimizer, parameter)
            found.append((id(parameter), Kept(parameter, parameter.grad, *_moments_of(state))))
    return found


def _megatron_distributed(optimizer: Any) -> _Found:
    """``DistributedOptimizer``: of each parameter this rank has a shard, or none; groups stand in the same order."""
    found: _Found = []
    for whole_name, shard_name in (
        ("model_float16_groups", "shard_fp32_from_float16_groups"),
        ("model_fp32_groups", "shard_fp32_groups"),
    ):
        for whole, shards in zip(getattr(optimizer, whole_name, ()), getattr(optimizer, shard_name, ()), strict=True):
            for parameter, shard in zip(whole, shards, strict=True):
                if shard is not None:
                    found.append((id(parameter), Kept(shard, shard.grad, *_moments_of(_state_of(optimizer, shard)))))
    return found


def _megatron_chained(optimizer: Any) -> _Found:
    """``ChainedOptimizer``: the members in a row."""
    found: _Found = []
    for member in optimizer.chained_optimizers:
        read = _READERS.get(type(member).__name__)
        if read is not None:
            found += read(member)
            continue
        for group in member.param_groups:
            for parameter in group["params"]:
                gradient = getattr(parameter, "main_grad", None)
                gradient = parameter.grad if gradient is None else gradient
                found.append((id(parameter), Kept(parameter, gradient, *_moments_of(_state_of(member, parameter)))))
    return found


# ---------------------------------------------------------------- DeepSpeed


def _deepspeed(optimizer: Any) -> _Found:
    """ZeRO 0 to 3, through DeepSpeed's debugging functions: they answer by the parameter, with what this rank has."""
    try:
        from deepspeed.utils import (  # type: ignore[import-not-found]
            safe_get_local_fp32_param,
            safe_get_local_grad,
            safe_get_local_optimizer_state,
        )
    except ImportError:
        return []
    found: _Found = []
    for parameter in _parameters_of_deepspeed(optimizer):
        if not hasattr(parameter, "ds_id"):
            one = _deepspeed_whole(parameter)
        else:
            weight = safe_get_local_fp32_param(parameter)
            moments = {name: safe_get_local_optimizer_state(parameter, name) for name in MOMENTS}
            given: dict[str, Any] = {name: value for name, value in moments.items() if value is not None}
            one = None if weight is None else Kept(weight, safe_get_local_grad(parameter), given, 0.0)
        if one is not None:
            found.append((id(parameter), one))
    return found


def _deepspeed_whole(parameter: torch.Tensor) -> Kept | None:
    """Of stages 0 to 2: the part of the parameter that lies in this rank's partition, which DeepSpeed links to it."""
    mapping = getattr(parameter, "_hp_mapping", None)
    if mapping is None:
        return None
    weight = mapping.get_hp_fragment()
    moments: dict[str, Any] = {
        name: mapping.get_hp_fragment(optim_state_key=name)
        for name in MOMENTS
        if name in mapping.get_optim_state_keys()
    }
    gradient = None
    read = getattr(parameter, "get_full_hp_grad", None)
    if getattr(mapping, "hp_grad_fragment", None) is not None:
        gradient = mapping.hp_grad_fragment
    elif parameter.grad is not None:
        gradient = parameter.grad
    elif read is not None and getattr(mapping, "gradient_dict", None):
        index = mapping.param_group_index, mapping.param_index
        parts = mapping.gradient_dict.get(index[0])
        gradient = None if parts is None else parts[index[1]]
    return Kept(weight, gradient, moments, 0.0)


def _parameters_of_deepspeed(optimizer: Any) -> list[torch.Tensor]:
    for name in ("bit16_groups", "fp16_groups"):
        groups = getattr(optimizer, name, None)
        if groups:
            return [parameter for group in groups for parameter in group]
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


_READERS: dict[str, Any] = {
    "Float16OptimizerWithFloat16Params": _megatron_half,
    "DistributedOptimizer": _megatron_distributed,
    "SwapDistributedOptimizer": _megatron_distributed,
    "ChainedOptimizer": _megatron_chained,
    "BF16_Optimizer": _deepspeed,
    "DeepSpeedZeroOptimizer": _deepspeed,
    "DeepSpeedZeroOptimizer_Stage3": _deepspeed,
}
