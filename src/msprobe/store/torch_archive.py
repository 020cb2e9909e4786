"""The archives of ``torch.save`` and the tensors that their pickles describe, as data: the one reader of both.

A file of one tensor (:mod:`msprobe.store.values`) and a checkpoint (:mod:`msprobe.environment.checkpoint.torch_files`)
are the same format. Of what a pickle calls, only what makes a tensor is known here; nothing runs.
"""

from __future__ import annotations

import mmap
import os
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from typing import IO, Any, NamedTuple, Protocol

from msprobe.errors import InvalidInputError
from msprobe.foreign.archives import Archive
from msprobe.foreign.budget import factor
from msprobe.foreign.stored_archive import Stored, content_of
from msprobe.messages import said
from msprobe.store.dtypes import ELEMENT_TYPES, STORAGES, ElementType
from msprobe.store.pickles import Name, PickleError

#: torch's own limit; numpy 1 reads 32 of them.
MOST_DIMENSIONS = 64
MAPPED_FROM_BYTES = 1 << 22  # mapping fewer takes longer than to copy them
_LARGEST = 1 << 62
_MOST_ORDER_BYTES = 16
# Elements of a tensor that says of itself that it repeats its few (an expanded one), and times that it does so.
_MOST_REPEATED = 1 << 24
_MOST_TIMES = 4
_UNTYPED = ElementType("bytes", 1, "UntypedStorage", "u1", "u1")


@dataclass(frozen=True)
class Storage:
    """A run of elements in a file of its own in the archive: their type, that file's name, and their number."""

    kind: ElementType
    key: str
    count: int


@dataclass(frozen=True)
class Described:
    """A tensor as a pickle describes it, not checked; offset and strides in elements of ``kind``."""

    storage: Storage
    kind: ElementType
    offset: Any
    shape: Any
    strides: Any

    @property
    def available(self) -> int:
        """How many elements of its type the storage has."""
        return self.storage.count * self.storage.kind.bytes // self.kind.bytes

    def check(self) -> None:
        """Raises ValueError unless all elements lie in the storage."""
        if not isinstance(self.shape, tuple) or not isinstance(self.strides, tuple):
            raise ValueError(said("archive-tensor-without-shape"))
        check_place(self.shape, self.strides, self.offset, self.available, MOST_DIMENSIONS)


def check_place(shape: tuple[Any, ...], strides: tuple[Any, ...] | None, offset: Any, count: Any, most: int) -> None:
    """Raise ValueError unless a tensor of at most ``most`` dimensions lies within a storage of ``count`` elements,
    and does not repeat them too often. Without strides its elements follow one another.
    """
    numbers = (offset, count, *shape, *(strides or ()))
    if any(type(number) is not int or not 0 <= number < _LARGEST for number in numbers):
        raise ValueError(said("archive-shape-no-numbers"))
    if len(shape) > most or (strides is not None and len(strides) != len(shape)):
        raise ValueError(said("archive-strides-differ", len(shape), len(strides or ())))
    numel = prod(shape)
    if not numel:
        return
    if strides is None:
        last = offset + numel - 1
    else:
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if last >= count:
        raise ValueError(said("archive-tensor-beyond", list(shape), last, count))
    if numel > count and numel > max(_MOST_REPEATED, _MOST_TIMES * count) * factor():
        raise ValueError(said("archive-tensor-repeats", list(shape), numel, count))


def storage_of(pid: Any) -> Storage:
    """What the pickle of an archive leaves to its other files. Raises PickleError."""
    if isinstance(pid, tuple) and len(pid) >= 5 and pid[0] in ("storage", b"storage") and isinstance(pid[1], Name):
        kind = _UNTYPED if pid[1].name in ("UntypedStorage", "TypedStorage") else STORAGES.get(pid[1].name)
        key, count = str(pid[2]) if isinstance(pid[2], (str, int, bytes)) else "", pid[4]
        # What lies in another storage (torch before 0.4) has a sixth field that says so.
        if kind and type(count) is int and 0 <= count < _LARGEST and (len(pid) < 6 or pid[5] is None):
            return Storage(kind, key, count)
    raise PickleError(said("archive-storage-undescribed"))


def _tensor_v2(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Described:
    if not isinstance(storage, Storage) or storage.kind is _UNTYPED:
        raise PickleError(said("archive-tensor-without-storage"))
    return Described(storage, storage.kind, offset, shape, strides)


def _tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> Described:
    kind = ELEMENT_TYPES.get(dtype.name) if isinstance(dtype, Name) else None
    if kind is None or not isinstance(storage, Storage):
        raise PickleError(said("archive-type-unknown"))
    return Described(storage, kind, offset, shape, strides)


def _first(value: Any = None, *_: Any) -> Any:
    return value


#: What makes a tensor, by the name that a pickle calls it.
TENSORS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor_v2,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch_npu.utils.storage._rebuild_npu_tensor": _tensor_v2,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
}


class Contents(Protocol):
    """The entries of an archive by their names."""

    @property
    def names(self) -> Collection[str]: ...

    def size(self, name: str) -> int:
        """Bytes of the content as the directory says."""

    def small(self, name: str, most: int) -> bytes:
        """The content, of at most ``most`` bytes and with the right checksum."""

    def values(self, name: str, nbytes: int) -> bytes | memoryview:
        """The first bytes of the content."""


class PlainContents:
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
            raise ValueError(said("archive-entry-size", name[:80], entry.size))
        content = bytes(content_of(self._whole, entry))
        if zlib.crc32(content) != entry.crc:
            raise zipfile.BadZipFile(f"bad CRC-32 for file {name!r}")
        return content

    def values(self, name: str, nbytes: int) -> memoryview:
        return content_of(self._whole, self._entries[name])[:nbytes]


class PackedContents:
    """Those of any other archive."""

    def __init__(self, archive: Archive) -> None:
        self.names = archive.entries.keys()
        self._archive = archive

    def size(self, name: str) -> int:
        return self._archive.entries[name].file_size

    def small(self, name: str, most: int) -> bytes:
        return self._archive.read(self._archive.entries[name], most)

    def values(self, name: str, nbytes: int) -> bytes | memoryview:
        entry = self._archive.entries[name]
        if entry.compress_type == zipfile.ZIP_STORED:
            return bytes_at(self._archive.file, self._archive.start_of(entry), nbytes)
        self._archive.check_ratio()
        return self._archive.read(entry, nbytes)


class Description(NamedTuple):
    """Where the files of an archive lie (``archive/``), the byte order of its values, and its pickle."""

    root: str
    is_big_endian: bool
    pickle: bytes


def description(path: object, contents: Contents, most: int) -> Description:
    """The pickle of an archive, of at most ``most`` bytes. Raises InvalidInputError for what torch.save writes not."""
    described = [name for name in contents.names if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(described) != 1:
        raise InvalidInputError(said("archive-of-several-pickles", path, len(described)))
    root = described[0][: -len("data.pkl")]
    if root + "constants.pkl" in contents.names:
        raise InvalidInputError(said("archive-is-torchscript", path))
    order = "little"
    if root + "byteorder" in contents.names:
        order = contents.small(root + "byteorder", _MOST_ORDER_BYTES).decode("ascii", "replace")
    if order not in ("little", "big"):
        raise InvalidInputError(said("archive-byte-order", path, order))
    return Description(root, order == "big", contents.small(described[0], most))


def bytes_at(file: IO[bytes], start: int, length: int) -> bytes | memoryview:
    """Bytes of an open file, mapped if they are many. Raises ValueError where it ends before."""
    if os.fstat(file.fileno()).st_size < start + length:
        raise ValueError(said("archive-values-cut-off"))
    if length < MAPPED_FROM_BYTES:
        file.seek(start)
        data = file.read(length)
        if len(data) != length:
            raise ValueError(said("archive-values-cut-off"))
        return data
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[start : start + length]
