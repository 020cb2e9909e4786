"""Descriptions whose numbers are on their way from a device, chunk by chunk, in the order in which they were made.

A chunk is sent for as soon as it is full, while the program goes on. What waits is bounded: of more than
``MOST_CHUNKS`` chunks, or ``MOST_BYTES`` bytes of tensors, the program waits for the first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

from msprobe.capture.torch.devices.device_chunks import Chunk
from msprobe.capture.torch.devices.device_errors import reason
from msprobe.capture.torch.devices.device_statistics import CopiedElements, DeviceStatistics, Measurement
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_info import Content, LateInfo, TensorInfo
from msprobe.guard import pass_on

# So many descriptions, or bytes of tensors that are copied, are a chunk.
CHUNK = 64
CHUNK_BYTES = 64 << 20
MOST_CHUNKS = 64
MOST_BYTES = 1 << 30


class _Sent(NamedTuple):
    """A chunk on its way, and what waits for it: descriptions, and in ``number`` also values that are to be kept."""

    chunk: Chunk
    bytes: int
    infos: list[LateInfo]
    copied: list[CopiedElements]
    number: int


class LateDescriptions:
    """The descriptions that are ``late``.

    ``content_of``: what is said of elements that were measured. ``absent``: the same where there are none.
    ``made``: how many descriptions were late; ``known``: how many of them, in their order, are not any more.
    """

    def __init__(
        self, device: DeviceStatistics, content_of: Callable[[Measurement], Content], absent: Callable[[], Content]
    ) -> None:
        self.made = self.known = 0
        self._device = device
        self._content_of = content_of
        self._absent = absent
        self._infos: list[LateInfo] = []
        self._copied: list[CopiedElements] = []
        self._count = 0
        self._sent: deque[_Sent] = deque()
        self._bytes_sent = 0
        self._lock = threading.RLock()

    def add(self, info: LateInfo) -> LateInfo:
        """A description that is late; ``info``. May wait for the device if too much is on its way."""
        with self._lock:
            self._infos.append(info)
            if isinstance(info.elements, CopiedElements):
                self._copied.append(info.elements)
            self._add_one()
        return info

    def copied(self, info: TensorInfo, values: torch.Tensor) -> CopiedElements:
        """Plain values of a device on their way to the host, also if ``info`` is not made of them. Such a copy counts
        as a late description.
        """
        elements = info.elements if isinstance(info, LateInfo) else None
        if isinstance(elements, CopiedElements) and elements.holds(values):
            return elements
        with self._lock, OwnWork():
            copied = self._device.copy(values, values, None)
            self._copied.append(copied)
            self._add_one()
        return copied

    def _add_one(self) -> None:
        self.made += 1
        self._count += 1
        if self._count >= CHUNK or self._device.bytes_to_copy >= CHUNK_BYTES:
            self._send()
            self._bound()

    def add_sent(self, chunk: Chunk, size: int, infos: list[LateInfo]) -> None:
        """Late descriptions that are on their way already, in a chunk of their own, for which ``size`` bytes of tensors
        are copied. Waits as :meth:`add` does.
        """
        with self._lock:
            if self._count:
                self._send()
            self.made += len(infos)
            self._sent.append(_Sent(chunk, size, infos, [], len(infos)))
            self._bytes_sent += size
            self._bound()

    def _bound(self) -> None:
        while self._sent and (len(self._sent) > MOST_CHUNKS or self._bytes_sent > MOST_BYTES):
            self._receive_first()

    def receive(self) -> None:
        """Fill in the descriptions whose numbers are on the host by now; waits for nothing. Raises what the device
        raises.
        """
        with self._lock:
            while self._sent and self._sent[0].chunk.is_here():
                self._receive_first()

    def flush(self) -> None:
        """Fill in all of them: waits for the device. Raises the first error that it raises; those that it concerns say
        so, and none is late any more.
        """
        problem: Exception | None = None
        with self._lock:
            if self._count:
                self._send()
            while self._sent:
                try:
                    self._receive_first()
                except Exception as error:
                    pass_on(error)
                    problem = problem or error
        if problem is not None:
            raise problem

    def _send(self) -> None:
        size = self._device.bytes_to_copy
        infos, copied, count = self._infos, self._copied, self._count
        self._infos, self._copied, self._count = [], [], 0
        with OwnWork():
            self._sent.append(_Sent(self._device.send(), size, infos, copied, count))
        self._bytes_sent += size

    def _receive_first(self) -> None:
        sent = self._sent.popleft()
        self._bytes_sent -= sent.bytes
        is_lost = True
        try:
            with OwnWork():
                sent.chunk.receive()
            for info in sent.infos:
                self._fill(info)
            is_lost = False
        except Exception as error:
            for info in sent.infos:
                if info.late:
                    info.lose(self._absent(), f"not read back ({reason(error)})")
            raise
        finally:
            self.known += sent.number
            for copied in sent.copied:
                copied.end(is_lost)

    def _fill(self, info: LateInfo) -> None:
        known = info.elements.known
        if info.written is not None and not info.written.changed:
            info.leave_unset(self._absent())
        elif known is None:
            # It was that of an earlier description, which an error of the device concerns.
            info.lose(self._absent(), "not read back")
        else:
            info.fill(self._content_of(known), known.row, known.problem)
