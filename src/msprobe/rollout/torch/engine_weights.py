"""What an engine's modules hold, in digests: weights as they are applied, and the numbers that they compute with.

An engine packs the weights of linear layers into forms of its kernels, and fuses several into one. The identity through
a layer gives its weight back exactly (each sum has one term that is not 0), so nothing need be known of the form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from msprobe.messages import Wording, said
from msprobe.rollout.torch.digests import row_digests, set_digests
from msprobe.rollout.torch.measuring import NotKnown

_MOST_ROWS = 1 << 20
_MOST_COLUMNS = 1 << 16


def held(model: Any) -> dict[str, dict[str, Any]]:
    """Path -> numbers, digests of weights, and what could not be read, of each module that has one of them."""
    done: dict[str, dict[str, Any]] = {}
    for path, module in model.named_modules():
        entry: dict[str, Any] = {}
        numbers = numbers_of(module)
        if numbers:
            entry["numbers"] = numbers
        for name, parameter in module.named_parameters(recurse=False):
            try:
                digests, dtype = _digests(module, name, parameter)
                entry.setdefault("weights", {})[name] = digests
                entry.setdefault("dtypes", {})[name] = dtype
                if parameter.dim() > 2:
                    entry.setdefault("sets", {})[name] = set_digests(parameter)
            except NotKnown as problem:
                entry.setdefault("unread", {})[name] = _reason(problem.why)
            except Exception as problem:  # an engine's layer may refuse anything
                entry.setdefault("unread", {})[name] = str(problem).split("\n")[0][:120] or type(problem).__name__
        _note_adapter(module, entry)
        if entry:
            done[path] = entry
    return done


def with_adapters(modules: dict[str, dict[str, Any]], model: Any) -> dict[str, dict[str, Any]]:
    """What :func:`held` gave, with the adapters that are bound now: an engine binds one with its first request."""
    for path, module in model.named_modules():
        entry: dict[str, Any] = {}
        _note_adapter(module, entry)
        for kind, values in entry.items():
            modules.setdefault(path, {}).setdefault(kind, {}).update(values)
    return modules


def _note_adapter(module: Any, entry: dict[str, Any]) -> None:
    """Digests of the matrices that an engine has bound to a layer, one adapter at a time: [adapters, 1, rank, size]."""
    for name, attribute in (("lora_a", "lora_a_stacked"), ("lora_b", "lora_b_stacked")):
        stacked = getattr(module, attribute, None)
        if not isinstance(stacked, (tuple, list)):
            continue
        for number, tensor in enumerate(stacked):
            if tensor.shape[0] != 1:
                entry.setdefault("unread", {})[f"{name}.{number}"] = _reason(said("several-adapters"))
                continue
            if name == "lora_a":
                entry.setdefault("numbers", {})["max_lora_rank"] = float(tensor.shape[2])
            entry.setdefault("weights", {})[f"{name}.{number}"] = row_digests(tensor[0, 0])
            entry.setdefault("dtypes", {})[f"{name}.{number}"] = str(tensor.dtype)


def _reason(why: str) -> Any:
    """As ``engine.json`` holds it: a piece of the catalogue and its values."""
    if isinstance(why, Wording) and why.entry is not None:
        return {"name": why.entry.name, "values": [str(value) for value in why.values]}
    return str(why)


def numbers_of(module: Any) -> dict[str, float]:
    """The plain numbers among a module's attributes that are no counts of training: eps, scale, theta, sizes."""
    return {
        name: float(value)
        for name, value in vars(module).items()
        if not name.startswith("_") and type(value) in (int, float, bool) and name != "training"
    }


def _digests(module: Any, name: str, parameter: Any) -> tuple[list[int], str]:
    """Digests of a parameter, through the layer where it is packed."""
    if parameter.numel():
        if parameter.shape[0] > _MOST_ROWS:
            raise NotKnown(said("too-many-rows", parameter.shape[0]))
        return row_digests(parameter), str(parameter.dtype)
    columns = getattr(module, "input_size_per_partition", None) or getattr(module, "input_size", None)
    if name != "weight" or not isinstance(columns, int) or columns > _MOST_COLUMNS:
        raise NotKnown(said("packed-size-unknown"))
    adds_bias = getattr(module, "bias", None) is not None
    if adds_bias and not hasattr(module, "skip_bias_add"):
        raise NotKnown(said("packed-with-bias"))
    with torch.inference_mode(), _without_bias(module, adds_bias):
        dtype = getattr(module, "params_dtype", parameter.dtype)
        answer = module(torch.eye(columns, dtype=dtype, device=parameter.device))
    output = answer[0] if isinstance(answer, tuple) else answer
    return row_digests(output.t()), str(output.dtype)


@contextmanager
def _without_bias(module: Any, adds_bias: bool) -> Iterator[None]:
    """vLLM's layers can hand their bias on beside the result."""
    before = getattr(module, "skip_bias_add", None)
    if adds_bias:
        module.skip_bias_add = True
    try:
        yield
    finally:
        if adds_bias:
            module.skip_bias_add = before
