"""How the values of torch that are no tensors are written in a record."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

import torch

from msprobe.capture.records import Describe, Tree
from msprobe.guard import pass_on


def _dtype(value: Any) -> Tree:
    return {"type": "torch.dtype", "value": str(value)}


def _device(value: Any) -> Tree:
    return {"type": "torch.device", "value": str(value)}


def _size(value: Any) -> Tree:
    return {"type": "torch.Size", "value": [int(n) if isinstance(n, int) else str(n) for n in value]}


def _memory_format(value: Any) -> Tree:
    return {"type": "torch.memory_format", "format": str(value).rsplit(".", 1)[-1]}


def _layout(value: Any) -> Tree:
    return {"type": "torch.layout", "value": str(value)}


def _generator(value: Any) -> Tree:
    return {"type": "torch.Generator", "value": str(value.device)}


def group_id(ranks: Sequence[int]) -> str:
    """The id of a process group in a dump: CRC-32 of the text of its rank list, 8 hexadecimal digits."""
    return f"{binascii.crc32(str(list(ranks)).encode()):08x}"


def group_ranks(group: Any) -> list[int]:
    """The global ranks of a process group; empty if this process is not in it."""
    distributed = torch.distributed
    try:
        return [int(r) for r in distributed.get_process_group_ranks(group)]
    except Exception as error:
        pass_on(error)
        return []


def process_group(group: Any) -> Tree:
    """A process group: its global ranks and the id made of them."""
    ranks = group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": group_id(ranks)}


def _symbol(value: Any) -> Tree:
    return {"type": type(value).__name__, "value": str(value)}


def plain_types() -> dict[type, Describe]:
    """Exact type -> how to describe it."""
    types: dict[type, Describe] = {
        torch.dtype: _dtype,
        torch.device: _device,
        torch.Size: _size,
        torch.memory_format: _memory_format,
        torch.layout: _layout,
        torch.Generator: _generator,
        torch.SymInt: _symbol,
        torch.SymFloat: _symbol,
        torch.SymBool: _symbol,
    }
    return types
