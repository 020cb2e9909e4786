"""Descriptions whose numbers are on their way from a device, chunk by chunk, in the order in which they were made.

A chunk is sent for as soon as it is full, while the program goes on. What waits is bounded: of more than
``MOST_CHUNKS`` chunks, or ``MOST_BYTES`` bytes of tensors, the program waits for the first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msprobe.capture.torch.device_chunks import Chunk
from msprobe.capture.torch.device_statistics import DeviceStatistics, LateComparison, LateNumbers
from msprobe.capture.torch.remembered import Remembered
from msprobe.capture.torch.statistics_framework import OwnWork
from msprobe.capture.torch.statistics_info import Content, LateInfo

# So many descriptions, or bytes of tensors for their digests, are a chunk.
CHUNK = 64
CHUNK_BYTES = 64 << 20
MOST_CHUNKS = 64
MOST_BYTES = 1 << 30

_WRITTEN_UNSEEN = "written by code that torch does not know of, after its statistics had been taken"


class _Sent(NamedTuple):
    """A chunk on its way, and what waits for it."""

    chunk: Chunk
    bytes: int
    infos: list[LateInfo]
    compared: list[tuple[LateComparison, Remembered]]


class LateDescriptions:
    """The descriptions that are ``late``.

    ``content_of``: what is said of a tensor whose numbers are here. ``absent``: the same where there are none.
    ``made``: how many descriptions were late; ``known``: how many of them, in their order, are not any more.
    """

    def __init__(
        self, device: DeviceStatistics, content_of: Callable[[LateInfo], Content], absent: Callable[[], Content]
    ) -> None:
        self.made = self.known = 0
        self._device = device
        self._content_of = content_of
        self._absent = absent
        self._infos: list[LateInfo] = []
        # What is compared, and what was known of the storage.
        self._compared: list[tuple[LateComparison, Remembered]] = []
        self._sent: deque[_Sent] = deque()
        self._bytes_sent = 0
        self._lock = threading.RLock()

    def add(self, info: LateInfo) -> LateInfo:
        """A description that is late; ``info``. May wait for the device if too much is on its way."""
        with self._lock:
            self._infos.append(info)
            self.made += 1
            if len(self._infos) >= CHUNK or self._device.bytes_to_copy >= CHUNK_BYTES:
                self._send()
                while self._sent and (len(self._sent) > MOST_CHUNKS or self._bytes_sent > MOST_BYTES):
                    self._receive_first()
        return info

    def compare(self, comparison: LateComparison, known: Remembered) -> None:
        """Expose ``known`` if ``comparison`` finds other elements."""
        with self._lock:
            self._compared.append((comparison, known))

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
            if self._infos or self._compared:
                self._send()
            while self._sent:
                try:
                    self._receive_first()
                except Exception as error:
                    problem = problem or error
        if problem is not None:
            raise problem

    def _send(self) -> None:
        infos, self._infos = self._infos, []
        compared, self._compared = self._compared, []
        size = self._device.bytes_to_copy
        with OwnWork():
            self._sent.append(_Sent(self._device.send(), size, infos, compared))
        self._bytes_sent += size

    def _receive_first(self) -> None:
        sent = self._sent.popleft()
        self._bytes_sent -= sent.bytes
        try:
            with OwnWork():
                sent.chunk.receive()
            for info in sent.infos:
                self._fill(info)
        except Exception as error:
            for info in sent.infos:
                if info.late:
                    info.fill(self._absent(), f"not read back ({reason(error)})")
            for comparison, _ in sent.compared:
                comparison.changed = True
            raise
        finally:
            self.known += len(sent.infos)
            for comparison, known in sent.compared:
                if comparison.changed:
                    known.expose()

    def _fill(self, info: LateInfo) -> None:
        if info.written is not None and not info.written.changed:
            info.leave_unset(self._absent())
        elif info.comparison is not None and info.comparison.changed:
            info.fill(self._absent(), _WRITTEN_UNSEEN)
        elif _is_lost(info):
            info.fill(self._absent(), "not read back")
        else:
            info.fill(self._content_of(info))


def _is_lost(info: LateInfo) -> bool:
    """Its numbers, or bytes, were those of an earlier description, which an error of the device concerns."""
    numbers, copied = info.numbers, info.copied
    return (isinstance(numbers, LateNumbers) and not numbers.filled) or (copied is not None and copied.host is not None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device says that it has no memory; some raise a plain RuntimeError."""
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def reason(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"
