"""A ``.pt`` file of one plain tensor, written without torch.

``torch.save`` takes 50 to 100 µs for each file, most of it to build the same container again. Here it is
built once for each element type and shape: a zip archive without compression that holds the pickled
description of the tensor (``data.pkl``), its bytes (``data/0``, at a multiple of 64 so that they can be
mapped) and some small facts, the same as in the files of torch 2. ``torch.load(weights_only=True)``, also
with ``mmap=True``, gives a contiguous CPU tensor that requires no gradient.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from math import prod

from msprobe.messages import said
from msprobe.store.dtypes import ELEMENT_TYPES, ElementType

_ARCHIVE = b"archive"
_ALIGNMENT = 64
_MOST_TEMPLATES = 4096
_DOS_DATE = 0x21  # 1980-01-01, the first there is: the same tensor gives the same file
_LIMIT_32 = 0xFFFFFFFF

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<4sIQI")
_END = struct.Struct("<4sHHHHIIH")
_EXTRA_64 = struct.Struct("<HHQQ")

_FACTS = (
    (b".format_version", b"1"),
    (b".storage_alignment", b"%d" % _ALIGNMENT),
    (b"byteorder", b"little"),
    (b"version", b"3\n"),
)


@dataclass(frozen=True)
class _Template:
    """All of a file but the bytes of the tensor and, in two places, their checksum."""

    head_before: bytes
    head_after: bytes
    tail_before: bytes
    tail_after: bytes
    nbytes: int


_templates: dict[tuple[str, tuple[int, ...]], _Template] = {}


def pieces(
    dtype_name: str, shape: tuple[int, ...], data: memoryview, crc32: int | None = None
) -> tuple[bytes, memoryview, bytes]:
    """The three parts whose concatenation is the file.

    ``dtype_name`` is torch's name without ``torch.``, ``data`` the elements in C order, little-endian,
    contiguous, ``crc32`` their checksum if it is known already. Raises ValueError if the type is not one that
    torch can load, or if ``data`` has another size than ``shape`` says.
    """
    key = (dtype_name, shape)
    template = _templates.get(key)
    if template is None:
        if len(_templates) >= _MOST_TEMPLATES:
            _templates.clear()
        template = _templates[key] = _build(dtype_name, shape)
    if data.nbytes != template.nbytes:
        raise ValueError(said("pt-bytes-wrong", dtype_name, list(shape), template.nbytes, data.nbytes))
    digest = (zlib.crc32(data) if crc32 is None else crc32).to_bytes(4, "little")
    return (
        template.head_before + digest + template.head_after,
        data,
        template.tail_before + digest + template.tail_after,
    )


def can_hold(dtype_name: str) -> bool:
    """True if tensors of this type can be written to a ``.pt`` file."""
    return dtype_name in ELEMENT_TYPES


def _build(dtype_name: str, shape: tuple[int, ...]) -> _Template:
    kind = ELEMENT_TYPES.get(dtype_name)
    if kind is None:
        raise ValueError(said("pt-type-wrong", dtype_name))
    nbytes = prod(shape) * kind.bytes
    head = bytearray()
    directory = []
    for name, content in ((b"data.pkl", _describe(kind, shape)), *_FACTS):
        entry = _Entry(_ARCHIVE + b"/" + name, len(head), zlib.crc32(content), len(content))
        head += entry.local_header() + content
        directory.append(entry)
    values = _Entry(_ARCHIVE + b"/data/0", len(head), 0, nbytes)
    digest_in_head = len(head) + 14
    head += values.local_header()
    directory.append(values)

    tail = bytearray()
    start = len(head) + nbytes
    for entry in directory:
        digest_in_tail = len(tail) + 16
        tail += entry.central_header()
    size, count = len(tail), len(directory)
    if start > _LIMIT_32:
        tail += _END_64.pack(b"PK\6\6", _END_64.size - 12, 45, 45, 0, 0, count, count, size, start)
        tail += _LOCATOR_64.pack(b"PK\6\7", 0, start + size, 1)
    tail += _END.pack(b"PK\5\6", 0, 0, count, count, size, min(start, _LIMIT_32), 0)
    return _Template(
        bytes(head[:digest_in_head]),
        bytes(head[digest_in_head + 4 :]),
        bytes(tail[:digest_in_tail]),
        bytes(tail[digest_in_tail + 4 :]),
        nbytes,
    )


@dataclass(frozen=True)
class _Entry:
    """One file in the archive."""

    name: bytes
    offset: int
    digest: int
    size: int

    def local_header(self) -> bytes:
        extra = self._sizes_64()
        # The padding is an extra field too, of a kind that readers pass over; its own head takes four bytes.
        start = self.offset + _LOCAL.size + len(self.name) + len(extra) + 4
        padding = -start % _ALIGNMENT
        extra += b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
        header = _LOCAL.pack(
            b"PK\3\4", *self._version_and_method(), self.digest, *self._sizes_32(), len(self.name), len(extra)
        )
        return header + self.name + extra

    def central_header(self) -> bytes:
        extra = self._sizes_64()
        header = _CENTRAL.pack(
            b"PK\1\2",
            0,
            *self._version_and_method(),
            self.digest,
            *self._sizes_32(),
            len(self.name),
            len(extra),
            *(0, 0, 0, 0),  # comment, disk, attributes
            self.offset,
        )
        return header + self.name + extra

    def _version_and_method(self) -> tuple[int, int, int, int, int]:
        return 45 if self._is_large() else 20, 0, 0, 0, _DOS_DATE

    def _is_large(self) -> bool:
        return self.size >= _LIMIT_32

    def _sizes_32(self) -> tuple[int, int]:
        size = _LIMIT_32 if self._is_large() else self.size
        return size, size

    def _sizes_64(self) -> bytes:
        return _EXTRA_64.pack(1, 16, self.size, self.size) if self._is_large() else b""


def _describe(kind: ElementType, shape: tuple[int, ...]) -> bytes:
    """The pickle: a call of torch's function that builds a tensor of storage 0, offset, size and stride."""
    count = prod(shape)
    if kind.storage:
        function, storage = b"_rebuild_tensor_v2", b"torch\n" + kind.storage.encode()
        length, last = count, b""
    else:
        function, storage = b"_rebuild_tensor_v3", b"torch.storage\nUntypedStorage"
        length, last = count * kind.bytes, b"ctorch\n" + kind.name.encode() + b"\n"
    identity = _text("storage") + b"c" + storage + b"\n" + _text("0") + _text("cpu") + _number(length)
    arguments = b"(" + identity + b"tQ" + _number(0) + _numbers(shape) + _numbers(contiguous_strides(shape))
    arguments += b"\x89" + b"ccollections\nOrderedDict\n)R" + last
    return b"\x80\x02ctorch._utils\n" + function + b"\n(" + arguments + b"tR."


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a C-ordered tensor, as torch gives them (an empty dimension counts as one)."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def _numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(_number(value) for value in values) + b"t"


def _number(value: int) -> bytes:
    """A non-negative integer in the shortest pickle form of protocol 2."""
    if value < 1 << 8:
        return b"K" + value.to_bytes(1, "little")
    if value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + len(data).to_bytes(1, "little") + data
