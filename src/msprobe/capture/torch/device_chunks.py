"""Chunks of what is computed on a device for descriptions, on their way to the host while the program goes on.

A chunk is copied behind the program's work, on a stream of our own, into pinned memory; an event says when it is here.
So nothing waits. Where a device has no streams and events, a chunk is copied when it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from msprobe import log


class Waiting(Protocol):
    """What is made of results of a device."""

    def receive(self, here: dict[int, list[Any]]) -> None:
        """The results are on the host: those of each list by its id."""


class Copied(Protocol):
    """Elements of a tensor that are on the host, to be hashed."""

    def hash(self) -> None:
        """Make the digests, and let go of the elements."""


class SideStreams:
    """A stream of our own for each device that has streams and events."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}

    def of(self, device: torch.device) -> Any:
        """The stream; None where there is none."""
        if device not in self._streams:
            self._streams[device] = None
            module: Any = getattr(torch, device.type, None)
            if all(hasattr(module, name) for name in ("Stream", "Event", "stream", "current_stream")):
                with contextlib.suppress(Exception):
                    self._streams[device] = module.Stream(device=device)
        return self._streams[device]


class Chunk:
    """Results and copies of some descriptions.

    ``waiting``: whoever waits for results. ``copies``, ``bytes``: the tensors on their way for digests, and their size.
    """

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.copies: list[Copied] = []
        self.bytes = 0
        self._results: dict[tuple[torch.device, torch.dtype, torch.Size], list[torch.Tensor]] = {}
        self._streams: dict[torch.device, set[Any]] = {}
        # On the host, or (without streams) still on the device: the results of each list, by its id.
        self._sent: dict[int, torch.Tensor] = {}
        self._events: list[Any] = []
        self._asks = False
        self._error: Exception | None = None

    # ---- while it is filled

    def note_stream(self, device: torch.device) -> None:
        """Something is launched now: results may be made on several streams."""
        module = getattr(torch, device.type, None)
        current = getattr(module, "current_stream", None)
        if device.type != "cpu":
            streams = self._streams.setdefault(device, set())
            if current is not None:
                streams.add(current(device))

    def place(self, result: torch.Tensor) -> tuple[list[torch.Tensor], int]:
        """Keep a result; where it is: a list, and the index in it."""
        results = self._results.setdefault((result.device, result.dtype, result.shape), [])
        results.append(result)
        return results, len(results) - 1

    # ---- on its way; inside statistics_framework.OwnWork

    def send(self, sides: SideStreams) -> None:
        """Start to copy everything to the host. Never raises: what fails shows in :meth:`receive`."""
        try:
            for device in {device for device, _, _ in self._results} | set(self._streams):
                self._send_from(device, sides)
        except Exception as error:
            self._error = error

    def _send_from(self, device: torch.device, sides: SideStreams) -> None:
        side = None if device.type == "cpu" else sides.of(device)
        if side is None:
            self._asks |= device.type != "cpu"
            for (place, _, _), results in self._results.items():
                if place == device:
                    self._sent[id(results)] = torch.stack(results)
            return
        module = getattr(torch, device.type)
        with module.stream(side):
            for stream in self._streams.get(device, ()):
                side.wait_stream(stream)
            for (place, dtype, shape), results in self._results.items():
                if place == device:
                    host = host_memory((len(results), *shape), dtype, device)
                    host.copy_(torch.stack(results), non_blocking=True)
                    self._sent[id(results)] = host
            event = module.Event()
            event.record(side)
        self._events.append(event)

    def is_here(self) -> bool:
        """Whether :meth:`receive` does not wait; unknown, so False, while the program captures a graph: to ask for an
        event may break the capture.
        """
        try:
            if any(is_capturing(device) for device in self._streams):
                return False
            return self._error is not None or (not self._asks and all(event.query() for event in self._events))
        except Exception as error:
            # An error of an earlier kernel shows here.
            self._error = error
            return True

    def receive(self) -> None:
        """Wait until everything is here, and hand it to those who wait for it. Raises what the device raises, and
        lets go of everything in any case.
        """
        try:
            if self._error is not None:
                raise self._error
            if self._asks:
                for device in self._streams:
                    getattr(getattr(torch, device.type, None), "synchronize", lambda: None)()
            for event in self._events:
                if not event.query():
                    event.synchronize()
            here = {key: results.cpu().tolist() for key, results in self._sent.items()}
            for one in self.waiting:
                one.receive(here)
            for copied in self.copies:
                copied.hash()
        finally:
            self.waiting, self.copies, self.bytes = [], [], 0
            self._results, self._sent, self._streams, self._events = {}, {}, {}, []


def is_capturing(device: torch.device) -> bool:
    """Whether the program captures what is launched on ``device`` now into a graph (as ``torch.cuda.graph`` does)."""
    asked = getattr(getattr(torch, device.type, None), "is_current_stream_capturing", None)
    return asked is not None and bool(asked())


def host_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory of the host to which ``device`` copies without making the host wait, if it knows such memory."""
    if device.type not in _without_pinned:
        with contextlib.suppress(Exception):
            return torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=True)
        _without_pinned.add(device.type)
        log.debug(f"No pinned memory for {device.type}: copies to the host wait for it.")
    return torch.empty(tuple(shape), dtype=dtype, device="cpu")


_without_pinned = {"mps"}
