"""The values in tensor files, read without torch: ``.pt`` and ``.npy``.

Files of strangers are data. Of a ``.pt`` only the description of a plain tensor is understood: an allow-list
of names, none of which runs code of the file. ``.npy`` files with objects are refused. Sizes are checked
against the file before anything is allocated; large files are mapped, not read.
"""

from __future__ import annotations

import errno
import functools
import io
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from msprobe.errors import InvalidInputError, PathError, in_one_line, reason_of
from msprobe.foreign.archives import Archive
from msprobe.foreign.opening import open_regular
from msprobe.foreign.stored_archive import stored_entries
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.store.dtypes import Array, ElementType, to_meant
from msprobe.store.pickles import Opaque, read_pickle
from msprobe.store.torch_archive import (
    MAPPED_FROM_BYTES,
    MOST_DIMENSIONS,
    TENSORS,
    Contents,
    Described,
    PackedContents,
    PlainContents,
    description,
    storage_of,
)  # fmt: skip

_MOST_DESCRIPTION_BYTES = 1 << 24
_MOST_COMMON_BYTES = 1 << 10  # a description of a plain tensor has a few hundred


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


class Room:
    """Memory for the bytes of one file after the other: what the system gives anew it fills with zeros, page by page,
    which takes longer than to read them.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def filled(self, file: BinaryIO, size: int) -> memoryview:
        """The next ``size`` bytes of a file, or as many as it has; those of the file before are gone."""
        if len(self._bytes) < size:
            self._bytes = bytearray(size)
        view = memoryview(self._bytes)[:size]
        return view[: cast(io.BufferedReader, file).readinto(view)]


def read_values(path: StrPath, room: Room | None = None) -> TensorValues:
    """Read a tensor file by its ending: ``.pt`` or ``.npy``; a ``.bin`` file has neither type nor shape.

    ``room``: where the bytes of a ``.pt`` file may stand; its array is then good until the next file is read there.

    Raises PathError if the file cannot be read, InvalidInputError if it is not what its ending says.
    """
    suffix = os.path.splitext(os.fspath(path))[1]
    if suffix == ".pt":
        return read_pt(path, room)
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".bin":
        raise InvalidInputError(said("bin-needs-type-and-shape", path))
    raise InvalidInputError(said("tensor-file-ending", path))


def read_npy(path: StrPath) -> TensorValues:
    """Read a ``.npy`` file; one with Python objects is refused."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            shape, is_fortran, dtype = npy_header(file)
            offset, count, order = file.tell(), prod(shape), "F" if is_fortran else "C"
            if offset + count * dtype.itemsize > size:
                raise ValueError(said("array-bytes-wrong", size, list(shape)))
            array: Array
            if count == 0:
                array = np.empty(shape, dtype)
            elif size < MAPPED_FROM_BYTES:
                array = np.frombuffer(bytearray(file.read(count * dtype.itemsize)), dtype).reshape(shape, order=order)  # type: ignore[call-overload]
            else:
                array = np.memmap(file, dtype, "r", offset, shape, order)  # type: ignore[call-overload]
    except FileNotFoundError as problem:
        raise _missing(path) from problem
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError) as problem:
        raise InvalidInputError(said("npy-unreadable", path, in_one_line(problem))) from problem
    return TensorValues(array, array.dtype.name)


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran's order, and type of a ``.npy`` file, which is read up to its
    values. Raises ValueError for what is no such file.
    """
    if file.read(2) == b"PK":
        raise ValueError(said("array-is-archive"))
    file.seek(0)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(said("array-version-unknown", version))
    # Version 3 differs from 2 in the encoding of names of fields, which no tensor has.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read(file)
    except OSError:
        raise
    except Exception as problem:  # what parsers of Python's texts raise, TokenError among them
        raise ValueError(said("array-header-unreadable", type(problem).__name__)) from problem
    if dtype.hasobject:
        raise ValueError(said("array-of-objects"))
    if not dtype.itemsize or len(shape) > MOST_DIMENSIONS or any(not 0 <= size < 1 << 62 for size in shape):
        raise ValueError(said("array-size-unlikely", dtype.itemsize, list(shape)[:8]))
    return shape, is_fortran, dtype


def read_pt(path: StrPath, room: Room | None = None) -> TensorValues:
    """Read the one plain tensor of a ``.pt`` file that torch (1.6 or later) or msprobe wrote; ``room`` as above."""
    try:
        with open_regular(path) as file:
            whole = _whole(file, room)
            if bytes(whole[:4]) != b"PK\3\4":
                raise InvalidInputError(said("pt-of-old-torch", path))
            plain = stored_entries(whole)
            # What is not of the plainest form, or is broken, is read with care.
            if plain is not None:
                return _read_archive(path, PlainContents(plain, whole))
            return _read_archive(path, PackedContents(Archive(file, path)))
    except (InvalidInputError, PathError):
        raise
    except Exception as problem:
        if isinstance(problem, FileNotFoundError):
            raise _missing(path) from problem
        # EINVAL: a place in the archive that no file has.
        if isinstance(problem, OSError) and problem.errno != errno.EINVAL:
            raise _unreadable(path, problem) from problem
        # Whatever a broken archive or pickle makes the standard library raise.
        raise InvalidInputError(said("pt-unreadable", path, in_one_line(problem))) from problem


def _whole(file: BinaryIO, room: Room | None) -> memoryview:
    """All bytes of an open file, mapped if they are many."""
    size = os.fstat(file.fileno()).st_size
    if size < MAPPED_FROM_BYTES:
        file.seek(0)
        return memoryview(file.read(size)) if room is None else room.filled(file, size)
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _read_archive(path: StrPath, contents: Contents) -> TensorValues:
    root, is_big_endian, text = description(path, contents, _MOST_DESCRIPTION_BYTES)
    described = (_described if len(text) <= _MOST_COMMON_BYTES else _described.__wrapped__)(text)
    if not isinstance(described, Described):
        what = described.name.full if isinstance(described, Opaque) else type(described).__name__
        raise InvalidInputError(said("pt-holds-no-tensor", path, what[:80]))
    name = f"{root}data/{described.storage.key}"
    if name not in contents.names:
        raise InvalidInputError(said("pt-values-missing", path, name[:80]))
    kind = described.kind
    nbytes = described.storage.count * described.storage.kind.bytes
    if contents.size(name) < nbytes:
        raise InvalidInputError(said("pt-values-size", path, contents.size(name), nbytes))
    stored = _stored(kind, is_big_endian)
    array: Array
    if prod(described.shape) == 0:
        array = np.empty(described.shape, stored)
    else:
        strides = [step * kind.bytes for step in described.strides]
        # Refused by numpy where it would reach beyond the buffer.
        data = contents.values(name, nbytes)
        array = np.ndarray(described.shape, stored, data, described.offset * kind.bytes, strides)
    return _finish(array, kind)


@functools.lru_cache(maxsize=512)
def _described(text: bytes) -> Any:
    """What a description says, which is checked; tensors of one shape have the same."""
    described = read_pickle(memoryview(text), _FUNCTIONS, storage_of)[0]
    if isinstance(described, Described):
        described.check()
    return described


def _stored(kind: ElementType, is_big_endian: bool = False) -> np.dtype[np.generic]:
    return np.dtype(kind.stored).newbyteorder(">" if is_big_endian else "<")


def _finish(array: Array, kind: ElementType) -> TensorValues:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return TensorValues(to_meant(array, kind), kind.name, converted=kind.stored != kind.meant)


_FUNCTIONS: dict[str, Callable[..., object]] = {**TENSORS, "collections.OrderedDict": lambda *_: {}}


def _missing(path: StrPath) -> PathError:
    return PathError(said("tensor-file-missing", path))


def _unreadable(path: StrPath, problem: OSError) -> PathError:
    return PathError(said("tensor-file-unreadable", Path(path), reason_of(problem)))
