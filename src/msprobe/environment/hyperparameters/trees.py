"""Nested settings as one row of names and values."""

from __future__ import annotations

from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.store.pickles import Name, Opaque

_MOST_DEPTH = 60
_MOST_VALUES = 50_000
_SCALARS = (str, int, float, bool, type(None))


def flat(tree: Any, source: str) -> dict[str, Any]:
    """Names joined with ``.``; lists of single values stay lists, in others each item has its number as a name.

    Raises InvalidInputError for what is nested too deep or has too many values.
    """
    settings: dict[str, Any] = {}
    todo: list[tuple[str, Any, int]] = [("", tree, 0)]
    seen = 0
    while todo:
        name, value, depth = todo.pop()
        seen += 1 + (len(value) if isinstance(value, (list, tuple, set, frozenset)) else 0)
        if depth > _MOST_DEPTH or seen > _MOST_VALUES:
            raise InvalidInputError(said("settings-too-deep", source))
        if isinstance(value, dict) and (value or not name):
            inner = [(str(key), inner_value) for key, inner_value in value.items()]
        elif isinstance(value, (list, tuple)) and any(
            isinstance(inner_value, (dict, list, tuple)) for inner_value in value
        ):
            inner = [(str(place), inner_value) for place, inner_value in enumerate(value)]
        else:
            settings[name] = single(value)
            continue
        todo += [(f"{name}.{key}" if name else key, inner_value, depth + 1) for key, inner_value in reversed(inner)]
    return settings


def single(value: Any) -> Any:
    """A value as JSON can hold it: what is no text, number or truth becomes text."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return [single(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1024:
        return said("number-of-too-many-bits")
    return value if isinstance(value, _SCALARS) or value == {} else str(value)


def tree_from_pickle(value: Any, depth: int = 0) -> Any:
    """What a pickle that was read as data says, with objects as dicts of what they hold; None for what has nothing."""
    if isinstance(value, _SCALARS) or depth > _MOST_DEPTH:
        return value if isinstance(value, _SCALARS) else None
    if isinstance(value, Name):
        return value.full
    if isinstance(value, dict):
        return {str(key): tree_from_pickle(inner_value, depth + 1) for key, inner_value in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [tree_from_pickle(inner_value, depth + 1) for inner_value in value]
    if isinstance(value, Opaque):
        if isinstance(value.state, dict) and value.state:
            return tree_from_pickle(value.state, depth + 1)
        if value.items or value.elements:
            return tree_from_pickle(value.items or value.elements, depth + 1)
        if len(value.arguments) == 1:  # an item of an enumeration, a path, a device
            return tree_from_pickle(value.arguments[0], depth + 1)
    return None
