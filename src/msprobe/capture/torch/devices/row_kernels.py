"""Kernels by which a device computes all numbers of a tensor in one launch, proven before they are trusted.

A device offers one as the operator ``msprobe::row_numbers(Tensor values, Tensor(a!) numbers) -> ()``: ``values`` are
contiguous real floats, more than none, ``numbers`` has room for ``device_rows.NUMBERS`` doubles and gets them in the
order of ``device_rows.Cell``. For CUDA there is one of ours, of Triton. Before the first tensor is measured with it,
it measures some whose numbers are known; until those are on the host, for which nobody waits, and wherever they are
others, the framework's reductions are used.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import torch

from msprobe import log
from msprobe.capture.torch.devices import device_rows
from msprobe.capture.torch.devices.device_chunks import Chunk, SideStreams, host_memory
from msprobe.capture.torch.devices.device_errors import reason
from msprobe.capture.torch.devices.device_rows import NUMBERS, Cell
from msprobe.messages import said

# Contiguous values, and the place for their numbers.
Kernel = Callable[[torch.Tensor, torch.Tensor], Any]
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Devices whose kernel is Triton's.
_TRITON = ("cuda",)
_COUNTS = (Cell.NAN, Cell.INF, Cell.ZERO, Cell.LEFT_OUT)
_EXTREMES = (Cell.KEPT_MAX, Cell.KEPT_MIN)


def find(device: torch.device) -> Kernel | None:
    """The kernel of a device, unproven; None where there is none."""
    if device.type in _TRITON:
        from msprobe.capture.torch.devices.row_triton import fill_row

        return fill_row
    offered: Any = getattr(torch.ops.msprobe, "row_numbers", None)
    return offered  # type: ignore[no-any-return]


class _Proof:
    """What a kernel makes of tensors whose numbers are known, on its way to the host."""

    def __init__(self, kernel: Kernel, device: torch.device, sides: SideStreams) -> None:
        self.kernel = kernel
        self.waiting: list[_Probe] = []
        self._kept: list[torch.Tensor] = []
        self._chunk = chunk = Chunk()
        for values in probes():
            host = host_memory(values.shape, values.dtype, device)
            host.copy_(values)
            self._kept.append(host)
            room, place = chunk.row(device, NUMBERS)
            kernel(host.to(device, non_blocking=True), room)
            chunk.waiting.append(_Probe(values, place))
        self.waiting = list(chunk.waiting)  # type: ignore[arg-type]
        chunk.send(sides)

    def is_here(self) -> bool:
        """Whether the answer is known without waiting."""
        return self._chunk.is_here()

    def problem(self) -> str:
        """What is wrong with the kernel; empty if nothing is. Raises what the device raises."""
        self._chunk.receive()
        return next((check.problem for check in self.waiting if check.problem), "")


class _Probe:
    def __init__(self, values: torch.Tensor, place: tuple[Any, int]) -> None:
        self.values = values
        self.place = place
        self.problem = ""

    def receive(self, here: dict[int, list[Any]]) -> None:
        table, index = self.place
        self.problem = difference(here[id(table)][index], expected(self.values), self.values)


class RowKernels:
    """The kernel of each device that has one that is right."""

    def __init__(self, sides: SideStreams) -> None:
        self._sides = sides
        self._known: dict[torch.device, Kernel | _Proof | None] = {}
        self._lock = threading.Lock()

    def of(self, values: torch.Tensor) -> Kernel | None:
        """The kernel for these values; None: the framework's reductions are to be used."""
        device = values.device
        if device.type == "cpu" or values.dtype not in TYPES:
            return None
        with self._lock:
            if device not in self._known:
                self._known[device] = self._begin(device)
            known = self._known[device]
            if isinstance(known, _Proof) and known.is_here():
                known = self._known[device] = self._judge(device, known)
            return None if isinstance(known, _Proof) else known

    def proven(self, values: torch.Tensor) -> Kernel | None:
        """The same inside of a graph that is captured, where nothing begins. None for Triton: it may compile a kernel
        at any launch, and that would break the capture.
        """
        device = values.device
        known = self._known.get(device)
        is_usable = values.dtype in TYPES and device.type not in _TRITON and not isinstance(known, _Proof)
        return known if is_usable else None  # type: ignore[return-value]

    def prove(self, device: torch.device) -> None:
        """Find the kernel of a device now, and wait for its proof."""
        with self._lock:
            known = self._known[device] if device in self._known else self._begin(device)
            self._known[device] = self._judge(device, known) if isinstance(known, _Proof) else known

    def _begin(self, device: torch.device) -> _Proof | None:
        try:
            kernel = find(device)
            return None if kernel is None else _Proof(kernel, device, self._sides)
        except Exception as error:
            log.debug(f"No kernel for the rows of tensors on {device}: {reason(error)}")
            return None

    def _judge(self, device: torch.device, proof: _Proof) -> Kernel | None:
        try:
            problem = proof.problem()
        except Exception as error:
            problem = reason(error)
        if problem:
            log.debug(f"The kernel for the rows of tensors on {device} is not used: {problem}")
            return None
        return proof.kernel


def probes() -> list[torch.Tensor]:
    """Tensors of every type that kernels read: of several sizes, and with all values that are counted."""
    tensors = []
    for count in (1, 700, 20_000):
        base = torch.arange(count, dtype=torch.float64, device="cpu")
        base = (base * 0.7548776662466927 % 1 - 0.45) * 8
        special = base.clone()
        special[:: max(count // 7, 1)] = 0.0
        if count > 64:
            special[5], special[17], special[count - 9] = math.nan, math.inf, -math.inf
            special[33] = special[count // 2] = -3e38
        tensors += [values.to(dtype) for dtype in TYPES for values in (base, special)]
    return tensors


@functools.cache
def _signs() -> device_rows.Signs:
    return device_rows.Signs()


def expected(values: torch.Tensor) -> list[float]:
    """The numbers of a tensor of the CPU, by the framework's reductions."""
    results: list[torch.Tensor] = []

    def keep(result: torch.Tensor) -> tuple[Any, int]:
        results.append(result)
        return results[-1], 0

    parts = device_rows.launch(values, _signs(), keep)
    return device_rows.gather(parts, {id(result): [result.tolist()] for result in results})


def difference(measured: list[float], right: list[float], values: torch.Tensor) -> str:
    """Where numbers are others than by rounding of sums in double; empty if nowhere."""
    kept = math.sqrt(sum(right[Cell.BLOCK : Cell.BLOCK + device_rows.BLOCKS]))
    for number in range(Cell.BLOCK + device_rows.BLOCKS):
        value, other = measured[number], right[number]
        if number in _COUNTS:
            close = value == other
        elif number in (Cell.MAX, Cell.MIN):
            close = value == other or right[Cell.NAN] > 0
        elif number in _EXTREMES:
            close = value == other or other != other
        elif number in (Cell.SUM, Cell.SQUARES):
            close = value == other or (value != value and other != other) or abs(value - other) <= 1e-9 * abs(other)
            close = close or (number == Cell.SUM and abs(value - other) <= 1e-9 * math.sqrt(abs(right[Cell.SQUARES])))
        else:
            scale = kept * kept if number >= Cell.BLOCK else kept * math.sqrt(values.numel())
            close = abs(value - other) <= 1e-11 * scale
        if not close:
            place = max(name for name in Cell if name <= number)
            return said("kernel-row-wrong", place.name.lower(), values.numel(), values.dtype, value, other)
    return ""
