"""The values in tensor files, read without torch: ``.pt``, ``.npy`` and ``.bin``.

Files of strangers are data. Of a ``.pt`` only the description of a plain tensor is understood: an allow-list
of names, none of which runs code of the file. ``.npy`` files with objects are refused. Sizes are checked
against the file before anything is allocated; large files are mapped, not read.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import numpy as np

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.archives import Archive
from msprobe.foreign.budget import factor
from msprobe.foreign.opening import open_regular
from msprobe.foreign.stored_archive import Stored, content_of, stored_entries
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.dtypes import ELEMENT_TYPES, STORAGES, Array, ElementType, to_meant
from msprobe.store.pickles import Name, Opaque, PickleError, read_pickle

_MOST_DESCRIPTION_BYTES = 1 << 24
_MOST_COMMON_BYTES = 1 << 10  # a description of a plain tensor has a few hundred
_MOST_DIMENSIONS = 64  # torch's own limit; numpy 1 reads 32 of them
_MOST_ORDER_BYTES = 16
# Elements of a tensor that says of itself that it repeats its few (an expanded one), and times that it does so.
_MOST_REPEATED = 1 << 24
_MOST_TIMES = 4
_MAPPED_FROM_BYTES = 1 << 16


@dataclass(frozen=True)
class TensorValues:
    """What a file holds.

    ``array`` may be a read-only view of the file. ``dtype`` is the type in the file, in the framework's word
    without its prefix (``bfloat16``). ``converted`` is true where numpy has no such type and ``array`` holds
    the same numbers in a wider one: bfloat16 and float8 as float32, complex32 as complex64.
    """

    array: Array
    dtype: str
    converted: bool = False


def read_values(path: StrPath, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> TensorValues:
    """Read a tensor file by its ending; for a ``.bin`` file, which has neither, give type and shape.

    Raises PathError if the file cannot be read, InvalidInputError if it is not what its ending says.
    """
    suffix = os.path.splitext(os.fspath(path))[1]
    if suffix == ".pt":
        return read_pt(path)
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".bin":
        if dtype is None or shape is None:
            raise InvalidInputError(said("bin-needs-type-and-shape", path))
        return read_bin(path, dtype, shape)
    raise InvalidInputError(said("tensor-file-ending", path))


def read_npy(path: StrPath) -> TensorValues:
    """Read a ``.npy`` file; one with Python objects is refused."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            shape, is_fortran, dtype = npy_header(file)
            offset, count, order = file.tell(), prod(shape), "F" if is_fortran else "C"
            if offset + count * dtype.itemsize > size:
                raise ValueError(f"it has {size} bytes, and is said to have the shape {list(shape)}")
            array: Array
            if count == 0:
                array = np.empty(shape, dtype)
            elif size < _MAPPED_FROM_BYTES:
                array = np.frombuffer(bytearray(file.read(count * dtype.itemsize)), dtype).reshape(shape, order=order)  # type: ignore[call-overload]
            else:
                array = np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload]
    except FileNotFoundError as problem:
        raise _missing(path) from problem
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError) as problem:
        raise InvalidInputError(said("npy-unreadable", path, _one_line(problem))) from problem
    return TensorValues(array, array.dtype.name)


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran's order, and type of a ``.npy`` file, which is read up to its
    values. Raises ValueError for what is no such file.
    """
    if file.read(2) == b"PK":
        raise ValueError("it is an archive of arrays")
    file.seek(0)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"its version {version} is not known")
    # Version 3 differs from 2 in the encoding of names of fields, which no tensor has.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read(file)
    except OSError:
        raise
    except Exception as problem:  # what parsers of Python's texts raise, TokenError among them
        raise ValueError(f"its header cannot be read ({type(problem).__name__})") from problem
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if not dtype.itemsize or len(shape) > _MOST_DIMENSIONS or any(not 0 <= one < 1 << 62 for one in shape):
        raise ValueError(f"it is said to have elements of {dtype.itemsize} bytes in the shape {list(shape)[:8]}")
    return shape, is_fortran, dtype


def read_bin(path: StrPath, dtype: str, shape: tuple[int, ...]) -> TensorValues:
    """Read bare bytes as a little-endian tensor in C order; ``dtype`` without prefix, in any case
    (``Float32``).
    """
    kind = ELEMENT_TYPES.get(dtype.lower())
    if kind is None:
        raise InvalidInputError(said("tensor-type-unknown", path, dtype))
    wanted = prod(shape) * kind.bytes
    if _size_of(path) != wanted:
        raise InvalidInputError(said("tensor-file-size", path, _size_of(path), dtype, list(shape), wanted))
    try:
        with open_regular(path) as file:
            data = _bytes_at(file, 0, wanted)
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    return _finish(np.frombuffer(data, _stored(kind, "little")).reshape(shape), kind)


def read_pt(path: StrPath) -> TensorValues:
    """Read the one plain tensor of a ``.pt`` file that torch (1.6 or later) or msprobe wrote."""
    try:
        with open_regular(path) as file:
            if file.read(4) != b"PK\3\4":
                raise InvalidInputError(said("pt-of-old-torch", path))
            whole = _whole(file)
            plain = stored_entries(whole)
            # What is not of the plainest form, or is broken, is read with care.
            if plain is not None:
                return _read_archive(path, _PlainContents(plain, whole))
            return _read_archive(path, _PackedContents(file, Archive(file, path)))
    except (InvalidInputError, PathError):
        raise
    except Exception as problem:
        if isinstance(problem, FileNotFoundError):
            raise _missing(path) from problem
        # EINVAL: a place in the archive that no file has.
        if isinstance(problem, OSError) and problem.errno != errno.EINVAL:
            raise _unreadable(path, problem) from problem
        # Whatever a broken archive or pickle makes the standard library raise.
        raise InvalidInputError(said("pt-unreadable", path, _one_line(problem))) from problem


def _whole(file: BinaryIO) -> memoryview:
    """All bytes of an open file, mapped if they are many."""
    size = os.fstat(file.fileno()).st_size
    if size < _MAPPED_FROM_BYTES:
        file.seek(0)
        return memoryview(file.read(size))
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


class _Contents(Protocol):
    """The entries of an archive by their names."""

    @property
    def names(self) -> Collection[str]: ...

    def size(self, name: str) -> int:
        """Bytes of the content as the directory says."""

    def small(self, name: str, most: int) -> bytes:
        """The content, of at most ``most`` bytes and with the right checksum."""

    def values(self, name: str, nbytes: int) -> bytes | memoryview:
        """The first bytes of the content."""


class _PlainContents:
    """Those of an archive that has nothing packed, whose bytes are at hand."""

    def __init__(self, entries: dict[str, Stored], whole: memoryview) -> None:
        self.names = entries.keys()
        self._entries = entries
        self._whole = whole

    def size(self, name: str) -> int:
        return self._entries[name].size

    def small(self, name: str, most: int) -> bytes:
        entry = self._entries[name]
        if entry.size > most:
            raise ValueError(f"its entry {name[:80]!r} has {entry.size} bytes")
        content = bytes(content_of(self._whole, entry))
        if zlib.crc32(content) != entry.crc:
            raise zipfile.BadZipFile(f"bad CRC-32 for file {name!r}")
        return content

    def values(self, name: str, nbytes: int) -> memoryview:
        return content_of(self._whole, self._entries[name])[:nbytes]


class _PackedContents:
    """Those of any other archive."""

    def __init__(self, file: BinaryIO, archive: Archive) -> None:
        self.names = archive.entries.keys()
        self._file = file
        self._archive = archive

    def size(self, name: str) -> int:
        return self._archive.entries[name].file_size

    def small(self, name: str, most: int) -> bytes:
        return self._archive.read(self._archive.entries[name], most)

    def values(self, name: str, nbytes: int) -> bytes | memoryview:
        entry = self._archive.entries[name]
        if entry.compress_type == zipfile.ZIP_STORED:
            return _bytes_at(self._file, self._archive.start_of(entry), nbytes)
        self._archive.check_ratio()
        return self._archive.read(entry, nbytes)


def _read_archive(path: StrPath, contents: _Contents) -> TensorValues:
    described = [name for name in contents.names if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(described) != 1:
        raise InvalidInputError(said("pt-file-without-pickle", path))
    root = described[0][: -len("data.pkl")]
    if contents.size(described[0]) > _MOST_DESCRIPTION_BYTES:
        raise InvalidInputError(said("pt-description-too-large", path))
    order = "little"
    if root + "byteorder" in contents.names:
        order = contents.small(root + "byteorder", _MOST_ORDER_BYTES).decode()
    text = contents.small(described[0], _MOST_DESCRIPTION_BYTES)
    found = (_described if len(text) <= _MOST_COMMON_BYTES else _described.__wrapped__)(text)
    if not isinstance(found, _Tensor):
        what = found.name.full if isinstance(found, Opaque) else type(found).__name__
        raise InvalidInputError(said("pt-holds-no-tensor", path, what[:80]))
    found.check()
    name = f"{root}data/{found.storage.key}"
    if name not in contents.names:
        raise InvalidInputError(said("pt-values-missing", path, name[:80]))
    kind = found.kind
    nbytes = found.storage.count * found.storage.kind.bytes
    if contents.size(name) < nbytes:
        raise InvalidInputError(said("pt-values-size", path, contents.size(name), nbytes))
    stored = _stored(kind, order)
    array: Array
    if prod(found.shape) == 0:
        array = np.empty(found.shape, stored)
    else:
        strides = [step * kind.bytes for step in found.strides]
        # Refused by numpy where it would reach beyond the buffer.
        data = contents.values(name, nbytes)
        array = np.ndarray(found.shape, stored, data, found.offset * kind.bytes, strides)
    return _finish(array, kind)


@functools.lru_cache(maxsize=512)
def _described(text: bytes) -> Any:
    """What a description says; tensors of one shape have the same."""
    return read_pickle(memoryview(text), _FUNCTIONS, _storage_of)[0]


def _bytes_at(file: IO[bytes], start: int, length: int) -> bytes | memoryview:
    if os.fstat(file.fileno()).st_size < start + length:
        raise ValueError("the file ends before its values do")
    if length < _MAPPED_FROM_BYTES:
        file.seek(start)
        data = file.read(length)
        if len(data) != length:
            raise ValueError("the file ends before its values do")
        return data
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[start : start + length]


def _stored(kind: ElementType, order: str) -> np.dtype[np.generic]:
    if order not in ("little", "big"):
        raise ValueError(f"the byte order {order!r} is not known")
    return np.dtype(kind.stored).newbyteorder("<" if order == "little" else ">")


def _finish(array: Array, kind: ElementType) -> TensorValues:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return TensorValues(to_meant(array, kind), kind.name, converted=kind.stored != kind.meant)


@dataclass(frozen=True)
class _Storage:
    kind: ElementType
    key: str
    count: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    kind: ElementType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def check(self) -> None:
        """All elements lie in the storage. Raises ValueError."""
        numbers = (self.offset, self.storage.count, *self.shape, *self.strides)
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError("shape, stride or offset is not a whole number")
        if len(self.shape) != len(self.strides):
            raise ValueError("shape and stride have different lengths")
        if len(self.shape) > _MOST_DIMENSIONS:
            raise ValueError(f"the tensor has {len(self.shape)} dimensions")
        available = self.storage.count * self.storage.kind.bytes // self.kind.bytes
        if prod(self.shape) == 0:
            return
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if last >= available:
            raise ValueError(f"the tensor reaches to element {last} of a storage of {available}")
        count = prod(self.shape)
        if count > available and count > max(_MOST_REPEATED, _MOST_TIMES * available) * factor():
            raise ValueError(
                f"the tensor repeats its elements too often ({prod(self.shape)} of {available}); if you trust it, "
                "raise the limits with --limit 10"
            )


_UNTYPED = ElementType("bytes", 1, "UntypedStorage", "u1", "u1")


def _rebuild_v2(storage: object, offset: int, shape: object, strides: object, *_: object) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("the tensor has no storage")
    return _Tensor(storage, storage.kind, offset, _sizes(shape), _sizes(strides))


def _rebuild_v3(
    storage: object,
    offset: int,
    shape: object,
    strides: object,
    grad: object,
    hooks: object,
    dtype: object,
    *_: object,
) -> _Tensor:
    kind = ELEMENT_TYPES.get(dtype.name) if isinstance(dtype, Name) else None
    if kind is None or not isinstance(storage, _Storage):
        raise ValueError("the element type is not known")
    return _Tensor(storage, kind, offset, _sizes(shape), _sizes(strides))


def _rebuild_parameter(data: object, *_: object) -> object:
    return data


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise ValueError("a shape is not a tuple")
    return value


_FUNCTIONS: dict[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor_v2": _rebuild_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_v3,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "collections.OrderedDict": lambda *_: {},
}


def _storage_of(pid: object) -> _Storage:
    if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage" or not isinstance(pid[1], Name):
        raise PickleError("its storage is not described as torch does it")
    kind = _UNTYPED if pid[1].name in ("UntypedStorage", "TypedStorage") else STORAGES.get(pid[1].name)
    key, count = pid[2], pid[4]
    if kind is None or not isinstance(key, str) or type(count) is not int or count < 0:
        raise PickleError("its storage is not described as torch does it")
    return _Storage(kind, key, count)


def _size_of(path: StrPath) -> int:
    try:
        if not os.path.isfile(path):
            if os.path.exists(path):
                raise PathError(said("tensor-file-is-special", path))
            raise _missing(path)
        return os.stat(path).st_size
    except OSError as problem:
        raise _unreadable(path, problem) from problem


def _missing(path: StrPath) -> PathError:
    return PathError(f'tensor file "{path}" does not exist.')


def _unreadable(path: StrPath, problem: OSError) -> PathError:
    return PathError(f'tensor file "{Path(path)}" cannot be read: {(problem.strerror or str(problem)).lower()}.')


def _one_line(problem: Exception) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text[:300].rstrip(".")
