"""Statistics of tensors on an accelerator, without waiting for it.

The reductions are launched when the tensor is described, since a later write would change the value. Their
results stay on the device until there is a chunk of them (:mod:`msprobe.capture.torch.device_chunks`), which is copied
to the host while the program goes on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch

from msprobe.capture.torch import digest
from msprobe.capture.torch.device_chunks import Chunk, SideStreams, host_memory
from msprobe.capture.torch.device_rows import LateRow, SignMatrices, launch_row
from msprobe.capture.torch.statistics_framework import Numbers, launch_further, round_to, widest

# Elements that tell whether a tensor is still what it was.
MOST_COMPARED = 256


class LateNumbers:
    """Numbers of one tensor: the results on the device they are made of, and once collected ``numbers``."""

    __slots__ = ("count", "dtype", "filled", "high", "numbers", "places", "scalar")

    def __init__(self, values: torch.Tensor, high: bool) -> None:
        self.dtype = values.dtype
        self.count = values.numel()
        self.scalar = values.dim() == 0
        self.high = high
        self.places: dict[str, tuple[Any, int]] = {}  # result -> (list of results, index in it)
        self.numbers: Numbers = {"count": self.count, "single": self.scalar}
        # False: they are not here yet, or were lost with an error of the device.
        self.filled = self.count == 0

    def receive(self, here: dict[int, list[Any]]) -> None:
        """Make numbers of the results, which are on the host: those of each list by its id."""
        places, self.places = self.places, {}
        self.fill({name: here[id(results)][place] for name, (results, place) in places.items()})
        self.filled = True

    def fill(self, found: dict[str, Any]) -> None:
        """Make numbers of the collected results."""
        if not found:
            return  # empty
        dtype, numbers = self.dtype, self.numbers
        numbers.update(found)
        if dtype == torch.bool:
            numbers["max"], numbers["min"] = bool(found["max"]), bool(found["min"])
        if "nonzero" in found:
            numbers["zero"] = self.count - int(numbers.pop("nonzero"))
        if self.scalar:
            self._fill_single(found["max"])
        elif dtype.is_floating_point or dtype.is_complex:
            numbers["nan"], numbers["inf"] = int(found["nan"]), int(found["inf"])
            for name in ("mean", "norm"):
                if name in found:
                    numbers[name] = round_to(dtype, found[name], self.high)

    def _fill_single(self, value: Any) -> None:
        dtype, numbers = self.dtype, self.numbers
        numbers["zero"] = int(value == 0)
        if dtype == torch.bool:
            return
        numbers["nan"], numbers["inf"] = int(value != value), int(abs(value) == float("inf"))
        numbers["min"] = numbers["mean"] = value
        numbers["norm"] = None if dtype.is_complex else value


class LateBytes:
    """The elements of one tensor on their way to host memory, and their digests once they are there."""

    __slots__ = ("crc", "host", "wanted", "xor", "xxh3")

    def __init__(self, host: torch.Tensor, wanted: tuple[bool, bool, bool]) -> None:
        """``wanted``: whether a CRC-32, an xxh3 and a XOR are made of them."""
        self.host: torch.Tensor | None = host
        self.wanted = wanted
        self.crc = self.xxh3 = self.xor = b""

    def hash(self) -> None:
        """Make the digests of the elements, which are on the host, and let go of them."""
        host = self.host
        if host is None:
            return
        self.host = None
        crc, xxh3, xor = self.wanted
        raw = digest.of_tensor(host)
        if crc:
            self.crc = digest.crc32(digest.widen(host.dtype, raw))
        if xxh3:
            self.xxh3 = digest.xxh3(raw)
        if xor:
            self.xor = digest.xor_value(host, raw)


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
    """The reductions and copies of tensors that are described, and the chunk to which they belong.

    Works the same for CPU tensors, which is how most of it is tested. May be used by several threads.
    """

    def __init__(self, high_precision: bool, needs: Set[str]) -> None:
        self._high = high_precision
        self._needs = needs
        self._chunk = Chunk()
        self._sides = SideStreams()
        self._signs = SignMatrices()
        self._lock = threading.RLock()

    @property
    def bytes_to_copy(self) -> int:
        """Bytes of tensors for digests, in the chunk that is being filled."""
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

    def launch(self, values: torch.Tensor) -> LateNumbers:
        """Start the reductions of a plain tensor. Raises what torch raises for a type without them."""
        late = LateNumbers(values, self._high)
        if late.count == 0:
            return late
        with self._lock:
            self._launch(late, values)
        return late

    def _launch(self, late: LateNumbers, values: torch.Tensor) -> None:
        self._chunk.note_stream(values.device)
        dtype = values.dtype
        if late.scalar:
            value = values.abs() if dtype.is_complex else _reducible(values).clone()
            self._keep(late, "max", value)
            if dtype == torch.bool:
                self._keep(late, "min", value)
        elif dtype == torch.bool:
            self._keep(late, "max", values.any())
            self._keep(late, "min", values.all())
            self._keep(late, "nonzero", torch.count_nonzero(values))
        else:
            self._launch_numbers(late, _reducible(values))
        self._chunk.waiting.append(late)

    def _launch_numbers(self, late: LateNumbers, values: torch.Tensor) -> None:
        dtype = values.dtype
        self._keep(late, "nonzero", torch.count_nonzero(values))
        if not dtype.is_floating_point and not dtype.is_complex:
            wide = values.to(widest(values.device))
            self._launch_wanted(late, "max", values, torch.amax)
            self._launch_wanted(late, "min", values, torch.amin)
            self._launch_wanted(late, "mean", wide, torch.mean)
            self._launch_wanted(late, "norm", wide, torch.linalg.vector_norm)
            self._launch_further(late, values)
            return
        self._keep(late, "nan", torch.count_nonzero(values.isnan()))
        inner = torch.float32 if dtype.itemsize < 4 else None
        if dtype.is_complex:
            self._keep(late, "inf", torch.count_nonzero(values.isinf() & ~values.isnan()))
            values = values.abs()
        else:
            self._keep(late, "inf", torch.count_nonzero(values.isinf()))
            self._launch_wanted(late, "norm", values, torch.linalg.vector_norm, dtype=inner)
        self._launch_wanted(late, "max", values, torch.amax)
        self._launch_wanted(late, "min", values, torch.amin)
        self._launch_wanted(late, "mean", values, torch.mean, dtype=inner)
        self._launch_further(late, values)

    def _launch_wanted(
        self, late: LateNumbers, name: str, values: torch.Tensor, kernel: Callable[..., torch.Tensor], **how: Any
    ) -> None:
        if name in self._needs:
            self._keep(late, name, kernel(values, **how))

    def _launch_further(self, late: LateNumbers, values: torch.Tensor) -> None:
        for name, result in launch_further(values, self._needs).items():
            self._keep(late, name, result)

    def _keep(self, late: LateNumbers, name: str, result: torch.Tensor) -> None:
        late.places[name] = self._chunk.place(result)

    def launch_row(self, values: torch.Tensor, numbers: LateNumbers, add: Callable[[bytes], int]) -> LateRow:
        """Start the reductions for the row of a plain tensor with elements, whose ``numbers`` were launched before;
        ``add`` gives it a number. Raises what torch raises.
        """
        with self._lock:
            self._chunk.note_stream(values.device)
            late = LateRow(*launch_row(values, self._signs, self._chunk.place), numbers, add)
            self._chunk.waiting.append(late)
        return late

    def compare(self, before: torch.Tensor, now: torch.Tensor) -> LateComparison:
        """Start to compare what :func:`some_elements` gave at two times."""
        with self._lock:
            self._chunk.note_stream(now.device)
            late = LateComparison(self._chunk.place((now != before).any()))
            self._chunk.waiting.append(late)
        return late

    def copy(self, values: torch.Tensor, crc: bool, xxh3: bool, xor: bool) -> LateBytes:
        """Start copying the elements to the host, to be hashed when the chunk is received."""
        dtype = values.dtype
        if dtype.itemsize == 1:
            values = values.view(torch.uint8)  # small types have few operations, not even a copy
        with self._lock:
            self._chunk.note_stream(values.device)
            if values.device.type == "cpu":
                host = values.clone(memory_format=torch.contiguous_format)
            else:
                host = host_memory(values.shape, values.dtype, values.device)
                host.copy_(values, non_blocking=True)
            late = LateBytes(host.view(dtype), (crc, xxh3, xor))
            self._chunk.copies.append(late)
            self._chunk.bytes += host.numel() * host.element_size()
        return late


def some_elements(values: torch.Tensor, pattern: Sequence[int]) -> torch.Tensor:
    """At most ``MOST_COMPARED`` elements of a tensor, evenly spread, as integers of the same bits; not copied.

    ``pattern``: which elements it holds, sizes and strides by turns.
    """
    counts = list(pattern[::2])
    while math.prod(counts) > MOST_COMPARED:
        longest = counts.index(max(counts))
        counts[longest] = (counts[longest] + 1) // 2
    steps = [
        step * ((size - 1) // (count - 1)) if count > 1 else step
        for count, size, step in zip(counts, pattern[::2], pattern[1::2], strict=True)
    ]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.as_strided(counts, steps, values.storage_offset()).view(bits)


def _reducible(values: torch.Tensor) -> torch.Tensor:
    """The same numbers in a type that has reductions."""
    dtype = values.dtype
    if digest.is_float8(dtype):
        return values.to(torch.float32)
    if dtype == digest.UINT16:
        return values.to(torch.int32)
    if dtype in (digest.UINT32, digest.UINT64):
        # uint64 beyond 2^63 shows wrong; no accelerator computes with it.
        return values.to(torch.int64)
    return values
