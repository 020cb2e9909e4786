"""Files of ``torch.save``: a zip archive (torch 1.6 or later) or a row of pickles (before), read as data.

The result is the tree that was saved, with :class:`~msprobe.environment.checkpoint.tensors.CheckpointTensor` for
tensors and :class:`~msprobe.store.pickles.Opaque` for objects of other classes.
"""

from __future__ import annotations

import io
import mmap
import os
import zipfile
from typing import IO, Any

import numpy as np

from msprobe.environment.checkpoint.tensors import CheckpointTensor, FileTensor, held
from msprobe.errors import InvalidInputError, PathError, in_one_line, reason_of
from msprobe.foreign.archives import Archive
from msprobe.foreign.budget import factor
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.store.dtypes import Array, ElementType
from msprobe.store.pickles import Opaque, PickleError, read_pickle
from msprobe.store.torch_archive import TENSORS, Described, PackedContents, Storage, description, storage_of

_MAGIC = 0x1950A86A20F9469CFC6C
_MOST_PICKLE_BYTES = 256 << 20


def read_torch(path: str, start: int = 0, length: int | None = None) -> Any:
    """The tree that ``torch.save`` wrote to a file, or to ``length`` bytes of it from ``start``.

    Raises PathError, and InvalidInputError for what is no such file.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            end = size if length is None else start + length
            if not 0 <= start <= end <= size:
                raise InvalidInputError(said("torch-entry-end", path, size, end))
            file.seek(start)
            head = file.read(4)
            if head == b"PK\3\4":
                return _read_archive(path, _Window(file, start, end))
            if not head:
                raise InvalidInputError(said("file-is-empty", path))
            # Not closed by hand: an error on its way may still hold a view of it.
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return _read_row(path, view[:end], start)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, RecursionError) as problem:
        raise InvalidInputError(said("torch-file-unreadable", path, in_one_line(problem))) from problem
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem


class _Window(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        self.file, self.start, self.size, self.place = file, start, end - start, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = 0) -> int:
        place = (0, self.place, self.size)[whence] + offset
        if place < 0:
            raise ValueError(said("place-before-file"))
        self.place = place
        return place

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self.size - self.place))
        self.file.seek(self.start + self.place)
        count_read: int = self.file.readinto(memoryview(buffer)[:count])  # type: ignore[attr-defined]
        self.place += count_read
        return count_read

    def read(self, size: int = -1) -> bytes:
        count = max(0, self.size - self.place)
        count = count if size is None or size < 0 else min(size, count)
        self.file.seek(self.start + self.place)
        content = self.file.read(count)
        self.place += len(content)
        return content


def _read_archive(path: str, window: _Window) -> Any:
    archive = Archive(window, path)  # type: ignore[arg-type]
    entries = archive.entries
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
        raise InvalidInputError(said("torch-entries-compressed", path))
    root, is_big_endian, text = description(path, PackedContents(archive), int(_MOST_PICKLE_BYTES * factor()))
    tree, _ = read_pickle(memoryview(text), REBUILD, storage_of)

    def place(storage: Storage) -> tuple[int, int]:
        entry = entries.get(f"{root}data/{storage.key}")
        if entry is None:
            raise InvalidInputError(said("pt-values-missing", path, f"data/{storage.key[:80]}"))
        begin = archive.start_of(entry)
        if begin + entry.file_size > window.size:
            raise InvalidInputError(said("values-cut-off", path))
        return window.start + begin, entry.file_size

    return _Placer(path, place, is_big_endian).placed(tree)


def _read_row(path: str, data: memoryview, start: int) -> Any:
    """The older form: five pickles, then each storage behind the number of its elements."""
    magic, place = read_pickle(data, {}, None, start)
    if magic != _MAGIC:
        if isinstance(magic, (dict, Opaque, list)):
            return _Placer(path, _nowhere, False).placed(read_pickle(data, REBUILD, storage_of, start)[0])
        raise InvalidInputError(said("no-torch-file", path))
    version, place = read_pickle(data, {}, None, place)
    facts, place = read_pickle(data, {}, None, place)
    big = isinstance(facts, dict) and facts.get("little_endian") is False
    kinds: dict[str, ElementType] = {}

    def known(pid: Any) -> Storage:
        storage = storage_of(pid)
        kinds.setdefault(storage.key, storage.kind)
        return storage

    tree, place = read_pickle(data, REBUILD, known, place)
    keys, place = read_pickle(data, {}, None, place)
    if not isinstance(keys, list) or version != 1001:
        raise InvalidInputError(said("torch-file-version", path))
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        if key not in kinds or place + 8 > len(data):
            raise InvalidInputError(said("values-cut-off", path))
        size = int.from_bytes(data[place : place + 8], "little") * kinds[key].bytes
        if place + 8 + size > len(data):
            raise InvalidInputError(said("values-cut-off", path))
        places[key] = (place + 8, size)
        place += 8 + size
    return _Placer(path, lambda storage: places[storage.key], big).placed(tree)


def _nowhere(storage: Storage) -> tuple[int, int]:
    raise PickleError(said("pickle-refers-outside"))


class _Placer:
    """Puts tensors with a place in the file where the pickle describes them; containers stay the same objects."""

    def __init__(self, path: str, place: Any, big_endian: bool) -> None:
        self.path, self.place, self.big_endian = path, place, big_endian
        self.places: dict[Storage, tuple[int, int]] = {}
        self.done: dict[int, Any] = {}

    def placed(self, tree: Any, depth: int = 0) -> Any:
        if isinstance(tree, Described):
            return self.tensor(tree)
        if not isinstance(tree, (dict, list, tuple, Opaque, _Array)):
            return tree
        if depth > 100:
            raise PickleError(said("pickle-too-deep"))
        if id(tree) in self.done:
            return self.done[id(tree)]
        if isinstance(tree, _Array):
            tensor = self.done[id(tree)] = tree.tensor()
            self.done[-id(tree)] = tree
            return tensor
        if isinstance(tree, tuple):
            placed = tuple(self.placed(item, depth + 1) for item in tree)
            self.done[id(tree)] = placed
            self.done[-id(tree)] = tree  # held, so that no other gets its number
            return placed
        self.done[id(tree)] = tree
        if isinstance(tree, dict):
            for key, value in tree.items():
                tree[key] = self.placed(value, depth + 1)
        elif isinstance(tree, list):
            tree[:] = [self.placed(item, depth + 1) for item in tree]
        else:
            tree.arguments = self.placed(tree.arguments, depth + 1)
            tree.state = self.placed(tree.state, depth + 1)
            self.placed(tree.items, depth + 1)
            self.placed(tree.elements, depth + 1)
        return tree

    def tensor(self, described: Described) -> CheckpointTensor:
        storage = described.storage
        if storage not in self.places:
            self.places[storage] = self.place(storage)
        start, size = self.places[storage]
        if size < storage.count * storage.kind.bytes:
            raise PickleError(said("storage-too-small", storage.key, size))
        if not isinstance(described.shape, tuple) or not isinstance(described.strides, tuple):
            raise PickleError(said("tensor-without-shape"))
        shape, strides = described.shape, described.strides
        step, contiguous = 1, True
        for length, stride in zip(reversed(shape), reversed(strides), strict=False):
            contiguous &= length == 1 or stride == step
            step *= length if type(length) is int else 1
        return FileTensor(
            shape, described.kind.name, self.path, start, described.available, described.offset,
            None if contiguous and len(shape) == len(strides) else strides, self.big_endian,
        )  # fmt: skip


# ---- what pickles of checkpoints call, by its name; all of it makes descriptions ----


def _from_numpy(array: Any, dtype: Any = None, *_: Any) -> Any:
    """A tensor of a device that torch saves by way of numpy."""
    return array


def _set(*arguments: Any) -> set[Any]:
    items = arguments[-1] if arguments else ()
    return {item for item in items if isinstance(item, (str, int))} if isinstance(items, (list, tuple)) else set()


def _dict(*arguments: Any) -> dict[Any, Any]:
    pairs = arguments[-1] if arguments else ()
    if isinstance(pairs, (list, tuple)):
        return {
            pair[0]: pair[1] for pair in pairs if isinstance(pair, (list, tuple)) and isinstance(pair[0], (str, int))
        }
    return {}


def _size(values: Any = (), *_: Any) -> tuple[Any, ...]:
    if not isinstance(values, (tuple, list)):
        raise PickleError(said("size-is-no-list"))
    return tuple(values)


def _octets(text: Any = "", *_: Any) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else b""


class _Type:
    """An element type of numpy, as its pickle describes it."""

    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code, self.order = code[:40] if isinstance(code, str) else "", "<"

    def with_state(self, state: Any) -> None:
        """Its byte order."""
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = state[1]

    def numpy(self) -> np.dtype[Any]:
        """The type; objects are refused."""
        code = self.code.lstrip("<>|=")
        if not code or code[0] not in "biufc?" or not code[1:].isdigit() or len(code) > 4:
            raise PickleError(said("array-type-unknown", self.code))
        return np.dtype(code).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """An array of numpy, as its pickle describes it."""

    def __init__(self, *_: Any) -> None:
        self.values: Array | None = None

    def with_state(self, state: Any) -> None:
        """Shape, type, order and bytes."""
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _Type):
            raise PickleError(said("array-not-as-numpy"))
        _, shape, kind, fortran, data = state
        if isinstance(data, str):
            data = data.encode("latin-1")
        flat = np.frombuffer(data, kind.numpy())
        self.values = flat.reshape(tuple(shape), order="F" if fortran else "C")

    def tensor(self) -> Any:
        """The array as a tensor."""
        return None if self.values is None else held(self.values.astype(self.values.dtype.newbyteorder("=")))


def _scalar(kind: Any = None, data: Any = b"", *_: Any) -> Any:
    if isinstance(data, str):
        data = data.encode("latin-1")
    if not isinstance(kind, _Type) or not isinstance(data, bytes):
        return None
    return np.frombuffer(data, kind.numpy(), 1)[0].item()


REBUILD: dict[str, Any] = {
    **TENSORS,
    "torch._utils._rebuild_device_tensor_from_numpy": _from_numpy,
    "torch.Size": _size,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": _dict,
    "builtins.list": lambda *_: [],
    "builtins.set": _set,
    "__builtin__.set": _set,
    "builtins.bytearray": lambda *_: b"",
    "_codecs.encode": _octets,
    "numpy.dtype": _Type,
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}
