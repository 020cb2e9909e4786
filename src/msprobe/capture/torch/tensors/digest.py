"""Digests of a tensor's bytes in C order: CRC-32 and XOR as the reference writes them, xxh3 of our own.

Only CPU memory is read here, by address; no torch operation runs but the copies of rare types.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import torch
import xxhash

from msprobe.capture import native

# The wider unsigned types are there since torch 2.3; None equals no type.
UINT16: torch.dtype | None = getattr(torch, "uint16", None)
UINT32: torch.dtype | None = getattr(torch, "uint32", None)
UINT64: torch.dtype | None = getattr(torch, "uint64", None)

Bytes = bytes | memoryview

# Reading an address must not make a lazily copied tensor copy itself.
address_of: Any = getattr(torch.Tensor, "const_data_ptr", torch.Tensor.data_ptr)


def elements(address: int, shape: tuple[int, ...], stride: tuple[int, ...], itemsize: int, contiguous: bool) -> Bytes:
    """The bytes of a strided view in C order; borrowed from the tensor when it is contiguous."""
    if contiguous:
        return native.memory(address, math.prod(shape) * itemsize)
    if native.gather is not None:
        return native.gather(address, shape, stride, itemsize)
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if math.prod(shape) else 0
    block = np.frombuffer(native.memory(address, extent * itemsize), dtype=np.dtype(f"V{itemsize}"))
    steps = [s * itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(block, tuple(shape), steps, writeable=False).tobytes()


def widen_bfloat16(raw: Bytes) -> bytes:
    """bfloat16 elements as float32."""
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).tobytes()


def is_float8(dtype: torch.dtype) -> bool:
    """Whether each byte is a number of its own (the type of two 4-bit floats is not one)."""
    return str(dtype).startswith("torch.float8_")


def float8_values(dtype: torch.dtype) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The float32 value of each of the 256 bytes of a one-byte float type."""
    return np.array(torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).tolist(), np.float32)


def tensor_digest(values: torch.Tensor) -> Bytes:
    """The bytes of a plain CPU tensor in C order; borrowed from it when it is contiguous."""
    size = values.element_size()
    return elements(address_of(values), values.shape, values.stride(), size, values.is_contiguous())


def crc32(raw: Bytes) -> bytes:
    """CRC-32, eight hexadecimal digits."""
    return b"%08x" % zlib.crc32(raw)


def xxh3(raw: Bytes) -> bytes:
    """``xxh3:`` and the 64-bit hash, sixteen hexadecimal digits."""
    return b"xxh3:" + xxhash.xxh3_64_hexdigest(raw).encode()


def xor(raw: Bytes) -> bytes:
    """XOR of all little-endian 64-bit words, the last one filled up with zeros: ``0x`` and sixteen digits."""
    whole = len(raw) // 8 * 8
    words = np.frombuffer(raw[:whole], "<u8")
    result = int(np.bitwise_xor.reduce(words)) if whole else 0
    return b"0x%016x" % (result ^ int.from_bytes(raw[whole:], "little"))


def xor_value(values: torch.Tensor, raw: Bytes) -> bytes:
    """What the reference writes in its XOR mode, as JSON: the value of a 0-dim float, nothing of nothing."""
    if not len(raw):
        return b"null"
    dtype = values.dtype
    if not values.dim() and dtype.is_floating_point and (dtype.itemsize > 1 or is_float8(dtype)):
        return native.encode(float(values.item()), 0)
    return b'"%s"' % xor(raw)


def widen(dtype: torch.dtype, raw: Bytes) -> Bytes:
    """What the reference hashes: bfloat16 and one-byte floats as float32, all others as they are."""
    if dtype == torch.bfloat16:
        return widen_bfloat16(raw)
    if is_float8(dtype):
        table = _FLOAT8.get(dtype)
        if table is None:
            table = _FLOAT8[dtype] = float8_values(dtype)
        return table[np.frombuffer(raw, np.uint8)].tobytes()
    return raw


_FLOAT8: dict[torch.dtype, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
