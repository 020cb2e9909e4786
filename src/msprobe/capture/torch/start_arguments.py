"""What ``start`` may be given as a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from msprobe.errors import InvalidInputError


def check_model(model: Any) -> None:
    """Raise InvalidInputError unless ``model`` is a Module or a non-empty list or tuple of Modules."""
    allowed = "a torch.nn.Module, or a list or tuple of them"
    if isinstance(model, (list, tuple)):
        if not model:
            raise InvalidInputError(f"start(): model is an empty {type(model).__name__} (empty list); pass {allowed}.")
        for i, part in enumerate(model):
            _check_module(part, f"model[{i}]", allowed)
        return
    _check_module(model, "model", allowed)


def _check_module(module: Any, where: str, allowed: str) -> None:
    kind = type(module).__name__
    if not isinstance(module, nn.Module):
        found = f"the class {module.__name__}" if isinstance(module, type) else kind
        raise InvalidInputError(f"start(): {where} must be {allowed}, found {found}.")
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidInputError(
            f"start(): {where} is a {kind} (ScriptModule), whose inside cannot be watched; pass {allowed} that is not"
            " scripted."
        )
