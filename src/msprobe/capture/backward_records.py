"""Backward records: what has come back through a call or a pass, in the same form for all frameworks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from msprobe.capture.session import backward_of
from msprobe.capture.units import Writer
from msprobe.store.handed_through import HANDED_THROUGH


def put_backward(writer: Writer, entry: str, tree: dict[str, Any], order: int, parent: Any, note: str = "") -> None:
    """Write a backward record; ``parent`` is that of the forward record."""
    tree["msprobe"] = {"order": order}
    if note:
        tree["msprobe"]["note"] = note
    writer.put(entry, tree, None, backward_of(parent))


def add_gradients(
    tree: dict[str, Any],
    paths: Sequence[str],
    gradients: Sequence[Any],
    merged: Mapping[str, str],
    handed: Mapping[int, int],
    empty_words: bool = True,
) -> None:
    """What has come for the arguments at ``paths`` of a pass. ``handed``: arguments that are results, by their numbers.
    ``empty_words`` False: arguments by keyword of which nothing has come are left out.
    """
    words: dict[str, Any] = {}
    tree["output"] = output = []
    for path, gradient in zip(paths, gradients, strict=True):
        if not path.startswith("kwargs."):
            output.append(gradient)
        elif empty_words or gradient is not None:
            words[path.removeprefix("kwargs.")] = gradient
    if words:
        tree["kwargs_grads"] = words
    if merged:
        # Several arguments were one tensor: only the gradient of all of them together exists.
        tree["merged"] = merged
    if handed:
        # Arguments that are results: their gradients are those of all their uses.
        tree[HANDED_THROUGH] = {paths[i]: f"output.{result}" for i, result in handed.items()}


def merged_arguments(arguments: Iterable[tuple[str, Hashable]]) -> dict[str, str]:
    """Of (path, what identifies the tensor): the paths of those that are the same tensor as an earlier one, and its
    path.
    """
    first: dict[Hashable, str] = {}
    return {path: known for path, key in arguments if (known := first.setdefault(key, path)) != path}


def places_of(paths: Sequence[str]) -> list[str]:
    """Where the record of a pass has the gradients of these arguments: numbers, but keywords under their words."""
    numbers = iter(range(len(paths)))
    return [path if path.startswith("kwargs.") else str(next(numbers)) for path in paths]
