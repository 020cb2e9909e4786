"""Arguments and results: what is in lists, tuples, dicts and classes like them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msprobe.guard import pass_on

# Where in a value a tensor is: words of dicts and numbers of lists.
LeafPath = tuple[Any, ...]


def leaves(value: Any, place: LeafPath = ()) -> Iterator[tuple[LeafPath, Any]]:
    """What is in it, with its place, in order."""
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, (*place, index))
    elif isinstance(value, dict):
        for word, item in value.items():
            yield from leaves(item, (*place, word))
    else:
        yield place, value


def mapped(value: Any, change: Callable[[LeafPath, Any], Any], place: LeafPath = ()) -> Any:
    """The same with other leaves; ``change(place, leaf)`` gives them."""
    if isinstance(value, (list, tuple)):
        items = [mapped(item, change, (*place, index)) for index, item in enumerate(value)]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        if type(value) in (list, tuple):
            return type(value)(items)
        # torch.return_types and torch.Size are made of one sequence; what is not stays a tuple.
        try:
            return type(value)(items)
        except Exception as error:
            pass_on(error)
            return tuple(items)
    if isinstance(value, dict):
        return {word: mapped(item, change, (*place, word)) for word, item in value.items()}
    return change(place, value)
