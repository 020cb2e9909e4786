"""Packages that are made for devices and ask for "cuda" by name, on the host."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnHost(TorchFunctionMode):
    """What is asked of CUDA is done on the host."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        result = function(*args, **kwargs)
        if function is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.")
        return result
