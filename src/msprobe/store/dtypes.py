"""The element types of tensors: how large one is, how torch names it in its files, and how numpy reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ElementType:
    """One element type. ``name`` is the framework's own without its prefix: ``float32``, ``bfloat16``.

    ``storage`` is the class that torch's files name; empty for the younger types, which they name by
    themselves. ``stored`` is the numpy type of the bytes as they are, ``meant`` the one numpy can calculate
    with: where the two differ, values are converted when read.
    """

    name: str
    bytes: int
    storage: str
    stored: str
    meant: str


_TABLE = (
    ElementType("float32", 4, "FloatStorage", "f4", "f4"),
    ElementType("float64", 8, "DoubleStorage", "f8", "f8"),
    ElementType("float16", 2, "HalfStorage", "f2", "f2"),
    ElementType("bfloat16", 2, "BFloat16Storage", "u2", "f4"),
    ElementType("int64", 8, "LongStorage", "i8", "i8"),
    ElementType("int32", 4, "IntStorage", "i4", "i4"),
    ElementType("int16", 2, "ShortStorage", "i2", "i2"),
    ElementType("int8", 1, "CharStorage", "i1", "i1"),
    ElementType("uint8", 1, "ByteStorage", "u1", "u1"),
    ElementType("bool", 1, "BoolStorage", "?", "?"),
    ElementType("complex64", 8, "ComplexFloatStorage", "c8", "c8"),
    ElementType("complex128", 16, "ComplexDoubleStorage", "c16", "c16"),
    ElementType("uint16", 2, "", "u2", "u2"),
    ElementType("uint32", 4, "", "u4", "u4"),
    ElementType("uint64", 8, "", "u8", "u8"),
    ElementType("complex32", 4, "", "u4", "c8"),
    ElementType("float8_e4m3fn", 1, "", "u1", "f4"),
    ElementType("float8_e5m2", 1, "", "u1", "f4"),
    ElementType("float8_e4m3fnuz", 1, "", "u1", "f4"),
    ElementType("float8_e5m2fnuz", 1, "", "u1", "f4"),
    ElementType("float8_e8m0fnu", 1, "", "u1", "f4"),
    # Two elements in one byte, and bytes without a meaning of their own: read as they are.
    ElementType("float4_e2m1fn_x2", 1, "", "u1", "u1"),
    ElementType("bits8", 1, "", "u1", "u1"),
    ElementType("bits16", 2, "", "u2", "u2"),
    ElementType("bits1x8", 1, "", "u1", "u1"),
    ElementType("bits2x4", 1, "", "u1", "u1"),
    ElementType("bits4x2", 1, "", "u1", "u1"),
)

ELEMENT_TYPES: dict[str, ElementType] = {kind.name: kind for kind in _TABLE}
STORAGES: dict[str, ElementType] = {kind.storage: kind for kind in _TABLE if kind.storage}

# Exponent bits, mantissa bits, bias; what the codes with all exponent bits set mean; whether there is a minus
# zero.
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7),
    "float8_e5m2": (5, 2, 15),
    "float8_e4m3fnuz": (4, 3, 8),
    "float8_e5m2fnuz": (5, 2, 16),
}
_float8_tables: dict[str, Array] = {}


def to_meant(values: Array, kind: ElementType) -> Array:
    """The values of an array of ``kind.stored`` as ``kind.meant``; exact, and the same array where nothing
    changes.
    """
    if kind.stored == kind.meant:
        return values
    if kind.name == "bfloat16":
        wide: Array = values.astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32)
    if kind.name == "complex32":
        halves = np.ascontiguousarray(values).view(np.float16).astype(np.float32)
        return halves.view(np.complex64).reshape(values.shape)
    return _float8_table(kind.name)[values]


def _float8_table(name: str) -> Array:
    table = _float8_tables.get(name)
    if table is None:
        decode = _decode_scale if name == "float8_e8m0fnu" else _decode_float8
        table = np.array([decode(code, name) for code in range(256)], dtype=np.float32)
        _float8_tables[name] = table
    return table


def _decode_scale(code: int, name: str) -> float:
    """E8M0: an exponent and nothing else (OCP Microscaling Formats 1.0, section 5.4.1)."""
    return float("nan") if code == 255 else 2.0 ** (code - 127)


def _decode_float8(code: int, name: str) -> float:
    """OCP 8-bit floats; ``fnuz`` ones have no infinity and no minus zero: its code is their only NaN."""
    exponent_bits, mantissa_bits, bias = _FLOAT8[name]
    sign = -1.0 if code & 0x80 else 1.0
    exponent = (code & 0x7F) >> mantissa_bits
    mantissa = code & ((1 << mantissa_bits) - 1)
    full = (1 << exponent_bits) - 1
    if name.endswith("fnuz"):
        if code == 0x80:
            return float("nan")
    elif name == "float8_e5m2" and exponent == full:
        return sign * float("inf") if mantissa == 0 else float("nan")
    elif name == "float8_e4m3fn" and code & 0x7F == 0x7F:
        return float("nan")
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float(sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias))
