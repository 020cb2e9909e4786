"""How the native reductions know the element types of torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from msprobe.capture import native
from msprobe.capture.torch import digest
from msprobe.capture.torch.statistics_framework import OwnWork

# Name, the number that the native reductions know it by, whether every tensor has a digest, values of a one-byte float.
Known = tuple[str, int, bool, bytes | None]


def known_types(wants_digest: Callable[[torch.dtype], bool]) -> dict[torch.dtype, Known]:
    """The types that native reductions take; none without the extension."""
    types: dict[torch.dtype, Known] = {}
    if native.numbers is None:
        return types
    for name, kind in native.KINDS.items():
        dtype = getattr(torch, name, None)
        if isinstance(dtype, torch.dtype):
            types[dtype] = (str(dtype), kind, wants_digest(dtype), None)
    for name in dir(torch):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and digest.is_float8(dtype):
            with OwnWork():
                table = digest.float8_values(dtype).tobytes()
            types[dtype] = (str(dtype), native.KINDS["float8"], wants_digest(dtype), table)
    return types
