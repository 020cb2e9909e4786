"""Memory that nobody has written yet: what ``empty`` and its like give, until all of it is written.

Which bytes these are is reported by the calls that write to views of them, or to some elements of them. Code that torch
does not count writes, too: so some of the bytes are looked at again before they are called unwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
#: So many ranges are followed one by one; what leaves more of them, or gaps, is followed element by element.
_MOST_RANGES = 16
#: A truth value for each element is kept of so many at most: 16 MiB, next to at least as much that they describe.
_MOST_ELEMENTS = 1 << 24
_LOOKED_AT = 256

Range = tuple[int, int]
#: Writes False to those elements of a tensor of truth values that a call has written.
Write = Callable[[torch.Tensor], Any]

#: Calls that write some elements of their first argument, by which of the others say which.
_PARTIAL: dict[str, Callable[[torch.Tensor, Sequence[Any]], Any]] = {
    "Tensor.__setitem__": lambda mask, args: mask.__setitem__(args[1], False),
    "Tensor.index_copy_": lambda mask, args: mask.index_fill_(args[1], args[2], False),
    "Tensor.index_fill_": lambda mask, args: mask.index_fill_(args[1], args[2], False),
    "Tensor.index_put_": lambda mask, args: mask.__setitem__(tuple(args[1]), False),
    "Tensor.scatter_": lambda mask, args: mask.scatter_(args[1], args[2], False),
    "Tensor.masked_fill_": lambda mask, args: mask.masked_fill_(args[1], False),
}


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


def part_written(key: str, args: Sequence[Any]) -> Write | None:
    """Which elements of its first argument the call ``key`` writes; None if all of them, or if that is not known."""
    write = _PARTIAL.get(key)
    if write is None or len(args) < 2 or any(map(_is_elsewhere, args)):
        return None
    return lambda mask: write(mask, args)


def _is_elsewhere(value: Any) -> bool:
    """True if a tensor is on a device, which would have to be waited for."""
    if isinstance(value, (tuple, list)):
        return any(map(_is_elsewhere, value))
    return isinstance(value, torch.Tensor) and value.device.type != "cpu"


class Unwritten:
    """The bytes of one storage that nobody has written; true at one version, while no other code has run.

    ``ranges``: where they begin and end, counted from the beginning of the storage. ``mask``: which elements these are
    (in C order of the storage, by the type of the tensor that was allocated), once ranges no longer suffice.
    ``seen``: what some of them were; None as long as there is no memory.
    """

    __slots__ = ("_places", "epoch", "mask", "ranges", "seen", "size", "version")

    def __init__(
        self, tensor: torch.Tensor, epoch: int, written: Sequence[torch.Tensor] = (), later: bool = False
    ) -> None:
        self.epoch = epoch
        self.version = tensor._version
        self.size = tensor.element_size()
        self.ranges = [_span(tensor)]
        self.mask: torch.Tensor | None = None
        self._places: torch.Tensor | None = None
        for part in written:
            self._cut(part, None)
        self.seen = None if later else self.bytes_of(tensor)

    def holds(self, tensor: torch.Tensor) -> bool:
        """True if some elements of ``tensor``, which lies in this storage, were not written as far as torch knows."""
        begin, end = _span(tensor)
        if tensor._version != self.version or not any(begin < last and first < end for first, last in self.ranges):
            return False
        if self.mask is None:
            return True
        part = self._part(tensor)
        return part is None or bool(part.any())

    def bytes_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Some of the bytes, by way of a tensor that lies in this storage; a copy."""
        size = tensor.element_size()
        last = max((end for _, end in self.ranges), default=0) // size
        # All of the storage up to there; a storage object of Python's would count as a user of it.
        whole = tensor.detach().as_strided((last,), (1,), 0).view(torch.uint8)
        if self.mask is not None:
            return whole[(self._some_places() * self.size).to(whole.device)]
        parts = []
        for begin, end in self.ranges:
            step = max(1, (end - begin) * len(self.ranges) // _LOOKED_AT)
            parts.append(whole[begin:end:step])
        return torch.cat(parts) if parts else whole[:0].clone()

    def wrote(self, tensor: torch.Tensor, write: Write | None = None) -> bool:
        """A call has written ``tensor``, which lies in this storage, or those of its elements that ``write`` says.
        False if nothing is known to be left.
        """
        self._cut(tensor, write)
        if not self.ranges:
            return False
        self.version = tensor._version
        self.seen = self.bytes_of(tensor)
        return True

    def _cut(self, tensor: torch.Tensor, write: Write | None) -> None:
        begin, end = _span(tensor)
        whole = write is None and end - begin == tensor.numel() * tensor.element_size()
        if self.mask is None and whole:
            left = []
            for first, last in self.ranges:
                left += [(first, min(last, begin)), (max(first, end), last)]
            left = [(first, last) for first, last in left if first < last]
            if len(left) <= _MOST_RANGES:
                self.ranges = left
                return
        part = self._part(tensor) if self._has_mask() else None
        if part is None:
            self.ranges = []  # which elements are left is not followed
            return
        part.fill_(False) if write is None else write(part)
        self._places = None if self._places is None else self._places[self.mask[self._places]]  # type: ignore[index]
        if not len(self._some_places()):
            self.ranges = []

    def _has_mask(self) -> bool:
        """Follow elements from now on. False if there are too many."""
        if self.mask is None:
            count = max((end for _, end in self.ranges), default=0) // self.size
            if count <= _MOST_ELEMENTS:
                self.mask = torch.zeros(count, dtype=torch.bool, device="cpu")
                for begin, end in self.ranges:
                    self.mask[begin // self.size : end // self.size] = True
        return self.mask is not None

    def _part(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The truth values of the elements of ``tensor``; None if they cannot be distinguished from others."""
        if self.mask is None or tensor.element_size() != self.size:
            return None
        if _span(tensor)[1] > len(self.mask) * self.size:
            return None
        return self.mask.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def _some_places(self) -> torch.Tensor:
        """Where some of the elements are that are left; none if none is."""
        if self.mask is not None and (self._places is None or not len(self._places)):
            places = self.mask.nonzero().flatten()
            self._places = places[:: max(1, len(places) // _LOOKED_AT)]
        assert self._places is not None
        return self._places


def _span(tensor: torch.Tensor) -> Range:
    """The bytes from the first to behind the last element."""
    size = tensor.element_size()
    begin = int(tensor.storage_offset()) * size
    if not math.prod(tensor.shape):
        return begin, begin
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * size
