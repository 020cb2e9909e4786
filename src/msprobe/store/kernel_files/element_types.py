"""The element types of ACL dump files, by their codes, and what numpy makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.store.dtypes import ELEMENT_TYPES, to_meant

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DeviceType:
    """One element type. ``stored`` is the numpy type of its bytes; ``bits`` the size of elements that share a byte;
    ``torch`` the name in torch, with which a ``.pt`` file keeps the bytes as they are, empty where it has none.
    ``raw``: without a shape of elements that numpy knows, so that the bytes are given as they are.
    """

    name: str
    stored: str
    torch: str = ""
    bits: int = 0
    raw: bool = False

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """How many bytes a tensor takes."""
        count = prod(shape)
        return (count * self.bits + 7) // 8 if self.bits else count * np.dtype(self.stored).itemsize

    def meant(self, values: Array) -> Array:
        """The values of an array of ``stored`` in a type that numpy can calculate with; the same where it can."""
        decode = _DECODERS.get(self.name)
        if decode is not None:
            return decode(values)
        kind = ELEMENT_TYPES.get(self.torch)
        return to_meant(values, kind) if kind is not None else values


def unpacked(raw: Array, kind: DeviceType, shape: tuple[int, ...]) -> Array:
    """Elements of less than a byte, the lowest bits first (by convention), as one byte each."""
    values: Array
    bits = np.unpackbits(raw, bitorder="little")[: prod(shape) * kind.bits].reshape(-1, kind.bits)
    values = (bits << np.arange(kind.bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    if kind.name.startswith("int"):
        signed: Array = values.astype(np.int8)
        signed[values >= 1 << (kind.bits - 1)] -= 1 << kind.bits
        return signed.reshape(shape)
    return values.reshape(shape)


def _hifloat8(code: int) -> float:
    """HiFloat8: a sign, a prefix that says how many bits the exponent has, and what is left for the mantissa.

    Source: Luo et al., Ascend HiFloat8 Format for Deep Learning, 2024 (arXiv 2409.16626), section 2.
    """
    if code == 0x80:
        return float("nan")
    sign = -1.0 if code & 0x80 else 1.0
    body = code & 0x7F
    if body == 0x6F:
        return sign * float("inf")
    prefixes = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))
    matching = [(length, bits) for prefix, length, bits in prefixes if body >> (7 - length) == prefix]
    if not matching:
        return float(sign * 2.0 ** ((body & 7) - 23)) if body & 7 else sign * 0.0
    length, exponent_bits = matching[0]
    mantissa_bits = 7 - length - exponent_bits
    mantissa = (body & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    field = (body >> mantissa_bits) & ((1 << exponent_bits) - 1)
    exponent = 0
    if exponent_bits:
        size = (1 << (exponent_bits - 1)) | (field & ((1 << (exponent_bits - 1)) - 1))
        exponent = -size if field >> (exponent_bits - 1) else size
    return float(sign * (1 + mantissa) * 2.0**exponent)


_HIFLOAT8 = np.array([_hifloat8(code) for code in range(256)], np.float32)
_DECODERS: dict[str, Callable[[Array], Array]] = {"hifloat8": lambda values: _HIFLOAT8[values]}

TYPES: dict[int, DeviceType] = {
    0: DeviceType("undefined", "i1", raw=True),
    1: DeviceType("float32", "<f4", "float32"),
    2: DeviceType("float16", "<f2", "float16"),
    3: DeviceType("int8", "i1", "int8"),
    4: DeviceType("uint8", "u1", "uint8"),
    5: DeviceType("int16", "<i2", "int16"),
    6: DeviceType("uint16", "<u2", "uint16"),
    7: DeviceType("int32", "<i4", "int32"),
    8: DeviceType("int64", "<i8", "int64"),
    9: DeviceType("uint32", "<u4", "uint32"),
    10: DeviceType("uint64", "<u8", "uint64"),
    11: DeviceType("bool", "?", "bool"),
    12: DeviceType("double", "<f8", "float64"),
    13: DeviceType("string", "u1", raw=True),
    14: DeviceType("dual_sub_int8", "u1", raw=True),
    15: DeviceType("dual_sub_uint8", "u1", raw=True),
    16: DeviceType("complex64", "<c8", "complex64"),
    17: DeviceType("complex128", "<c16", "complex128"),
    18: DeviceType("qint8", "i1", "int8"),
    19: DeviceType("qint16", "<i2", "int16"),
    20: DeviceType("qint32", "<i4", "int32"),
    21: DeviceType("quint8", "u1", "uint8"),
    22: DeviceType("quint16", "<u2", "uint16"),
    23: DeviceType("resource", "<i8", "int64"),
    24: DeviceType("string_ref", "u1", raw=True),
    25: DeviceType("dual", "u1", raw=True),
    26: DeviceType("variant", "u1", raw=True),
    27: DeviceType("bfloat16", "<u2", "bfloat16"),
    28: DeviceType("int4", "u1", bits=4),
    29: DeviceType("uint1", "u1", bits=1),
    30: DeviceType("int2", "u1", bits=2),
    31: DeviceType("uint2", "u1", bits=2),
    32: DeviceType("complex32", "<u4", "complex32"),
    33: DeviceType("hifloat8", "u1"),
    34: DeviceType("float8_e5m2", "u1", "float8_e5m2"),
    35: DeviceType("float8_e4m3fn", "u1", "float8_e4m3fn"),
    **{
        code: DeviceType(name, "u1", raw=True)
        for code, name in enumerate(
            ("float8_e8m0", "float6_e3m2", "float6_e2m3", "float4_e2m1", "float4_e1m2", "hifloat4", "hifloat4_scale"),
            36,
        )
    },
}
