"""Statistics of tensors on an accelerator, without waiting for it.

The reductions are launched when the tensor is described, since a later write would change the value. Their
results stay on the device; :meth:`DeviceStatistics.collect` copies all of them to the host, one transfer for
each device and type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch

from msprobe.capture.torch import digest
from msprobe.capture.torch.statistics_framework import Numbers, launch_further, round_to, widest

# Bytes of tensors on their way to the host for a digest; beyond that the host waits and hashes.
COPY_LIMIT = 1 << 30
# Elements that tell whether a tensor is still what it was.
MOST_COMPARED = 256


class LateNumbers:
    """Numbers of one tensor: the results on the device they are made of, and once collected ``numbers``."""

    __slots__ = ("count", "dtype", "high", "numbers", "places", "scalar")

    def __init__(self, values: torch.Tensor, high: bool) -> None:
        self.dtype = values.dtype
        self.count = values.numel()
        self.scalar = values.dim() == 0
        self.high = high
        self.places: dict[str, tuple[Any, int]] = {}  # result -> (list of results, index in it)
        self.numbers: Numbers = {"count": self.count, "single": self.scalar}

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

    __slots__ = ("crc", "host", "xor", "xxh3")

    def __init__(self, host: torch.Tensor) -> None:
        self.host: torch.Tensor | None = host
        self.crc = self.xxh3 = self.xor = b""

    def hash(self, crc: bool, xxh3: bool, xor: bool) -> None:
        host = self.host
        if host is None:
            return
        self.host = None
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


class DeviceStatistics:
    """The reductions and copies of a step that are still on their way.

    Works the same for CPU tensors, which is how most of it is tested.
    """

    def __init__(self, high_precision: bool, needs: Set[str]) -> None:
        self._high = high_precision
        self._needs = needs
        self._results: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
        self._waiting: list[LateNumbers] = []
        self._comparisons: list[LateComparison] = []
        self._copies: list[tuple[LateBytes, tuple[bool, bool, bool]]] = []
        self._copying = 0
        self._streams: dict[torch.device, set[Any]] = {}

    # ---- while the step runs; inside statistics_framework.OwnWork ----

    def launch(self, values: torch.Tensor) -> LateNumbers:
        """Start the reductions of a plain tensor. Raises what torch raises for a type without them."""
        late = LateNumbers(values, self._high)
        if late.count == 0:
            return late
        self._note_stream(values.device)
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
        self._waiting.append(late)
        return late

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
        late.places[name] = self._place(result)

    def _place(self, result: torch.Tensor) -> tuple[Any, int]:
        results = self._results.setdefault((result.device, result.dtype), [])
        results.append(result)
        return results, len(results) - 1

    def compare(self, before: torch.Tensor, now: torch.Tensor) -> LateComparison:
        """Start to compare what :func:`some_elements` gave at two times."""
        self._note_stream(now.device)
        late = LateComparison(self._place((now != before).any()))
        self._comparisons.append(late)
        return late

    def copy(self, values: torch.Tensor, crc: bool, xxh3: bool, xor: bool) -> LateBytes:
        """Start copying the elements to the host, to be hashed by :meth:`collect`."""
        self._note_stream(values.device)
        dtype = values.dtype
        if dtype.itemsize == 1:
            values = values.view(torch.uint8)  # small types have few operations, not even a copy
        if values.device.type == "cpu":
            host = values.clone(memory_format=torch.contiguous_format)
        else:
            pinned = values.device.type == "cuda"
            host = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=pinned)
            host.copy_(values, non_blocking=True)
        late = LateBytes(host.view(dtype))
        self._copies.append((late, (crc, xxh3, xor)))
        self._copying += host.numel() * host.element_size()
        if self._copying > COPY_LIMIT:
            self._hash()
        return late

    def _note_stream(self, device: torch.device) -> None:
        """Results may be made on several streams; all of them are waited for in the end."""
        module = getattr(torch, device.type, None)
        current = getattr(module, "current_stream", None)
        if device.type != "cpu" and current is not None:
            self._streams.setdefault(device, set()).add(current(device))

    # ---- at the end of it ----

    def collect(self) -> None:
        """Bring everything to the host and fill all late numbers and bytes. Waits for the device."""
        self._wait()
        arrived: dict[int, list[Any]] = {}
        for results in self._results.values():
            arrived[id(results)] = torch.stack(results).cpu().tolist()
        for late in self._waiting:
            late.fill({name: arrived[id(results)][place] for name, (results, place) in late.places.items()})
            late.places = {}
        for comparison in self._comparisons:
            results, place = comparison.place
            comparison.changed = bool(arrived[id(results)][place])
            comparison.place = ((), 0)
        self._results = {}
        self._waiting = []
        self._comparisons = []
        self._hash()
        self._streams = {}

    def _wait(self) -> None:
        for device, streams in self._streams.items():
            current = getattr(torch, device.type).current_stream(device)
            for stream in streams:
                current.wait_stream(stream)

    def _hash(self) -> None:
        for streams in self._streams.values():
            for stream in streams:
                stream.synchronize()
        for late, wanted in self._copies:
            late.hash(*wanted)
        self._copies = []
        self._copying = 0


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
