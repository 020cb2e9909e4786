"""Digests of a tensor's bytes in C order: CRC-32 and XOR as the reference writes them, xxh3 of our own.

Only CPU memory is read here, by address; no torch operation runs but the copies of rare types.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
import xxhash

from msprobe.capture import native

Bytes = bytes | memoryview
Digest = Callable[[Bytes], bytes]

# Types that the reference converts to float32 before it takes the CRC-32.
_WIDENED = {"torch.bfloat16"}


def elements(
    address: int, shape: Sequence[int], stride: Sequence[int], itemsize: int, contiguous: bool
) -> Bytes:
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


def float8_values(dtype: torch.dtype) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The float32 value of each of the 256 bytes of a one-byte float type."""
    return np.array(torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).tolist(), np.float32)


def crc32(raw: Bytes) -> bytes:
    """CRC-32, eight hexadecimal digits."""
    return b"%08x" % zlib.crc32(raw)


def xxh3(raw: Bytes) -> bytes:
    """``xxh3:`` and the 64-bit hash, sixteen hexadecimal digits."""
    return b"xxh3:" + xxhash.xxh3_64_hexdigest(raw).encode()
