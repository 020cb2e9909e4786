"""Modules of a trainer in float64, also where they cast to float32 on their own way."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class InFloat64(TorchFunctionMode):
    """What asks for float32 inside the block gets float64: norms and routers that cast before they compute."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` with the wider type."""
        kwargs = {name: _wider(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.float:
            return args[0].double()
        return func(*(_wider(value) for value in args), **kwargs)


def _wider(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value == torch.float32 else value
