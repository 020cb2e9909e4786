"""Writes ACL dump files by the public schema of the message, for the tests of their reader."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: The example of the specification: Add with float32 [2,3] and float16 [4], and a bfloat16 [4] as its output.
EXAMPLE = bytes.fromhex(
    "53000000000000000a03322e30108080f9c0c1c482031a10081b10021a030a010430083a030a01042212080110021a040a0202032818"
    "32040a0202032210080210021a030a0104280832030a0104320b7472616e735f4164645f31000000000000803f0000004000004040000080"
    "400000a0400000003c004000420000803f00404040"
)
NAME = "Add.trans_Add_1.12.3.1700000000000000"


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def shape(field: int, dims: Sequence[int], is_packed: bool = True) -> bytes:
    if is_packed:
        return block(field, block(1, b"".join(map(varint, dims))) if dims else b"")
    return block(field, b"".join(number(1, one) for one in dims))


@dataclass
class Tensor:
    data: bytes
    code: int = 1
    dims: Sequence[int] = ()
    form: int = 2
    original: Sequence[int] | None = None
    output: bool = False
    size: int | None = None
    is_packed: bool = True

    def message(self, with_data: bool = False) -> bytes:
        size = len(self.data) if self.size is None else self.size
        original = self.dims if self.original is None else self.original
        places = (6, 7, 5) if self.output else (5, 6, 4)
        body = number(1, self.code) + number(2, self.form) + shape(3, self.dims, self.is_packed)
        body += number(places[0], size) + shape(places[1], original) + number(99, 7)  # a field of later versions
        return block(3 if self.output else 4, body + (block(places[2], self.data) if with_data else b""))


def of(array: np.ndarray, code: int, **more: object) -> Tensor:
    return Tensor(array.tobytes(), code, **{"dims": array.shape, **more})  # type: ignore[arg-type]


def write(path: Path, *tensors: Tensor, whole: bool = False, behind: bytes = b"", length: int | None = None) -> Path:
    """Write a file; ``whole``: the older form without a length in front."""
    message = block(1, b"2.0") + number(2, 17) + b"".join(one.message(whole) for one in tensors) + block(6, b"op")
    path.parent.mkdir(parents=True, exist_ok=True)
    if whole:
        path.write_bytes(message)
        return path
    ordered = [one for one in tensors if not one.output] + [one for one in tensors if one.output]
    data = b"".join(one.data for one in ordered)
    path.write_bytes(struct.pack("<Q", len(message) if length is None else length) + message + data + behind)
    return path
