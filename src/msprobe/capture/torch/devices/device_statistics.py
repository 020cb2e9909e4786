"""What is measured of tensors on an accelerator, without waiting for it.

It begins when the tensor is described, since a later write would change the value, and is known when the chunk to which
it belongs (``device_chunks``) is on the host. Small tensors, those whose values or digests are
wanted, and all that are not real floats are copied, and measured on the host as every tensor of the CPU is. Of large
floats a kernel of the device computes the numbers (``row_kernels``), or the framework's
reductions do (:mod:`msprobe.capture.torch.devices.device_rows`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from typing import Any, NamedTuple

import torch

from msprobe import log
from msprobe.capture.torch.devices import device_rows
from msprobe.capture.torch.devices.device_chunks import Chunk, SideStreams
from msprobe.capture.torch.devices.device_errors import is_out_of_memory, reason
from msprobe.capture.torch.devices.row_kernels import TYPES, RowKernels
from msprobe.capture.torch.tensors.statistics_framework import Numbers, launch_further, round_to
from msprobe.guard import attempt

# Up to so many bytes a copy costs less than reductions, to the device and to the host.
MOST_COPIED = 32 << 10


class Measurement(NamedTuple):
    """What is known of some elements: their numbers (none in XOR mode), the number of their row, digests. ``problem``:
    why there are no numbers.
    """

    numbers: Numbers | None
    row: int | None
    crc: bytes = b""
    xxh3: bytes = b""
    xor: bytes = b""
    problem: str | None = None


class LateElements:
    """Elements of a tensor on a device. ``known``: what is known of them; None until it is here."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Measurement | None = None


# What is measured of plain values on the host, and of the bytes that they are stored as (mostly the same).
OnHost = Callable[[torch.Tensor, torch.Tensor], Measurement]


class CopiedElements(LateElements):
    """Elements that are copied to the host. ``values``: they, in row-major order, and ``stored`` as they are stored;
    None once all is done that had to wait for them.
    """

    __slots__ = ("_then", "measure", "stored", "values")

    def __init__(self, values: torch.Tensor, stored: torch.Tensor, measure: OnHost | None) -> None:
        super().__init__()
        self.values: torch.Tensor | None = values
        self.stored: torch.Tensor | None = stored
        self.measure = measure
        self._then: list[Callable[[torch.Tensor], None]] = []

    def holds(self, values: torch.Tensor) -> bool:
        """Whether the elements, which are those of a description of ``values``, are what its file would have."""
        held = self.values
        return held is not None and held is self.stored and (held.dtype, held.shape) == (values.dtype, values.shape)

    @property
    def nbytes(self) -> int:
        """The size of the values; nothing once they are gone."""
        return 0 if self.values is None else self.values.numel() * self.values.element_size()

    def then(self, work: Callable[[torch.Tensor], None]) -> None:
        """Call ``work`` with the values when they are here and every description of them is filled in; never if they
        are lost. To be called before.
        """
        self._then.append(work)

    def receive(self, here: dict[int, list[Any]]) -> None:
        """The elements are here."""
        values, stored = self.values, self.stored
        if values is not None and stored is not None:
            is_stored = values is stored
            self.values = values = values.cpu()
            self.stored = values if is_stored else stored.cpu()
            if self.measure is not None:
                self.known = self.measure(values, self.stored)

    def end(self, is_lost: bool) -> None:
        """Do what waits for the values, and let go of them."""
        values, then = self.values, self._then
        self.values = self.stored = None
        self._then = []
        if values is not None and not is_lost:
            for work in then:
                attempt(work, values)


class ReducedElements(LateElements):
    """Elements of which numbers are computed on the device: ``row``, a place in a table that a kernel fills in, or the
    ``parts`` of reductions; and ``further`` numbers.
    """

    __slots__ = ("_add", "count", "dtype", "further", "high", "parts", "row")

    def __init__(self, values: torch.Tensor, high: bool, add: Callable[[bytes], int] | None) -> None:
        """``add`` gives a row its number; None: there is no row."""
        super().__init__()
        self.dtype = values.dtype
        self.count = values.numel()
        self.high = high
        self.row: tuple[Any, int] | None = None
        self.parts: list[device_rows.Elements] = []
        self.further: dict[str, tuple[Any, int]] = {}
        self._add = add

    def receive(self, here: dict[int, list[Any]]) -> None:
        """Make numbers and a row of the results, which are on the host."""
        if self.row is not None:
            table, place = self.row
            gathered = here[id(table)][place]
        else:
            gathered = device_rows.gather(self.parts, here)
        numbers = device_rows.numbers_of(gathered, self.count)
        for name in ("mean", "norm"):
            numbers[name] = round_to(self.dtype, numbers[name], self.high)
        for name, (results, place) in self.further.items():
            numbers[name] = here[id(results)][place]
        self.row, self.parts, self.further = None, [], {}
        self.known = Measurement(numbers, None if self._add is None else self._add(device_rows.row_of(gathered)))


class LateComparison:
    """Whether some elements of a tensor are still those they were."""

    __slots__ = ("changed", "place")

    def __init__(self, place: tuple[Any, int]) -> None:
        self.place = place  # (list of results, index in it)
        self.changed = False

    def receive(self, here: dict[int, list[Any]]) -> None:
        """Know whether they are, from the results on the host: those of each list by its id."""
        results, place = self.place
        self.place = ((), 0)
        self.changed = bool(here[id(results)][place])


class DeviceStatistics:
    """What is measured of tensors, and the chunk to which that belongs.

    Works the same for CPU tensors, which is how most of it is tested. May be used by several threads.
    """

    def __init__(self, high_precision: bool, needs: Set[str]) -> None:
        self._high = high_precision
        self._needs = needs
        self._chunk = Chunk()
        self._sides = SideStreams()
        self._signs = device_rows.Signs()
        self._kernels = RowKernels(self._sides)
        self._prepared: set[torch.device] = set()
        self._lock = threading.RLock()

    @property
    def bytes_to_copy(self) -> int:
        """Bytes of tensors that are copied, in the chunk that is being filled."""
        return self._chunk.bytes

    def send(self) -> Chunk:
        """Start to bring everything that was launched to the host; the next chunk begins. Never raises: what fails
        shows when the chunk is received.
        """
        with self._lock:
            chunk, self._chunk = self._chunk, Chunk()
        chunk.send(self._sides)
        return chunk

    # ---- while the step runs; inside statistics_framework.OwnWork ----

    # ``slots``: inside of a graph that is captured, where its replays put what is measured.

    def copy(
        self, values: torch.Tensor, stored: torch.Tensor, measure: OnHost | None, slots: Chunk | None = None
    ) -> CopiedElements:
        """Start to copy plain elements to the host. ``measure``: see :class:`CopiedElements`."""
        with self._lock:
            chunk = self._chunk if slots is None else slots
            copied = chunk.copy(values)
            late = CopiedElements(copied, copied if stored is values else chunk.copy(stored), measure)
            chunk.waiting.append(late)
        return late

    def measure(
        self,
        values: torch.Tensor,
        stored: torch.Tensor,
        measure: OnHost,
        add: Callable[[bytes], int] | None,
        slots: Chunk | None = None,
    ) -> LateElements:
        """Start to measure a plain tensor of which no values and no digests are wanted: see :meth:`copy`, and
        :class:`ReducedElements` for ``add``.
        """
        size = values.numel() * values.element_size()
        if size > MOST_COPIED and values.dtype.is_floating_point and values.dim():
            try:
                with self._lock:
                    return self._reduce(values, add, slots)
            except (NotImplementedError, RuntimeError) as error:
                if is_out_of_memory(error):
                    raise
                log.debug(f"No reductions of {values.dtype} on {values.device}, so it is copied: {reason(error)}")
        return self.copy(values, stored, measure, slots)

    def _reduce(self, values: torch.Tensor, add: Callable[[bytes], int] | None, slots: Chunk | None) -> LateElements:
        chunk, device = self._chunk if slots is None else slots, values.device
        chunk.note_stream(device)
        late = ReducedElements(values, self._high, add)
        kernel = self._kernels.of(values) if slots is None else self._kernels.proven(values)
        if kernel is not None:
            room, late.row = chunk.row(device, device_rows.NUMBERS)
            kernel(values.contiguous(), room)
        else:
            late.parts = device_rows.launch(values, self._signs, chunk.place)
        for name, result in launch_further(values, self._needs).items():
            late.further[name] = chunk.place(result)
        chunk.waiting.append(late)
        return late

    def prepare(self, device: torch.device) -> None:
        """Before the first graph of a device is captured: make and load whatever would be made or loaded inside of it
        otherwise, which could break the capture. Waits for the device, once.
        """
        if device in self._prepared:
            return
        self._signs.prepare(device)
        self._kernels.prove(device)
        for dtype in TYPES:
            for count in (MOST_COPIED, device_rows.MOST_MATRIX + 1):
                values = torch.zeros(count, dtype=dtype, device=device)
                device_rows.launch(values, self._signs, lambda result: ([result], 0))
                launch_further(values, self._needs)
        self._prepared.add(device)

    def compare(self, before: torch.Tensor, now: torch.Tensor) -> LateComparison:
        """Start to compare elements of one tensor at two times."""
        with self._lock:
            self._chunk.note_stream(now.device)
            late = LateComparison(self._chunk.place((now != before).any()))
            self._chunk.waiting.append(late)
        return late
