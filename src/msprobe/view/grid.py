"""Layers beside ranks: the worst that was found in each layer of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.compare.entry_names import plain_path, read_name

#: Rows that lie in no module.
OUTSIDE = "outside of all modules"
#: From harmless to what a person wants to see: no numbers, the same, rounding, explained, one side alone, unexplained.
_WEIGHT = (0, 1, 2, 3, 6, 5, 4)
MOST_LAYERS = 400


def layers_of(columns: dict[str, Any]) -> dict[str, int]:
    """The worst status of each layer of a place, layers in order of execution.

    A layer is a module's path up to its first number (``layers.3``), or its first word where it has none.
    """
    found: dict[str, tuple[int, int]] = {}
    paths: list[str] = []
    kinds, parents = columns["kinds"], columns["parents"]
    for number, name in enumerate(columns["names"]):
        parts = read_name(name)
        path = plain_path(parts.path) if parts.kind in ("module", "parameters") else ""
        above = parents[number]
        paths.append(path or (paths[above] if above >= 0 else ""))
        if kinds[number] == 2:
            continue
        layer = layer_of(paths[number])
        status = columns["status"][number]
        order = columns["orders"][number]
        worst, first = found.get(layer, (0, order))
        if _WEIGHT[status] > _WEIGHT[worst]:
            worst = status
        found[layer] = worst, min(first, order)
    ordered = sorted(found, key=lambda layer: found[layer][1])
    return {layer: found[layer][0] for layer in ordered[:MOST_LAYERS]}


def layer_of(path: str) -> str:
    """The layer that a module is, or lies in.

    >>> layer_of("model.layers.3.attn.qkv")
    'model.layers.3'
    """
    if not path:
        return OUTSIDE
    words = path.split(".")
    for place, word in enumerate(words):
        if word.isdigit():
            return ".".join(words[: place + 1])
    return words[0]


def grid_of(ranks: Sequence[int | str | None], layers: Sequence[dict[str, int] | None]) -> dict[str, Any]:
    """The answer of ``/api/ranks``; None for a rank that could not be read."""
    names: dict[str, None] = {}
    for found in layers:
        names.update(dict.fromkeys(found or ()))
    return {
        "layers": list(names),
        "ranks": list(ranks),
        "worst": [[(found or {}).get(name, 0) for name in names] for found in layers],
    }
