"""Where the replays of a graph put what is measured in it, and how that comes to the host.

The slots are allocated while the graph is captured, so they lie in the graph's own memory, and what is measured is part
of the graph: copies of small tensors and of whole numbers, and results of reductions or of a kernel for large ones.
Behind each replay, on its stream, the slots are copied to pinned memory; the next replay of the graph comes behind
that. Nothing waits.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch

from msprobe.capture.torch.devices.device_chunks import ARENA, Chunk
from msprobe.capture.torch.devices.device_statistics import CopiedElements, LateElements
from msprobe.capture.torch.tensors.remembered import Memory
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.guard import pass_on
from msprobe.messages import said

# What the copies in one graph take of the device's memory.
MOST_BYTES = 256 << 20
_STEP = 64


class _Room(NamedTuple):
    """Where a copy lies: the number of a block, the first byte, and how many."""

    block: int
    begin: int
    size: int


class GraphSlots(Chunk):
    """The slots of one graph, on one device. Filled as a chunk is; :meth:`finish` comes before the capture ends.

    ``memory``: what was described in the graph, which nobody knows outside: its numbers are those of each replay.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        """``limit``: of how many storages something is remembered."""
        super().__init__()
        self.device = device
        self.memory = Memory(limit)
        self._blocks: list[torch.Tensor] = []
        self._used: list[int] = []
        # By the identity of a copy, which `waiting` keeps.
        self._rooms: dict[int, _Room] = {}
        # Results and rows, by the key under which what waits for them looks them up.
        self._stacked: dict[int, torch.Tensor] = {}
        # The stream of the last replay, and the event behind what was copied then.
        self._last: tuple[Any, Any] = None, None

    # ---- while the graph is captured; inside of OwnWork

    def note_stream(self, device: torch.device) -> Any:
        """See :class:`Chunk`. Raises RuntimeError for a device that is not the graph's."""
        if device != self.device:
            raise RuntimeError(said("device-not-of-graph", device, self.device))
        return super().note_stream(device)

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """A copy of the elements, in row-major order, in a slot. Raises RuntimeError if there is no more room."""
        dtype, device = values.dtype, values.device
        self.note_stream(device)
        if dtype.itemsize == 1:
            values = values.view(torch.uint8)  # small types have few operations, not even a copy
        size = values.numel() * values.element_size()
        if self.bytes + size > MOST_BYTES:
            raise RuntimeError(said("graph-copies-too-large", MOST_BYTES >> 20))
        self.bytes += size
        room = self._reserve(device, size)
        slot = self._blocks[room.block][room.begin : room.begin + size].view(values.dtype).view(values.shape)
        slot.copy_(values)
        slot = slot.view(dtype)
        self._rooms[id(slot)] = room
        return slot

    def _reserve(self, device: torch.device, size: int) -> _Room:
        last = len(self._blocks) - 1
        if last < 0 or self._used[last] + size > self._blocks[last].numel():
            self._blocks.append(torch.empty(max(size, ARENA), dtype=torch.uint8, device=device))
            self._used.append(0)
            last += 1
        begin = self._used[last]
        self._used[last] = begin + -(-size // _STEP) * _STEP
        return _Room(last, begin, size)

    def finish(self) -> None:
        """Nothing more is measured: gather the results, as the last work in the graph."""
        with OwnWork():
            for results in self._results.values():
                self._stacked[id(results)] = torch.stack(results)
                results.clear()  # the list itself stays: it is the key
            for tables in self._tables.values():
                for table, used in tables:
                    self._stacked[id(table)] = table[:used]
        self.memory.clear()

    # ---- around a replay, on its stream

    def wait_for_copies(self) -> None:
        """Let the current stream run behind the copies of the replay before, where that was on a different one."""
        stream, event = self._last
        if event is not None:
            current = getattr(torch, self.device.type).current_stream(self.device)
            if current != stream:
                current.wait_event(event)

    def send_replay(self, wanted: list[LateElements]) -> tuple[Chunk, list[LateElements]]:
        """Start to copy what a replay has put here: the chunk, and elements of this replay in the place of ``wanted``.
        Never raises: what fails shows when the chunk is received.
        """
        chunk = Chunk()
        chunk.source = self
        hosts: list[torch.Tensor] = []
        with OwnWork():
            try:
                blocks = [block[:used] for block, used in zip(self._blocks, self._used, strict=True)]
                hosts, stream, event = chunk.copy_all(self.device, self._stacked, blocks)
                self._last = stream, event
            except Exception as error:
                pass_on(error)
                chunk.error = error
            replays = [self._for_replay(elements, hosts) for elements in wanted]
        chunk.waiting += replays  # type: ignore[arg-type]
        return chunk, replays

    def _for_replay(self, elements: LateElements, hosts: list[torch.Tensor]) -> LateElements:
        if not isinstance(elements, CopiedElements):
            return copy.copy(elements)
        values = self._seen(elements.values, hosts)
        stored = values if elements.stored is elements.values else self._seen(elements.stored, hosts)
        return CopiedElements(values, stored, elements.measure)

    def _seen(self, slot: torch.Tensor | None, hosts: list[torch.Tensor]) -> torch.Tensor:
        assert slot is not None
        room = self._rooms[id(slot)]
        if room.block >= len(hosts):
            return torch.empty(0, dtype=slot.dtype, device="cpu")  # they could not be copied
        return hosts[room.block][room.begin : room.begin + room.size].view(slot.dtype).view(slot.shape)
