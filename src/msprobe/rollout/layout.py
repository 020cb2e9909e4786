"""How an engine spreads a layer over its ranks, by the numbers that its modules keep: the layout of its loader.

vLLM's: a layer that is parallel in its outputs has of each fused matrix the rows of its rank (keys and values of few
heads are repeated), one that is parallel in its inputs the columns; tables of words have a range of rows, padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixPiece:
    """What of one matrix of the trainer a rank holds; None: all rows, or all columns."""

    rows: slice | None = None
    columns: slice | None = None


def pieces(numbers: Mapping[str, float], sizes: Sequence[int]) -> list[MatrixPiece]:
    """For each of the fused matrices, which have ``sizes`` rows, what the rank of these ``numbers`` holds."""
    ranks, rank = int(numbers.get("tp_size", 1)), int(numbers.get("tp_rank", 0))
    if ranks <= 1 or not 0 <= rank < ranks:
        return [MatrixPiece() for _ in sizes]
    inputs = int(numbers.get("input_size_per_partition", 0))
    if 0 < inputs < int(numbers.get("input_size", 0)):
        return [MatrixPiece(columns=slice(rank * inputs, (rank + 1) * inputs)) for _ in sizes]
    rows = int(numbers.get("num_embeddings_per_partition", 0))
    if rows and rows < int(numbers.get("num_embeddings_padded", rows * ranks)):
        return [MatrixPiece(rows=slice(rank * rows, (rank + 1) * rows)) for _ in sizes]
    if not 0 < int(numbers.get("output_size_per_partition", 0)) < int(numbers.get("output_size", 0)):
        return [MatrixPiece() for _ in sizes]
    repeated = max(1, int(numbers.get("num_kv_head_replicas", 1)))
    done = []
    for place, size in enumerate(sizes):
        # Queries stand first; keys and values are those that are repeated.
        times = repeated if place else 1
        share = size * times // ranks
        first = (rank // times) * share
        done.append(MatrixPiece(rows=slice(first, first + share)))
    return done
