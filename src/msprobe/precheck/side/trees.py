"""Trees of arguments and results: lists, tuples, dictionaries and data classes, with tensors at their leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import torch


def map_tree(value: Any, path: str, change: Callable[[Any, str], Any], of: Any = torch.Tensor) -> Any:
    """A tree with each tensor replaced by what ``change(tensor, path)`` gives; ``of``: leaves of other classes."""
    if isinstance(value, of):
        return change(value, path)
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, (list, tuple)):
        items = [map_tree(item, f"{path}.{place}", change, of) for place, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        changed = {name: map_tree(item, f"{path}.{name}", change, of) for name, item in value.items()}
        if type(value) is dict:
            return changed
        made = copy.copy(value)  # one with a way of its own, as those that give their items as attributes
        for name, item in changed.items():
            made[name] = item
        return made
    return value


def leaves_of(value: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [leaf for item in value for leaf in leaves_of(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves_of(item)]
    if is_dataclass(value) and not isinstance(value, type):
        return [leaf for field in fields(value) for leaf in leaves_of(getattr(value, field.name))]
    return [value]
