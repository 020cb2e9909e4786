"""The files in which Ascend devices dump the inputs and outputs of a kernel.

Layout, little endian: the length of the header (8 bytes), the header (a protobuf message ``DumpData``, of the public
schema of the vendor's runtime), then the bytes of all inputs, outputs, buffers and work spaces. In older files the
message is the whole file and holds the bytes. Files of strangers are data: lengths are checked against the file before
anything is read, and values are mapped, not read.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.opening import open_regular
from msprobe.foreign.protobuf import WireError, fields, numbers
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file
from msprobe.store.kernel_files.device_formats import FORMATS
from msprobe.store.kernel_files.element_types import TYPES, DeviceType, unpacked

Array = npt.NDArray[Any]
Role = Literal["input", "output", "l1buffer", "space"]

_LENGTH_BYTES = 8
_MOST_FILE_BYTES = 1 << 44
_MOST_HEADER_BYTES = 1 << 26
_MOST_TENSORS = 10_000
_MOST_DIMENSIONS = 32
_MOST_TEXT = 4096
_SMALL_DEVICE = b"ZZZZ"
_ROLES: dict[int, Role] = {4: "input", 3: "output", 5: "l1buffer", 8: "space"}
_ORDER: tuple[Role, ...] = ("input", "output", "l1buffer", "space")


@dataclass
class KernelTensor:
    """One tensor, buffer or work space of a kernel. ``data`` are its bytes, a view of the file."""

    role: Role
    index: int = 0
    type_code: int = 0
    format_code: int = 2
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] = ()
    size: int = 0
    data: memoryview = field(default_factory=lambda: memoryview(b""))

    @property
    def kind(self) -> DeviceType:
        """Its element type; bytes as they are for codes that are not known."""
        return TYPES.get(self.type_code, DeviceType(f"type {self.type_code}", "u1", raw=True))

    @property
    def format(self) -> str:
        """The name of its format."""
        return FORMATS.get(self.format_code, f"format {self.format_code}")

    def stored(self) -> Array:
        """The values as they lie in memory, in the device's shape; what pads the end is cut. Raises InvalidInputError
        where there are less than the shape says.
        """
        kind = self.kind
        if kind.raw:
            return np.frombuffer(self.data, kind.stored)
        itemsize = np.dtype(kind.stored).itemsize
        shape = self.shape
        if not shape and len(self.data) != itemsize:
            # Neither a scalar nor a shape.
            whole = len(self.data) // itemsize * itemsize
            flat = np.frombuffer(self.data[:whole], kind.stored)
            return unpacked(flat, kind, (whole * 8 // kind.bits,)) if kind.bits else flat
        wanted = kind.bytes_of(shape)
        if wanted > len(self.data):
            raise InvalidInputError(
                said("acl-dump-size-wrong", self.role, self.index, len(self.data), kind.name, list(shape), wanted)
            )
        raw = np.frombuffer(self.data[:wanted], kind.stored)
        return unpacked(raw, kind, shape) if kind.bits else raw.reshape(shape)


@dataclass(frozen=True)
class KernelFile:
    """What a dump file holds."""

    path: Path
    op_name: str
    version: str
    time: int
    tensors: tuple[KernelTensor, ...]
    notes: tuple[str, ...]


def read_acl_dump(path: StrPath) -> KernelFile:
    """Read the description of a dump file; values are read when they are asked for.

    Raises PathError if the file cannot be read, InvalidInputError if it is no dump file.
    """
    file = check_readable_file(path, max_size=_MOST_FILE_BYTES, follow_symlink=True)
    data = mapped(file)
    try:
        return _read(file, data)
    except WireError as problem:
        raise InvalidInputError(said("acl-dump-broken", file, problem)) from problem


def mapped(file: Path) -> memoryview:
    """The bytes of a file, as a view. Raises PathError, or InvalidInputError if it is empty."""
    try:
        with open_regular(file) as opened:
            if os.fstat(opened.fileno()).st_size == 0:
                raise InvalidInputError(said("file-is-empty", file))
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as problem:
        raise PathError(said("acl-dump-unreadable", file, reason_of(problem))) from problem


def _read(file: Path, data: memoryview) -> KernelFile:
    head = bytes(data[:_LENGTH_BYTES])
    if head[:4] == _SMALL_DEVICE:
        raise InvalidInputError(said("acl-dump-of-small-device", file))
    if _is_text(data):
        raise InvalidInputError(said("acl-dump-of-statistics", file))
    length = int.from_bytes(head, "little")
    if len(data) > _LENGTH_BYTES and 0 < length <= min(len(data) - _LENGTH_BYTES, _MOST_HEADER_BYTES):
        message = _message(file, data[_LENGTH_BYTES : _LENGTH_BYTES + length])
        return _with_data(message, data[_LENGTH_BYTES + length :])
    try:
        whole = _message(file, data)
        if any(len(tensor.data) for tensor in whole.tensors):
            return whole
    except WireError:
        pass
    raise WireError(said("acl-header-length", length, len(data)))


def _is_text(data: memoryview) -> bool:
    start = bytes(data[:64])
    return all(32 <= byte < 127 or byte in b"\r\n\t" for byte in start)


def _message(file: Path, data: memoryview) -> KernelFile:
    """``DumpData``."""
    texts = {1: "", 6: ""}
    time = 0
    tensors: list[KernelTensor] = []
    for number, value in fields(data):
        if number in texts and isinstance(value, memoryview):
            texts[number] = bytes(value[:_MOST_TEXT]).decode("utf-8", "replace")
        elif number == 2 and isinstance(value, int):
            time = value
        elif number in _ROLES and isinstance(value, memoryview):
            if len(tensors) >= _MOST_TENSORS:
                raise WireError(said("acl-too-many-tensors", _MOST_TENSORS))
            tensors.append(_tensor(value, _ROLES[number]))
    ordered: list[KernelTensor] = []
    for role in _ORDER:
        for index, tensor in enumerate(tensor for tensor in tensors if tensor.role == role):
            tensor.index = index
            ordered.append(tensor)
    return KernelFile(file, texts[6], texts[1], time, tuple(ordered), ())


def _tensor(data: memoryview, role: Role) -> KernelTensor:
    """``OpInput``, ``OpOutput``, ``OpBuffer`` or ``Workspace``."""
    tensor = KernelTensor(role)
    is_tensor = role in ("input", "output")
    place_of_data = (5 if role == "output" else 4) if is_tensor else 2
    place_of_size = (6 if role == "output" else 5) if is_tensor else 3
    place_of_original = 7 if role == "output" else 6
    for number, value in fields(data):
        if isinstance(value, memoryview):
            if number == place_of_data:
                tensor.data = value
            elif is_tensor and number == 3:
                tensor.shape = _dimensions(value)
            elif is_tensor and number == place_of_original:
                tensor.original_shape = _dimensions(value)
        elif number == place_of_size:
            tensor.size = value
        elif is_tensor and number == 1:
            tensor.type_code = value
        elif is_tensor and number == 2:
            tensor.format_code = value
    return tensor


def _dimensions(data: memoryview) -> tuple[int, ...]:
    dimensions = numbers(data, slice(0, len(data)), _MOST_DIMENSIONS)
    if prod(max(size, 1) for size in dimensions) > _MOST_FILE_BYTES * 8:
        raise WireError(said("acl-tensor-too-large", dimensions))
    return tuple(dimensions)


def _with_data(file: KernelFile, data: memoryview) -> KernelFile:
    """Give each tensor its bytes, which follow one another behind the header."""
    total = sum(tensor.size for tensor in file.tensors)
    if total > len(data):
        raise WireError(said("acl-tensors-beyond-file", total, len(data)))
    position = 0
    for tensor in file.tensors:
        tensor.data = data[position : position + tensor.size]
        position += tensor.size
    left = len(data) - position
    notes = (said("acl-bytes-left", left),) if left else ()
    return KernelFile(file.path, file.op_name, file.version, file.time, file.tensors, notes)
