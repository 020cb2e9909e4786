"""How one axis of a mesh of ranks holds a tensor: whole, in parts, or as terms of a sum."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

PlacementKind = Literal["replicate", "shard", "interleave", "sum", "mean", "max", "min"]

_WORDS: dict[str, PlacementKind] = {
    "replicate": "replicate",
    "replicated": "replicate",
    "partial": "sum",
    "sum": "sum",
    "partial(sum)": "sum",
    "mean": "mean",
    "partial(mean)": "mean",
    "partial(avg)": "mean",
    "partial(max)": "max",
    "partial(min)": "min",
}
_WITH_DIM = re.compile(r"(shard|interleave)\(\s*(?:dim\s*=\s*)?(-?\d+)\s*\)")
_REDUCTIONS: dict[str, PlacementKind] = {"sum": "sum", "avg": "mean", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Placement:
    """``shard``: each rank has a part along ``dim``, in the order of the ranks; ``interleave``: rank r of n has the
    places r, r + n, r + 2n, ... (how a sampler deals out a batch); ``sum``, ``mean``, ``max``, ``min``: the tensor is
    that of what the ranks have. ``strided``: a part of what an axis further right has parts of.
    """

    kind: PlacementKind
    dim: int = 0
    strided: bool = False

    def __str__(self) -> str:
        if self.kind in ("shard", "interleave"):
            return f"{self.kind}({self.dim})"
        return "replicate" if self.kind == "replicate" else f"partial({self.kind})"


REPLICATE = Placement("replicate")


def parsed_placement(text: str) -> Placement | None:
    """The placement that a word of an annotation file means; None if it means none."""
    plain = text.strip().lower()
    if plain in _WORDS:
        return Placement(_WORDS[plain])
    match = _WITH_DIM.fullmatch(plain)
    if match is None:
        return None
    return Placement("shard" if match.group(1) == "shard" else "interleave", int(match.group(2)))


def recorded_placement(recorded: Any) -> Placement | None:
    """The placement that a dump holds of a DTensor; None if it is of a kind that is not known."""
    if not isinstance(recorded, dict) or len(recorded) != 1:
        return None
    ((name, fields),) = recorded.items()
    fields = fields if isinstance(fields, dict) else {}
    word = str(name)
    if "Replicate" in word:
        return REPLICATE
    if "Shard" in word and isinstance(fields.get("dim"), int):
        return Placement("shard", fields["dim"], strided="Strided" in word)
    if "Partial" in word:
        kind = _REDUCTIONS.get(str(fields.get("reduce_op", "sum")))
        return Placement(kind) if kind is not None else None
    return None


def holding(leaf: dict[str, Any]) -> tuple[tuple[int, ...], list[int], tuple[Placement, ...]] | None:
    """Ranks of the mesh in their order, its sizes, and a placement for each of its axes, as a DTensor lists them.

    None for a plain tensor, and for placements that are not known.
    """
    mesh, recorded = leaf.get("device_mesh"), leaf.get("placements")
    if not isinstance(mesh, list) or not isinstance(recorded, list):
        return None
    sizes: list[int] = []
    inner: Any = mesh
    while isinstance(inner, list):
        sizes.append(len(inner))
        inner = inner[0] if inner else None
    ranks = _flat(mesh)
    placements = [recorded_placement(placement) for placement in recorded]
    if len(placements) != len(sizes) or any(placement is None for placement in placements):
        return None
    return ranks, sizes, tuple(placement for placement in placements if placement is not None)


def _flat(mesh: Any) -> tuple[int, ...]:
    if isinstance(mesh, list):
        return tuple(rank for inner in mesh for rank in _flat(inner))
    return (mesh,) if isinstance(mesh, int) else ()
