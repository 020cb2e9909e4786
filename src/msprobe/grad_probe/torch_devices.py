"""Gradients on an accelerator: everything is computed there, and comes to the host in one piece without waiting.

Kernels and copies are launched when the optimizer is about to step, behind those that computed the gradients and before
those that use them. Whoever writes the step waits for them, in a thread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from msprobe.config.settings import GradientProbe
from msprobe.grad_probe.measure import Array, checksum_of
from msprobe.grad_probe.rows import NAN_DIRECTION, GradientRow
from msprobe.grad_probe.writer import Entry
from msprobe.messages import said

# Maximum, minimum, norm.
_NUMBERS = 3


class DeviceStep:
    """The gradients of one step that lie on one device."""

    def __init__(self, device: torch.device, fields: GradientProbe) -> None:
        self._device = device
        self._fields = fields
        self._numbers: list[torch.Tensor] = []
        self._counts: list[torch.Tensor] = []
        self._has_launched = False
        self._event: Any = None
        self._host_numbers: torch.Tensor | None = None
        self._host_counts: torch.Tensor | None = None
        # Of devices whose copies cannot be left to run: the directions of all gradients behind one another.
        self._directions: list[torch.Tensor] = []
        self._direction_bytes = 0
        self._host_directions: torch.Tensor | None = None

    def add(
        self, name: str, values: torch.Tensor, shape: tuple[int, ...], local_shape: tuple[int, ...] | None
    ) -> Entry:
        """Launch what is needed of ``values``, a plain real tensor; what gives the row when the copies have come."""
        fields = self._fields
        place = len(self._numbers) // _NUMBERS
        count = values.numel()
        if not count:
            nan = torch.full((), math.nan, device=self._device)
            self._numbers += [nan] * _NUMBERS
            if fields.grad_level == "L2":
                self._counts += [torch.zeros((), dtype=torch.int64, device=self._device)] * self._counted
        else:
            wide = torch.float64 if values.dtype == torch.float64 else torch.float32
            least, greatest = torch.aminmax(values)
            norm = values.norm() if fields.compat_norm else torch.linalg.vector_norm(values, dtype=wide)
            # An infinity beside a NaN hides it in some kernels; the norm does not.
            self._numbers += [number.to(torch.float32) for number in (greatest, least, norm)]
            if fields.grad_level == "L2":
                self._count(values.to(wide))
        copied = self._copied(values)
        local = tuple(values.shape)

        def finish() -> tuple[GradientRow, Array | None]:
            return self._finish(place, name, count, shape, local_shape, local, copied)

        return finish

    @property
    def _counted(self) -> int:
        return len(self._fields.bounds) + 2

    def _count(self, values: torch.Tensor) -> None:
        """How many are at most each bound, how many are zero, how many are NaN."""
        for bound in self._fields.bounds:
            self._counts.append((values <= torch.tensor(bound, dtype=values.dtype).item()).sum())
        self._counts += [(values == 0).sum(), values.isnan().sum()]

    def _copied(self, values: torch.Tensor) -> Callable[[], Array]:
        """What goes to a file element by element, on its way to the host; what gives it when it is there."""
        if self._fields.grad_level == "L0":
            host = self._to_host(values.to(torch.float32))
            return lambda: host.numpy().reshape(-1)
        if self._fields.direction == "ternary":
            signs = (values > 0).to(torch.int8) - (values < 0).to(torch.int8)
            direction = signs.masked_fill(values.isnan(), NAN_DIRECTION)
        else:
            direction = values > 0
        kind = np.int8 if self._fields.direction == "ternary" else np.bool_
        if self._device.type == "cuda":
            host = self._to_host(direction)
            return lambda: host.numpy().reshape(-1)
        # Each copy would wait for the device: all of them in one.
        begin, end = self._direction_bytes, self._direction_bytes + values.numel()
        self._direction_bytes = end
        self._directions.append(direction.reshape(-1).view(torch.uint8))

        def part() -> Array:
            assert self._host_directions is not None
            return self._host_directions.numpy()[begin:end].view(kind)

        return part

    def _to_host(self, values: torch.Tensor) -> torch.Tensor:
        values = values.contiguous()
        if self._device.type != "cuda":
            return values.cpu()
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        return host.copy_(values, non_blocking=True)

    def launch(self) -> None:
        """All gradients were added: bring the numbers to the host."""
        self._has_launched = True
        if self._numbers:
            self._host_numbers = self._to_host(torch.stack(self._numbers))
        if self._counts:
            self._host_counts = self._to_host(torch.stack(self._counts))
        if self._directions:
            self._host_directions = self._to_host(torch.cat(self._directions))
        self._numbers, self._counts, self._directions = [], [], []
        if self._device.type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(self._device))

    def _finish(
        self,
        place: int,
        name: str,
        count: int,
        shape: tuple[int, ...],
        local_shape: tuple[int, ...] | None,
        local: tuple[int, ...],
        copied: Callable[[], Array],
    ) -> tuple[GradientRow, Array | None]:
        fields = self._fields
        if not self._has_launched:
            raise RuntimeError(said("numbers-not-on-host"))
        if self._event is not None:
            self._event.synchronize()
        assert self._host_numbers is not None
        numbers = self._host_numbers[place * _NUMBERS : (place + 1) * _NUMBERS].tolist()
        maximum, minimum, norm = (math.nan,) * _NUMBERS if any(map(math.isnan, numbers)) else numbers
        elements = copied()
        checksum = ""
        shares: tuple[float, ...] = ()
        zeros = math.nan
        if fields.grad_level == "L0":
            checksum = checksum_of(elements, elements.__array_interface__["data"][0], fields)
        elif fields.grad_level == "L2":
            assert self._host_counts is not None
            counts = self._host_counts[place * self._counted : (place + 1) * self._counted].tolist()
            shares, zeros = _shares(counts, count)
        row = GradientRow(name, shape, maximum, minimum, norm, local_shape, checksum, shares, zeros)
        if fields.grad_level == "L0":
            return row, None
        # Pinned memory goes back to whoever lends it when this array is gone.
        direction = np.packbits(elements) if fields.direction == "packed" else elements.reshape(local)
        return row, direction


def _shares(counts: list[int], count: int) -> tuple[tuple[float, ...], float]:
    *below, zeros, nans = counts
    if not count:
        return (math.nan,) * (len(below) + 1), math.nan
    if not below:
        return ((count - nans) / count,), zeros / count
    inner = [high - low for low, high in zip([0, *below], below, strict=False)]
    return tuple(part / count for part in (*inner, count - below[-1])), zeros / count
