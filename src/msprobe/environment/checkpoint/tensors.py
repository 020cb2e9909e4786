"""Tensors that are described and not read yet: what a checkpoint is made of until two of them are compared.

All are small frozen values that name files and places in them, so they travel between processes. ``read`` gives the
numbers of
one tensor; a large one is a view of the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import prod

import numpy as np

from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.opening import is_regular, open_regular
from msprobe.messages import said
from msprobe.store.dtypes import ELEMENT_TYPES, Array, to_meant
from msprobe.store.torch_archive import bytes_at, check_place

_MOST_DIMENSIONS = 32


def check_file(path: str) -> None:
    """Raises PathError for what is there and no file: a pipe would be waited for, a device has no end."""
    if os.path.exists(path) and not is_regular(path):
        raise PathError(said("not-a-plain-file", path))


@dataclass(frozen=True)
class CheckpointTensor:
    """A tensor of a checkpoint: its shape, and its element type in torch's words without ``torch.``."""

    shape: tuple[int, ...]
    dtype: str

    def read(self) -> Array:
        """The numbers; types that numpy lacks (bfloat16, float8) as float32. Raises PathError, InvalidInputError."""
        raise NotImplementedError

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements in the file."""
        kind = ELEMENT_TYPES.get(self.dtype)
        return self.numel * (kind.bytes if kind else 8)


@dataclass(frozen=True)
class FileTensor(CheckpointTensor):
    """Elements in a file: ``start`` is the first byte of its storage of ``count`` elements, ``offset`` and ``strides``
    are in elements.
    """

    path: str
    start: int
    count: int
    offset: int = 0
    strides: tuple[int, ...] | None = None
    big_endian: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ELEMENT_TYPES:
            raise InvalidInputError(said("tensor-type-unknown", self.path, self.dtype))
        try:
            check_place(self.shape, self.strides, self.offset, self.count, _MOST_DIMENSIONS)
        except ValueError as problem:
            raise InvalidInputError(f'"{self.path}": {problem}.') from problem

    def _last(self) -> int:
        if self.strides is None:
            return self.offset + self.numel - 1
        return self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))

    def read(self) -> Array:
        kind = ELEMENT_TYPES[self.dtype]
        stored = np.dtype(kind.stored).newbyteorder(">" if self.big_endian else "<")
        if not self.numel:
            return np.empty(self.shape, kind.meant)
        first, last = self.start + self.offset * kind.bytes, self._last() + 1 - self.offset
        flat = _bytes_of(self.path, first, last * kind.bytes).view(stored)
        if self.strides is None:
            array = flat.reshape(self.shape)
        else:
            steps = [step * kind.bytes for step in self.strides]
            array = np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return to_meant(array, kind)


def _bytes_of(path: str, start: int, length: int) -> Array:
    """Bytes of a file, mapped where they are many. Raises PathError, InvalidInputError."""
    try:
        with open_regular(path) as file:
            return np.frombuffer(bytes_at(file, start, length), np.uint8)
    except ValueError as problem:
        raise InvalidInputError(said("values-cut-off", path)) from problem
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem


@dataclass(frozen=True)
class HeldTensor(CheckpointTensor):
    """Numbers that are in memory already: those of random states, and single ones."""

    values: Array = field(repr=False)

    def read(self) -> Array:
        return self.values


def held(values: Array, dtype: str | None = None) -> HeldTensor:
    """Numbers in memory as a tensor of a checkpoint."""
    return HeldTensor(tuple(int(n) for n in values.shape), dtype or values.dtype.name, values)


@dataclass(frozen=True)
class TensorSlice(CheckpointTensor):
    """A part of another tensor along its first axis, ``[begin, begin + length)``; in another shape, if ``shape``
    says so.
    """

    whole: CheckpointTensor
    begin: int
    length: int

    def __post_init__(self) -> None:
        rows = self.whole.shape[0] if self.whole.shape else 0
        row = prod(self.whole.shape[1:])
        if not 0 <= self.begin <= self.begin + self.length <= rows or self.length * row != self.numel:
            raise InvalidInputError(
                said(
                    "shapes-and-values-do-not-fit",
                    self.begin,
                    self.begin + self.length,
                    list(self.whole.shape),
                    list(self.shape),
                )
            )

    def read(self) -> Array:
        return rows_of(self.whole, self.begin, self.begin + self.length).reshape(self.shape)


def rows_of(tensor: CheckpointTensor, begin: int, end: int) -> Array:
    """Elements ``[begin, end)`` of the first axis; what lies outside of them is not read where files allow it."""
    if isinstance(tensor, Pieces):
        return tensor.read_rows(begin, end)
    if isinstance(tensor, FileTensor) and tensor.strides is None:
        row = prod(tensor.shape[1:])
        part = FileTensor(
            (end - begin, *tensor.shape[1:]), tensor.dtype, tensor.path, tensor.start, tensor.count,
            tensor.offset + begin * row, None, tensor.big_endian,
        )  # fmt: skip
        return part.read()
    if isinstance(tensor, Joined) and tensor.axis == 0 and not tensor.sections:
        rows, place = [], 0
        for shard in tensor.parts:
            length = shard.shape[0]
            low, high = max(begin, place), min(end, place + length)
            if low < high:
                rows.append(rows_of(shard, low - place, high - place))
            place += length
        return rows[0] if len(rows) == 1 else np.concatenate(rows) if rows else tensor.read()[begin:end]
    if isinstance(tensor, TensorSlice) and tensor.shape[1:] == tensor.whole.shape[1:]:
        return rows_of(tensor.whole, tensor.begin + begin, tensor.begin + end)
    return tensor.read()[begin:end]


@dataclass(frozen=True)
class Joined(CheckpointTensor):
    """Shards put together along an axis. ``sections``: what each shard holds one behind the other, all of which are
    sharded, as parts of its length: ``(1, 1)`` for a gate and what is gated.
    """

    parts: tuple[CheckpointTensor, ...]
    axis: int
    sections: tuple[int, ...] = ()

    def read(self) -> Array:
        arrays = [part.read() for part in self.parts]
        if len(arrays) == 1:
            return arrays[0]
        if not self.sections:
            return np.concatenate(arrays, self.axis)
        share = self.parts[0].shape[self.axis] // sum(self.sections)
        ends = [share * sum(self.sections[:at]) for at in range(1, len(self.sections))]
        split = [np.split(array, ends, self.axis) for array in arrays]
        return np.concatenate([pieces[at] for at in range(len(self.sections)) for pieces in split], self.axis)


def joined(parts: tuple[CheckpointTensor, ...], axis: int, sections: tuple[int, ...] = ()) -> CheckpointTensor:
    """Shards along ``axis`` as one tensor. Raises InvalidInputError where they do not fit."""
    shape = list(parts[0].shape)
    axis = axis if len(shape) > axis else 0
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        if len(part.shape) != len(shape) or not shape or part.dtype != parts[0].dtype:
            raise InvalidInputError(said("shards-do-not-join", [list(part.shape) for part in parts[:8]]))
        if [n for at, n in enumerate(part.shape) if at != axis] != [n for at, n in enumerate(shape) if at != axis]:
            raise InvalidInputError(said("shards-do-not-join", [list(part.shape) for part in parts[:8]]))
        if sections and part.shape[axis] % sum(sections):
            raise InvalidInputError(said("shard-sections-wrong", list(part.shape), sections))
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Joined(tuple(shape), parts[0].dtype, parts, axis, sections)


@dataclass(frozen=True)
class Replicas(CheckpointTensor):
    """Copies that ought to be the same, one of each rank; the first is read."""

    copies: tuple[CheckpointTensor, ...]

    def read(self) -> Array:
        return self.copies[0].read()

    def differing(self) -> tuple[str, ...]:
        """The files of the copies that are not the first, bit for bit; a word where a copy lies in no file."""
        first = self.copies[0].read()
        return tuple(
            _file_of(copy) or f"copy {number}"
            for number, copy in enumerate(self.copies[1:], 1)
            if copy.shape != self.shape or not np.array_equal(first, copy.read(), equal_nan=first.dtype.kind in "fc")
        )


def _file_of(tensor: CheckpointTensor) -> str:
    """The file that a tensor lies in, of several the first; an empty text for none."""
    inner = getattr(tensor, "parts", None) or getattr(tensor, "copies", None) or (getattr(tensor, "whole", None),)
    if isinstance(tensor, FileTensor):
        return tensor.path
    if isinstance(tensor, Pieces):
        inner = tuple(piece.values for piece in tensor.pieces)
    return next((file for part in inner if isinstance(part, CheckpointTensor) and (file := _file_of(part))), "")


@dataclass(frozen=True)
class Moved(CheckpointTensor):
    """Another tensor reshaped to ``as_shape``, of which ``pick`` is taken along the first axis, and transposed."""

    whole: CheckpointTensor
    as_shape: tuple[int, ...]
    pick: int | None = None
    transpose: bool = False

    def read(self) -> Array:
        array = self.whole.read().reshape(self.as_shape)
        if self.pick is not None:
            array = array[self.pick]
        return array.T if self.transpose else array.reshape(self.shape)


@dataclass(frozen=True)
class QkvRows(CheckpointTensor):
    """Rows ``[begin, end)`` of the second axis of a tensor seen as ``[groups, rows, ...]``, flat again: q, k or v."""

    whole: CheckpointTensor
    as_shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> Array:
        return self.whole.read().reshape(self.as_shape)[:, self.begin : self.end].reshape(self.shape)


@dataclass(frozen=True)
class PlacedBlock:
    """A block of a distributed tensor: where it begins, and its values."""

    offsets: tuple[int, ...]
    values: CheckpointTensor


@dataclass(frozen=True)
class Pieces(CheckpointTensor):
    """A tensor in blocks that ranks have written."""

    pieces: tuple[PlacedBlock, ...]

    def __post_init__(self) -> None:
        covered = 0
        if len({piece.offsets for piece in self.pieces}) < len(self.pieces):
            raise InvalidInputError(said("blocks-overlap", list(self.shape)))
        for piece in self.pieces:
            sizes = piece.values.shape
            fits = len(piece.offsets) == len(sizes) == len(self.shape) and all(
                begin >= 0 and begin + size <= length
                for begin, size, length in zip(piece.offsets, sizes, self.shape, strict=True)
            )
            if not fits:
                raise InvalidInputError(
                    said("block-outside-of-tensor", list(sizes), list(piece.offsets), list(self.shape))
                )
            covered += prod(sizes)
        if covered < self.numel:
            raise InvalidInputError(said("elements-missing", covered, self.numel, list(self.shape)))

    def read(self) -> Array:
        if len(self.pieces) == 1 or not self.shape:
            return self.pieces[0].values.read()
        return self.read_rows(0, self.shape[0])

    def read_rows(self, begin: int, end: int) -> Array:
        """Rows of the first axis; blocks outside of them are not touched."""
        result: Array | None = None
        for piece in self.pieces:
            first = piece.offsets[0]
            last = first + piece.values.shape[0]
            low, high = max(first, begin), min(last, end)
            if low >= high:
                continue
            block = piece.values.read()[low - first : high - first]
            if result is None:
                result = np.zeros((end - begin, *self.shape[1:]), block.dtype)
            others = (slice(at, at + size) for at, size in zip(piece.offsets[1:], piece.values.shape[1:], strict=True))
            result[(slice(low - begin, high - begin), *others)] = block
        return np.zeros((end - begin, *self.shape[1:]), np.float32) if result is None else result


def slices(tensor: CheckpointTensor) -> list[CheckpointTensor]:
    """A tensor for each index of the first axis. A block of several goes with each of them, and with no other."""
    shape = tensor.shape[1:]
    if not isinstance(tensor, Pieces):
        return [TensorSlice(shape, tensor.dtype, tensor, at, 1) for at in range(tensor.shape[0])]
    blocks: list[list[PlacedBlock]] = [[] for _ in range(tensor.shape[0])]
    for piece in tensor.pieces:
        sizes = piece.values.shape
        for at in range(sizes[0]):
            part = TensorSlice(sizes[1:], tensor.dtype, piece.values, at, 1)
            blocks[piece.offsets[0] + at].append(PlacedBlock(piece.offsets[1:], part))
    return [Pieces(shape, tensor.dtype, tuple(some)) for some in blocks]
