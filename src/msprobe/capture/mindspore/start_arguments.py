"""What ``start`` may be given."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from msprobe.errors import InvalidInputError


def check_model(model: Any) -> None:
    """Raise InvalidInputError unless ``model`` is a Cell or a non-empty list or tuple of Cells."""
    allowed = "a mindspore.nn.Cell, or a list or tuple of them"
    if isinstance(model, (list, tuple)):
        if not model:
            raise InvalidInputError(f"start(): model is an empty {type(model).__name__}; pass {allowed}.")
        for i, part in enumerate(model):
            _check_cell(part, f"model[{i}]", allowed)
        return
    _check_cell(model, "model", allowed)


def _check_cell(cell: Any, where: str, allowed: str) -> None:
    if not isinstance(cell, nn.Cell):
        found = f"the class {cell.__name__}" if isinstance(cell, type) else type(cell).__name__
        raise InvalidInputError(f"start(): {where} must be {allowed}, found {found}.")
