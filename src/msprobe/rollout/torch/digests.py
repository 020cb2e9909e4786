"""Digests of rows: 64 bits for each row of a weight, in a given type. Two weights are equal where all digests are.

What is contiguous in the memory of the processor is read where it lies; nothing of it is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xxhash

_CHUNK = 1 << 24
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = (-0x61C8864680B583EB, -0x40A7B892E31B1A47)


def row_digests(values: Any, kind: Any = None, columns: slice | None = None) -> list[int]:
    """64 bits of each row of a matrix, or one number for a vector, whatever its strides.

    ``kind``: the type that it is cast to, some rows at a time; ``columns``: of each row these alone.
    """
    values = values.detach()
    table = values.reshape(1, -1) if values.dim() < 2 else values.reshape(values.shape[0], -1)
    if columns is not None and values.dim() > 1:
        table = table[:, columns]
    is_plain = table.device.type == "cpu" and table.is_contiguous() and kind in (None, table.dtype)
    step = len(table) if is_plain or not table.numel() else max(1, _CHUNK // max(1, table.shape[1]))
    done: list[int] = []
    for first in range(0, len(table), max(step, 1)):
        block = table[first : first + step]
        block = (block if kind is None else block.to(kind)).to("cpu").contiguous()
        if not block.numel():
            done += [xxhash.xxh3_64_intdigest(b"")] * len(block)
            continue
        raw: Any = block.view(torch.uint8).numpy()
        done += [xxhash.xxh3_64_intdigest(row) for row in np.atleast_2d(raw)]
    return done


def set_digests(values: Any, kind: Any = None) -> list[int]:
    """64 bits of the numbers in each first index of a tensor, in whatever order: kernels of experts pack them."""
    done = []
    for row in values.detach():
        total = 0
        flat = row.reshape(-1)
        for first in range(0, len(flat), _CHUNK):
            block = flat[first : first + _CHUNK]
            block = block if kind is None else block.to(kind)
            bits = block.contiguous().view(_INTEGERS[block.element_size()]).to(torch.int64)
            mixed = (bits + 0x1D8E4E27) * _ODD[0]
            mixed = (mixed ^ (mixed >> 29)) * _ODD[1]
            total += int((mixed ^ (mixed >> 32)).sum())
        done.append(total % (1 << 64))
    return done
