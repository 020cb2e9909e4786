"""Tensors in folders of zarr (version 2), as earlier versions of Megatron's core wrote them: ``.zarray`` and chunks."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from math import prod
from typing import Any

from msprobe.environment.checkpoint.contents import small_file
from msprobe.environment.checkpoint.tensors import CheckpointTensor, FileTensor, Pieces, PlacedBlock
from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import size_of
from msprobe.messages import said
from msprobe.store.dtypes import ELEMENT_TYPES, Array

_MOST_CHUNKS = 1 << 20
_TYPES = {
    "f2": "float16", "f4": "float32", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "b1": "bool", "bfloat16": "bfloat16",
}  # fmt: skip


@dataclass(frozen=True)
class _Chunk(CheckpointTensor):
    """What lies in the tensor of a chunk, all of which have one size."""

    whole: FileTensor

    def read(self) -> Array:
        return self.whole.read()[tuple(slice(length) for length in self.shape)]


def read_zarr(folder: str) -> dict[str, CheckpointTensor]:
    """The tensors of all folders in ``folder`` that have a ``.zarray``. Raises PathError, InvalidInputError."""
    return {
        name: _tensor(os.path.join(folder, name))
        for name in sorted(os.listdir(folder))
        if os.path.isfile(os.path.join(folder, name, ".zarray"))
    }


def _tensor(folder: str) -> CheckpointTensor:
    header = parse_json(small_file(os.path.join(folder, ".zarray")), f"{folder}/.zarray")
    if not isinstance(header, dict) or header.get("zarr_format") != 2 or header.get("order", "C") != "C":
        raise InvalidInputError(said("zarr-form", folder))
    if header.get("compressor") is not None or header.get("filters"):
        raise InvalidInputError(said("zarr-compressed", folder))
    shape, chunks = _sizes(folder, header.get("shape")), _sizes(folder, header.get("chunks"))
    dtype = str(header.get("dtype"))
    kind = _TYPES.get(dtype.lstrip("<>|"))
    if kind is None or len(shape) != len(chunks) or 0 in chunks:
        raise InvalidInputError(said("zarr-does-not-fit", folder, dtype[:40], shape, chunks))
    counts = [-(-length // size) for length, size in zip(shape, chunks, strict=True)]
    if prod(counts) > _MOST_CHUNKS:
        raise InvalidInputError(said("zarr-too-many-chunks", folder, prod(counts)))
    between = "/" if header.get("dimension_separator") == "/" else "."
    nbytes = prod(chunks) * ELEMENT_TYPES[kind].bytes
    pieces = []
    for at in itertools.product(*map(range, counts)):
        path = os.path.join(folder, between.join(map(str, at)) or "0")
        if size_of(path) < nbytes:
            raise InvalidInputError(said("zarr-chunk-missing", path, nbytes))
        begin = tuple(place * size for place, size in zip(at, chunks, strict=True))
        sizes = tuple(min(size, length - start) for size, length, start in zip(chunks, shape, begin, strict=True))
        whole = FileTensor(tuple(chunks), kind, path, 0, prod(chunks), 0, None, dtype.startswith(">"))
        pieces.append(PlacedBlock(begin, _Chunk(sizes, kind, whole)))
    return Pieces(tuple(shape), kind, tuple(pieces))


def _sizes(folder: str, header: Any) -> list[int]:
    if (
        not isinstance(header, list)
        or len(header) > 32
        or not all(type(size) is int and 0 <= size < 1 << 62 for size in header)
    ):
        raise InvalidInputError(said("zarr-shape-is-no-list", folder))
    return header
