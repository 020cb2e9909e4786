"""Files of single tensors and archives of them: safetensors, numpy, and MindSpore's ``.ckpt``."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

import numpy as np

from msprobe.environment.checkpoint.tensors import CheckpointTensor, FileTensor, check_file, joined
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.archives import Archive
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import open_regular
from msprobe.foreign.protobuf import WireError, packed, placed_fields
from msprobe.messages import said
from msprobe.store.dtypes import ELEMENT_TYPES, Array
from msprobe.store.values import npy_header, read_npy

_MOST_HEADER_BYTES = 100_000_000
_MOST_SIZES = 32
_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
_MINDSPORE = {
    "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2", "int4": "int8", "qint4x2": "int8",
}  # fmt: skip


def _cannot_read(path: str, problem: OSError) -> PathError:
    return PathError(said("cannot-be-read-because", path, reason_of(problem)))


def read_safetensors(path: str) -> dict[str, CheckpointTensor]:
    """The tensors of a ``.safetensors`` file. Raises PathError, InvalidInputError."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or length > min(_MOST_HEADER_BYTES, size - 8):
                raise InvalidInputError(said("safetensors-header-length", path, length))
            text = file.read(length)
    except OSError as problem:
        raise _cannot_read(path, problem) from problem
    header = parse_json(text, path, pairs=lambda pairs: _once(path, pairs))
    if not isinstance(header, dict):
        raise InvalidInputError(said("safetensors-header-is-no-object", path))
    header.pop("__metadata__", None)
    tensors = {name: _safetensors_tensor(path, name, entry, 8 + length, size) for name, entry in header.items()}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        if tensor.nbytes and tensor.start < end:
            raise InvalidInputError(said("tensor-bytes-shared", path, name[:80]))
        end = max(end, tensor.start + tensor.nbytes)
    return {**tensors}


def _once(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InvalidInputError(said("header-name-twice", path, twice[:80]))
    return table


def _safetensors_tensor(path: str, name: str, entry: Any, base: int, size: int) -> FileTensor:
    where = f'"{path}", tensor {name[:80]!r}'
    if not isinstance(entry, dict):
        raise InvalidInputError(said("tensor-entry-is-no-object", where))
    kind, shape, place = _SAFETENSORS.get(str(entry.get("dtype"))), entry.get("shape"), entry.get("data_offsets")
    if kind is None:
        raise InvalidInputError(said("tensor-entry-type-unknown", where, str(entry.get("dtype"))[:40]))
    if not _whole(shape) or not _whole(place) or len(place) != 2:
        raise InvalidInputError(said("tensor-shape-is-no-list", where))
    begin, end = place
    count = prod(shape)
    if end - begin != count * ELEMENT_TYPES[kind].bytes or base + end > size:
        raise InvalidInputError(said("tensor-bytes-wrong", where, begin, end, kind, shape, size))
    return FileTensor(tuple(shape), kind, path, base + begin, count)


def _whole(numbers: Any) -> TypeGuard[list[int]]:
    return (
        isinstance(numbers, list) and len(numbers) <= 64 and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
    )


# ---- numpy ----


@dataclass(frozen=True)
class _Member(CheckpointTensor):
    """An array in an archive of arrays."""

    path: str
    member: str

    def read(self) -> Array:
        try:
            with open_regular(self.path) as whole:
                archive = Archive(whole, self.path)
                entry = archive.entries.get(self.member)
                if entry is None:
                    raise InvalidInputError(said("archive-lost-array", self.path, self.member))
                with archive.open(entry) as file:
                    shape, is_fortran, dtype = npy_header(file)
                    data = bytearray(file.read(prod(shape) * dtype.itemsize))
                return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
        except (ValueError, EOFError, TypeError, SyntaxError, OverflowError, MemoryError, RecursionError) as problem:
            raise InvalidInputError(said("archive-array-unreadable", self.path, self.member, problem)) from problem
        except OSError as problem:
            raise _cannot_read(self.path, problem) from problem


def read_numpy(path: str) -> dict[str, CheckpointTensor]:
    """The array of a ``.npy`` file, or those of a ``.npz`` archive. Raises PathError, InvalidInputError."""
    check_file(path)
    if path.endswith(".npy"):
        array = read_npy(path).array
        return {"tensor": _NumpyFile(tuple(map(int, array.shape)), _name(path, array.dtype), path)}
    tensors: dict[str, CheckpointTensor] = {}
    try:
        with open_regular(path) as file:
            archive = Archive(file, path)
            archive.check_ratio()
            for name, entry in archive.entries.items():
                if not name.endswith(".npy"):
                    raise InvalidInputError(said("archive-holds-no-array", path, name[:80]))
                tensors[name[: -len(".npy")]] = _member(path, archive, entry)
    except (ValueError, EOFError, TypeError, SyntaxError, OverflowError, RecursionError) as problem:
        raise InvalidInputError(said("array-archive-unreadable", path, problem)) from problem
    except OSError as problem:
        raise _cannot_read(path, problem) from problem
    return tensors


@dataclass(frozen=True)
class _NumpyFile(CheckpointTensor):
    path: str

    def read(self) -> Array:
        return read_npy(self.path).array


def _member(path: str, archive: Archive, entry: zipfile.ZipInfo) -> CheckpointTensor:
    with archive.open(entry) as file:
        shape, _, dtype = npy_header(file)
        start = file.tell()
    where = f'"{path}", array {entry.filename[:80]!r}'
    name = _name(where, dtype)
    if prod(shape) * dtype.itemsize != entry.file_size - start:
        raise InvalidInputError(said("array-size-wrong", where, entry.file_size, list(shape)))
    return _Member(tuple(map(int, shape)), name, path, entry.filename)


def _name(where: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "biufc":
        raise InvalidInputError(said("array-type-is-no-number", where, dtype))
    return dtype.name


# ---- MindSpore: a protobuf message `Checkpoint { repeated Value value = 1; }`, with
# `Value { string tag = 1; Tensor tensor = 2; }` and `Tensor { repeated int64 dims = 1; string type = 2; bytes
# content = 3; }`


def read_mindspore(path: str) -> tuple[dict[str, CheckpointTensor], dict[str, str]]:
    """The tensors of a ``.ckpt`` file of MindSpore, and the texts in it. Raises PathError, InvalidInputError."""
    try:
        with open_regular(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise InvalidInputError(said("file-is-empty", path))
            # Not closed by hand: an error on its way may still hold a view of it.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return _read_message(path, data)
    except (WireError, UnicodeDecodeError) as problem:
        raise InvalidInputError(said("mindspore-checkpoint-unreadable", path)) from problem
    except OSError as problem:
        raise _cannot_read(path, problem) from problem


def _read_message(path: str, data: memoryview) -> tuple[dict[str, CheckpointTensor], dict[str, str]]:
    parts: dict[str, list[FileTensor]] = {}
    dims_of: dict[str, tuple[int, ...]] = {}
    texts: dict[str, str] = {}
    for number, entry in placed_fields(data):
        if number != 1 or isinstance(entry, int):
            continue
        tag, kind, content = "", "", slice(entry.start, entry.start)
        dims: tuple[int, ...] = ()
        for field, value in placed_fields(data, entry):
            if field == 1 and isinstance(value, slice):
                tag = str(data[value], "utf-8")
            elif field == 2 and isinstance(value, slice):
                dims, kind, content = _tensor_fields(data, value)
        name = _MINDSPORE.get(kind.lower(), kind.lower())
        if kind == "str":
            texts[tag] = str(data[content], "utf-32-le", "replace")[:200]
            continue
        if name not in ELEMENT_TYPES:
            raise InvalidInputError(said("mindspore-parameter-type-unknown", path, tag[:80], kind[:40]))
        # A large parameter comes in slices under one name, each of which has the whole shape.
        count = (content.stop - content.start) // ELEMENT_TYPES[name].bytes
        dims_of[tag] = dims
        parts.setdefault(tag, []).append(FileTensor((count,), name, path, content.start, count))
    if not parts and not texts:
        raise InvalidInputError(said("mindspore-checkpoint-empty", path))
    return {tag: _whole_tensor(path, tag, tuple(some), dims_of[tag]) for tag, some in parts.items()}, texts


def _whole_tensor(path: str, tag: str, parts: tuple[FileTensor, ...], dims: tuple[int, ...]) -> CheckpointTensor:
    from msprobe.environment.checkpoint.tensors import TensorSlice

    flat = joined(parts, 0)
    dims = () if dims == (0,) and flat.numel == 1 else dims
    if prod(dims) != flat.numel:
        raise InvalidInputError(said("mindspore-parameter-size-wrong", path, tag[:80], flat.numel, list(dims)))
    if len(parts) == 1:
        return FileTensor(dims, parts[0].dtype, path, parts[0].start, parts[0].count)
    return TensorSlice(dims, flat.dtype, flat, 0, flat.numel)


def _tensor_fields(data: memoryview, place: slice) -> tuple[tuple[int, ...], str, slice]:
    dims: list[int] = []
    kind, content = "", slice(place.start, place.start)
    for field, value in placed_fields(data, place):
        if field == 1:
            dims += packed(data, value, _MOST_SIZES)
        elif field == 2 and isinstance(value, slice):
            kind = str(data[value], "utf-8")
        elif field == 3 and isinstance(value, slice):
            content = value
    if len(dims) > _MOST_SIZES or any(dim >= 1 << 62 for dim in dims):
        raise WireError(said("shape-too-large"))
    return tuple(dims), kind, content
