"""Chunks of what is known of tensors on a device, on their way to the host while the program goes on.

Elements are copied behind the program's work on its own stream, results on a stream of ours, into pinned memory; an
event says when a chunk is here. So nothing waits. Where a device has no streams and events, a chunk is asked for when
it is wanted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from msprobe import log
from msprobe.guard import pass_on

# Copies of small tensors share pinned memory of this size, in steps of so many bytes.
ARENA = 1 << 20
_STEP = 64
# Rows of one table.
_ROWS = 64


class Waiting(Protocol):
    """What is made of results of a device."""

    def receive(self, here: dict[int, list[Any]]) -> None:
        """The results are on the host: those of each list, or of each table of rows, by its id."""


class SideStreams:
    """A stream of our own for each device that has streams and events."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}

    def of(self, device: torch.device) -> Any:
        """The stream; None where there is none."""
        if device not in self._streams:
            self._streams[device] = None
            if has_streams(device):
                with contextlib.suppress(Exception):
                    self._streams[device] = getattr(torch, device.type).Stream(device=device)
        return self._streams[device]


def has_streams(device: torch.device) -> bool:
    """Whether the device has streams and events."""
    module: Any = getattr(torch, device.type, None)
    return all(hasattr(module, name) for name in ("Stream", "Event", "stream", "current_stream"))


class DeviceTables:
    """Constants on devices. Each is copied there once, without a wait, and any stream may use it from then on."""

    def __init__(self) -> None:
        self._known: dict[tuple[torch.device, str], tuple[int, torch.Tensor, Any, set[Any]]] = {}
        # The host's memory, and what was too small: a copy or a kernel of a stream may still read it.
        self._kept: list[torch.Tensor] = []

    def of(
        self,
        device: torch.device,
        name: str,
        size: int,
        make: Callable[[], torch.Tensor],
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """The table ``name`` of ``size`` at least. ``make`` gives it on the host; on the device it has ``dtype``.

        RuntimeError while a graph is captured, unless the table was there for :meth:`settle`.
        """
        known = self._known.get((device, name))
        if known is None or known[0] < size:
            self._refuse_in_capture(device, name)
            known = self._known[device, name] = self._put(device, size, make(), dtype)
        _, table, event, streams = known
        if event is not None:
            stream = getattr(torch, device.type).current_stream(device)
            if stream not in streams:
                # It was made on a stream of which this one knows nothing.
                self._refuse_in_capture(device, name)
                stream.wait_event(event)
                streams.add(stream)
        return table

    def _refuse_in_capture(self, device: torch.device, name: str) -> None:
        if is_capturing(device):
            raise RuntimeError(f"no table {name} for a graph")

    def settle(self) -> None:
        """Wait until all tables are there: no stream need wait for them, nor a graph when it is replayed."""
        for key, (size, table, event, streams) in self._known.items():
            if event is not None:
                event.synchronize()
                self._known[key] = size, table, None, streams

    def _put(
        self, device: torch.device, size: int, values: torch.Tensor, dtype: torch.dtype | None
    ) -> tuple[int, torch.Tensor, Any, set[Any]]:
        if device.type == "cpu":
            return size, values if dtype is None else values.to(dtype), None, set()
        host = host_memory(values.shape, values.dtype, device)
        host.copy_(values)
        copied = torch.empty(values.shape, dtype=values.dtype, device=device)
        copied.copy_(host, non_blocking=True)
        table = copied if dtype is None else copied.to(dtype)
        self._kept += [host, table]
        if not has_streams(device):
            return size, table, None, set()
        module = getattr(torch, device.type)
        stream, event = module.current_stream(device), module.Event()
        event.record(stream)
        return size, table, event, {stream}


class _Arena:
    """Pinned memory that many copies share."""

    def __init__(self, device: torch.device) -> None:
        self.memory = host_memory((ARENA,), torch.uint8, device)
        self.used = 0

    def room(self, size: int) -> torch.Tensor | None:
        begin = self.used
        if begin + size > ARENA:
            return None
        self.used += -(-size // _STEP) * _STEP
        return self.memory[begin : begin + size]


class Chunk:
    """Results and copies for some descriptions.

    ``waiting``: whoever waits for them. ``bytes``: the size of the tensors that are copied. ``source``: what is copied,
    which lives until it is. ``error``: why nothing will come.
    """

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.source: Any = None
        self.error: Exception | None = None
        self.bytes = 0
        self._results: dict[tuple[torch.device, torch.dtype, torch.Size], list[torch.Tensor]] = {}
        # Rows that kernels fill in, by the stream on which their memory may be used at once; how many are in use.
        self._tables: dict[tuple[torch.device, Any], list[list[Any]]] = {}
        self._streams: dict[torch.device, set[Any]] = {}
        self._arenas: dict[torch.device, _Arena] = {}
        # On the host, or (without streams) still on the device: the results of each list, by its id.
        self._sent: dict[int, torch.Tensor] = {}
        self._events: list[Any] = []
        self._asks = False

    # ---- while it is filled

    def note_stream(self, device: torch.device) -> Any:
        """Something is launched now: results may be made on several streams. The stream; None if nobody knows it."""
        if device.type == "cpu":
            return None
        streams = self._streams.setdefault(device, set())
        current = getattr(getattr(torch, device.type, None), "current_stream", None)
        if current is None:
            return None
        stream = current(device)
        streams.add(stream)
        return stream

    def place(self, result: torch.Tensor) -> tuple[list[torch.Tensor], int]:
        """Keep a result; where it is: a list, and the index in it."""
        results = self._results.setdefault((result.device, result.dtype, result.shape), [])
        results.append(result)
        return results, len(results) - 1

    def row(self, device: torch.device, width: int) -> tuple[torch.Tensor, tuple[torch.Tensor, int]]:
        """Room for so many doubles that a kernel fills in; and where they are: a table, and the index in it."""
        tables = self._tables.setdefault((device, self.note_stream(device)), [])
        if not tables or tables[-1][1] == _ROWS:
            tables.append([torch.empty((_ROWS, width), dtype=torch.float64, device=device), 0])
        table, used = tables[-1]
        tables[-1][1] = used + 1
        return table[used], (table, used)

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """Start to copy the elements, in row-major order; they are in the result when the chunk is, which lies on the
        host where there is pinned memory, else on the device.
        """
        dtype, device = values.dtype, values.device
        self.note_stream(device)
        if dtype.itemsize == 1:
            values = values.view(torch.uint8)  # small types have few operations, not even a copy
        size = values.numel() * values.element_size()
        self.bytes += size
        if device.type == "cpu" or not has_pinned_memory(device):
            return values.clone(memory_format=torch.contiguous_format).view(dtype)
        host = self._room(device, size).view(values.dtype).view(values.shape)
        host.copy_(values, non_blocking=True)
        return host.view(dtype)

    def _room(self, device: torch.device, size: int) -> torch.Tensor:
        if size > ARENA // 4:
            return host_memory((size,), torch.uint8, device)
        arena = self._arenas.get(device)
        room = None if arena is None else arena.room(size)
        if room is None:
            arena = self._arenas[device] = _Arena(device)
            room = arena.room(size)
            assert room is not None
        return room

    # ---- on its way; inside statistics_framework.OwnWork

    def send(self, sides: SideStreams) -> None:
        """Start to copy everything to the host. Never raises: what fails shows in :meth:`receive`."""
        self._arenas.clear()
        try:
            results = {id(batch): torch.stack(batch) for batch in self._on_host()}
            self._sent.update(results)
            for device in self._streams:
                self._send_from(device, sides)
        except Exception as error:
            pass_on(error)
            self.error = error

    def _on_host(self) -> list[list[torch.Tensor]]:
        return [results for (device, _, _), results in self._results.items() if device.type == "cpu"]

    def _send_from(self, device: torch.device, sides: SideStreams) -> None:
        side = sides.of(device)
        self._asks |= side is None
        module: Any = getattr(torch, device.type, None)
        with contextlib.nullcontext() if side is None else module.stream(side):
            if side is not None:
                for stream in self._streams[device]:
                    side.wait_stream(stream)
            for (place, _, _), results in self._results.items():
                if place == device:
                    self._send_one(id(results), torch.stack(results), side is not None)
            for (place, _), tables in self._tables.items():
                if place == device:
                    for table, used in tables:
                        self._send_one(id(table), table[:used], side is not None)
            if side is not None:
                event = module.Event()
                event.record(side)
                self._events.append(event)

    def copy_all(
        self, device: torch.device, results: dict[int, torch.Tensor], blocks: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], Any, Any]:
        """Start to copy tensors of ``device`` to the host, behind what its current stream does: results by their keys,
        and blocks of copies. Where the latter are when the chunk is here; the stream, and the event behind it all (both
        None where there are none).
        """
        stream = self.note_stream(device)
        with_streams = has_streams(device)
        self._asks |= not with_streams
        for key, result in results.items():
            self._send_one(key, result if with_streams else result.clone(), with_streams)
        if not with_streams:
            return [block.clone() for block in blocks], None, None
        hosts = []
        for block in blocks:
            host = host_memory(block.shape, block.dtype, device)
            host.copy_(block, non_blocking=True)
            hosts.append(host)
        event = getattr(torch, device.type).Event()
        event.record(stream)
        self._events.append(event)
        return hosts, stream, event

    def _send_one(self, key: int, tensor: torch.Tensor, with_streams: bool) -> None:
        if with_streams:
            host = host_memory(tensor.shape, tensor.dtype, tensor.device)
            host.copy_(tensor, non_blocking=True)
            tensor = host
        self._sent[key] = tensor

    def is_here(self) -> bool:
        """Whether :meth:`receive` does not wait; unknown, so False, while the program captures a graph: to ask for an
        event may break the capture.
        """
        try:
            if any(is_capturing(device) for device in self._streams):
                return False
            return self.error is not None or (not self._asks and all(event.query() for event in self._events))
        except Exception as error:
            pass_on(error)
            # An error of an earlier kernel shows here.
            self.error = error
            return True

    def receive(self) -> None:
        """Wait until everything is here, and hand it to those who wait for it. Raises what the device raises, and
        lets go of everything in any case.
        """
        try:
            if self.error is not None:
                raise self.error
            if self._asks:
                for device in self._streams:
                    getattr(getattr(torch, device.type, None), "synchronize", lambda: None)()
            for event in self._events:
                if not event.query():
                    event.synchronize()
            here = {key: results.cpu().tolist() for key, results in self._sent.items()}
            for elements in self.waiting:
                elements.receive(here)
        finally:
            self.waiting, self.source, self.bytes = [], None, 0
            self._results, self._tables, self._sent, self._streams, self._events = {}, {}, {}, {}, []


def is_capturing(device: torch.device) -> bool:
    """Whether the program captures what is launched on ``device`` now into a graph (as ``torch.cuda.graph`` does)."""
    asked = getattr(getattr(torch, device.type, None), "is_current_stream_capturing", None)
    return asked is not None and bool(asked())


def has_pinned_memory(device: torch.device) -> bool:
    """Whether the device copies to some memory of the host without making the host wait."""
    if device.type not in _pinned:
        _pinned[device.type] = False
        with contextlib.suppress(Exception):
            torch.empty(1, dtype=torch.uint8, device="cpu", pin_memory=True)
            _pinned[device.type] = True
        if not _pinned[device.type]:
            log.debug(f"No pinned memory for {device.type}: what comes to the host is asked for when it is wanted.")
    return _pinned[device.type]


def host_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory of the host, pinned where ``device`` has that."""
    if has_pinned_memory(device):
        with contextlib.suppress(Exception):
            return torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=True)
    return torch.empty(tuple(shape), dtype=dtype, device="cpu")


_pinned = {"mps": False}
