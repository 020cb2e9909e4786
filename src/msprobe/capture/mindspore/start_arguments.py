"""What ``start`` may be given."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from msprobe.capture.mindspore.surface import MINDSPORE, Surface
from msprobe.errors import InvalidInputError


def check_model(model: Any, names: Surface = MINDSPORE) -> None:
    """Raise InvalidInputError unless ``model`` is a Cell or a non-empty list or tuple of Cells."""
    allowed = f"a {names.module_word}, or a list or tuple of them"
    if isinstance(model, (list, tuple)):
        if not model:
            raise InvalidInputError(f"start(): model is an empty {type(model).__name__}; pass {allowed}.")
        for i, part in enumerate(model):
            _check_cell(part, f"model[{i}]", allowed, names)
        return
    _check_cell(model, "model", allowed, names)


def _check_cell(cell: Any, where: str, allowed: str, names: Surface) -> None:
    if not isinstance(cell, (nn.Cell, names.module_class)):
        found = f"the class {cell.__name__}" if isinstance(cell, type) else type(cell).__name__
        raise InvalidInputError(f"start(): {where} must be {allowed}, found {found}.")
