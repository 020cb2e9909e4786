"""What an engine's modules hold, in digests: weights as they are applied, and the numbers that they compute with.

An engine packs the weights of linear layers into forms of its kernels, and fuses several into one. The identity through
a layer gives its weight back exactly (each sum has one term that is not 0), so nothing need be known of the form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xxhash

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
            except Exception as problem:  # an engine's layer may refuse anything
                entry.setdefault("unread", {})[name] = str(problem).split("\n")[0][:120] or type(problem).__name__
        if entry:
            done[path] = entry
    return done


def numbers_of(module: Any) -> dict[str, float]:
    """The plain numbers among a module's attributes that are no counts of training: eps, scale, theta, sizes."""
    return {
        name: float(value)
        for name, value in vars(module).items()
        if not name.startswith("_") and type(value) in (int, float, bool) and name != "training"
    }


def row_digests(values: Any) -> list[int]:
    """64 bits of each row of a matrix, or one number for a vector, whatever its strides."""
    values = values.detach().to("cpu")
    table = values.reshape(1, -1) if values.dim() < 2 else values.reshape(values.shape[0], -1)
    raw = table.contiguous().view(torch.uint8).numpy() if table.numel() else np.zeros((table.shape[0], 0), np.uint8)
    return [xxhash.xxh3_64_intdigest(row.tobytes()) for row in raw]


def _digests(module: Any, name: str, parameter: Any) -> tuple[list[int], str]:
    """Digests of a parameter, through the layer where it is packed."""
    if parameter.numel():
        if parameter.shape[0] > _MOST_ROWS:
            raise ValueError(f"{parameter.shape[0]} rows are too many")
        return row_digests(parameter), str(parameter.dtype)
    columns = getattr(module, "input_size_per_partition", None) or getattr(module, "input_size", None)
    if name != "weight" or not isinstance(columns, int) or columns > _MOST_COLUMNS:
        raise ValueError("it is packed, and the module does not say its size")
    if getattr(module, "bias", None) is not None:
        raise ValueError("it is packed, and the layer adds a bias")
    with torch.inference_mode():
        dtype = getattr(module, "params_dtype", parameter.dtype)
        answer = module(torch.eye(columns, dtype=dtype, device=parameter.device))
    found = answer[0] if isinstance(answer, tuple) else answer
    return row_digests(found.t()), str(found.dtype)
