"""Memory that nobody has written yet: what ``empty`` and its like give, until all of it is written.

Which bytes these are is told by the calls that write to views of them. Code that torch does not count writes, too:
so some of the bytes are looked at again before they are called unwritten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

#: Calls whose result is memory as it came, and of a result with parts: which one is, and which others lie in it and
#: have been written.
_RESULTS: dict[str, tuple[int | None, tuple[int, ...]]] = {
    **dict.fromkeys(
        (
            "Torch.empty",
            "Torch.empty_like",
            "Torch.empty_strided",
            "Torch.empty_permuted",
            "Tensor.new_empty",
            "Tensor.new_empty_strided",
            "Tensor.new",
        ),
        (None, ()),
    ),
    # The whole buffer, in which this rank has written its own part only.
    "Ops.fsdp_all_gather_copy_in": (1, (0,)),
}
_MOST_RANGES = 16
_LOOKED_AT = 256

Range = tuple[int, int]


def unwritten_result(key: str, result: Any) -> tuple[torch.Tensor, Sequence[torch.Tensor]] | None:
    """What the call ``key`` gave without having written it, and the parts of it that are written."""
    place = _RESULTS.get(key)
    if place is None:
        return None
    at, parts = place
    if at is None:
        return (result, ()) if isinstance(result, torch.Tensor) else None
    if not isinstance(result, (tuple, list)) or len(result) <= max(at, *parts):
        return None
    whole, written = result[at], [result[i] for i in parts]
    return (whole, written) if all(isinstance(t, torch.Tensor) for t in (whole, *written)) else None


class Unwritten:
    """The bytes of one storage that nobody has written; true at one version, while no other code has run.

    ``ranges``: where they begin and end, counted from the beginning of the storage. ``seen``: what some of them were;
    None as long as there is no memory.
    """

    __slots__ = ("epoch", "ranges", "seen", "version")

    def __init__(
        self, tensor: torch.Tensor, epoch: int, written: Sequence[torch.Tensor] = (), later: bool = False
    ) -> None:
        self.epoch = epoch
        self.version = tensor._version
        self.ranges = [_span(tensor)]
        for part in written:
            self._cut(part)
        self.seen = None if later else self.bytes_of(tensor)

    def holds(self, tensor: torch.Tensor) -> bool:
        """True if some elements of ``tensor``, which lies in this storage, were not written as far as torch knows."""
        begin, end = _span(tensor)
        return tensor._version == self.version and any(begin < last and first < end for first, last in self.ranges)

    def bytes_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Some of the bytes, by way of a tensor that lies in this storage; a copy."""
        size = tensor.element_size()
        last = max((end for _, end in self.ranges), default=0) // size
        # All of the storage up to there; a storage object of Python's would count as a user of it.
        whole = tensor.detach().as_strided((last,), (1,), 0).view(torch.uint8)
        found = []
        for begin, end in self.ranges:
            step = max(1, (end - begin) * len(self.ranges) // _LOOKED_AT)
            found.append(whole[begin:end:step])
        return torch.cat(found) if found else whole[:0].clone()

    def wrote(self, tensor: torch.Tensor) -> bool:
        """A call has written ``tensor``, which lies in this storage. False if nothing is known to be left."""
        self._cut(tensor)
        if not self.ranges or len(self.ranges) > _MOST_RANGES:
            self.ranges = []
            return False
        self.version = tensor._version
        self.seen = self.bytes_of(tensor)
        return True

    def _cut(self, tensor: torch.Tensor) -> None:
        begin, end = _span(tensor)
        if end - begin != tensor.numel() * tensor.element_size():
            # With gaps; which elements are left is not followed.
            self.ranges = []
            return
        left = []
        for first, last in self.ranges:
            left += [(first, min(last, begin)), (max(first, end), last)]
        self.ranges = [(first, last) for first, last in left if first < last]


def _span(tensor: torch.Tensor) -> Range:
    """The bytes from the first to behind the last element."""
    size = tensor.element_size()
    begin = int(tensor.storage_offset()) * size
    if not math.prod(tensor.shape):
        return begin, begin
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * size
