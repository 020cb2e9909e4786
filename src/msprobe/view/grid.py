"""Layers beside ranks: the worst that was found in each layer of each rank."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Sequence

from msprobe.compare.entry_names import plain_path, read_name
from msprobe.view.columns import NAMED, UNEXPLAINED
from msprobe.view.protocol import Outline, Rank, RanksAnswer
from msprobe.view.rows import COLLECTION, GRADIENTS, MODULE

#: Rows that lie in no module.
OUTSIDE = "outside of all modules"
#: From harmless to what a person wants to see: no numbers, the same, rounding, explained, one side alone, named by a
#: finding, unexplained.
_WEIGHT = (0, 1, 2, 3, 7, 5, 4, 6)
MOST_LAYERS = 400
_WITH_PATH = frozenset((MODULE, GRADIENTS))


def layers_of(columns: Outline) -> dict[str, int]:
    """The worst status of each layer of a place, layers in order of execution.

    A layer is a module's path up to its first number (``layers.3``), or its first word where it has none.
    """
    worst: dict[str, int] = {}
    first: dict[str, int] = {}
    rows = zip(_layers(columns), columns["kinds"], columns["status"], columns["orders"], strict=True)
    named = frozenset(columns["named"])
    for number, (layer, kind, status, order) in enumerate(rows):
        if number in named and status < UNEXPLAINED:
            status = NAMED
        if kind == COLLECTION:
            continue
        if layer not in first:
            # As many ranks have the same layers.
            layer = sys.intern(layer)
            worst[layer], first[layer] = status, order
            continue
        if _WEIGHT[status] > _WEIGHT[worst[layer]]:
            worst[layer] = status
        if order < first[layer]:
            first[layer] = order
    ordered = sorted(first, key=first.__getitem__)
    return {layer: worst[layer] for layer in ordered[:MOST_LAYERS]}


def _layers(columns: Outline) -> Iterator[str]:
    """The layer of each row."""
    layers: list[str] = []
    for name, kind, above in zip(columns["names"], columns["kinds"], columns["parents"], strict=True):
        path = plain_path(read_name(name).path) if kind in _WITH_PATH else ""
        layer = layer_of(path) if path else layers[above] if above >= 0 else OUTSIDE
        layers.append(layer)
        yield layer


def rows_of_names(columns: Outline, names: Container[str]) -> dict[str, tuple[str, int]]:
    """Layer and status of the rows of these names; of a name that two have, of the first."""
    rows: dict[str, tuple[str, int]] = {}
    for name, layer, status in zip(columns["names"], _layers(columns), columns["status"], strict=True):
        if name in names:
            rows.setdefault(name, (layer, status))
    return rows


def with_named(layers: dict[str, int], rows: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The worst of each layer, where findings name rows of these layers and statuses."""
    worst = dict(layers)
    for layer, status in rows:
        if layer in worst and status < UNEXPLAINED and _WEIGHT[NAMED] > _WEIGHT[worst[layer]]:
            worst[layer] = NAMED
    return worst


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


def grid_of(ranks: list[Rank], places: list[int], layers: Sequence[dict[str, int] | None]) -> RanksAnswer:
    """The answer of ``/api/ranks``; None for a rank that could not be read. ``places``: the number of each rank's."""
    names: dict[str, None] = {}
    for layer in layers:
        names.update(dict.fromkeys(layer or ()))
    return {
        "layers": list(names),
        "ranks": ranks,
        "places": places,
        "worst": [[(layer or {}).get(name, 0) for name in names] for layer in layers],
    }
