"""Measures tensors: at once those in the memory of the host, with one copy for each step those on a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from msprobe.capture import native
from msprobe.capture.torch.tensors.digest import address_of
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import ORDINARY, unwrap
from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.operators import Operators
from msprobe.monitor.torch.projection import projection

# Element type -> the number the C code knows it by, whether it is a float, its name.
_KINDS: dict[torch.dtype, tuple[int, bool, str]] = {
    dtype: (number, dtype.is_floating_point, str(dtype))
    for name, number in native.KINDS.items()
    if isinstance(dtype := getattr(torch, name, None), torch.dtype) and not dtype.is_complex and dtype != torch.bool
}


class Meter:
    """Gives each tensor its :class:`TensorCells`.

    ``defer``: treat tensors of the host as those of a device. Call :meth:`measure` where torch's functions are not
    watched (``private.without_functions``).
    """

    def __init__(self, operators: Operators, defer: bool = False) -> None:
        self.operators = operators
        self.defers = defer
        # A bound above 1 counts more whole numbers than zero.
        self._is_small = operators.eps <= 1
        self._native = native.numbers if not defer and native.count_below is not None else None
        # Of each device: results of one element each, and what waits for them.
        self._results: dict[torch.device, list[torch.Tensor]] = {}
        self._waiting: list[tuple[TensorCells, torch.device, int]] = []

    def nothing(self) -> TensorCells:
        """For what is no tensor."""
        return TensorCells(self.operators.nothing, None, None)

    def measure(self, tensor: torch.Tensor) -> TensorCells:
        """The statistics of ``tensor`` as it is now. Raises what torch raises for what cannot be read."""
        native_numbers = self._native
        if native_numbers is not None and type(tensor) in ORDINARY and not tensor.is_neg():
            kind = _KINDS.get(tensor.dtype)
            if kind is not None and tensor.is_cpu and tensor.is_contiguous() and (kind[1] or self._is_small):
                return self._measure_native(native_numbers, tensor, kind)
        return self._measure_otherwise(tensor)

    def _measure_native(
        self, native_numbers: Callable[..., dict[str, Any]], tensor: torch.Tensor, kind: tuple[int, bool, str]
    ) -> TensorCells:
        operators, shape = self.operators, tuple(tensor.shape)
        number, is_float, dtype = kind
        address, count = address_of(tensor), tensor.numel()
        if not address and count:
            # No memory behind it, as of a fake tensor.
            return TensorCells(operators.nothing, shape, dtype)
        if operators.is_norm_alone and is_float and native.norm is not None:
            return TensorCells((native.norm(address, count, number),), shape, dtype)
        numbers = native_numbers(address, count, number, native.UNROUNDED, 0)
        numbers["single"] = not shape
        if operators.needs_projection and count:
            with OwnWork():
                product = projection(tensor, torch.float64)
            numbers["projection"] = math.nan if product is None else product.item()
        if operators.needs_zeros:
            assert native.count_below is not None
            eps = operators.eps
            numbers["below"] = native.count_below(address, count, number, eps) if is_float else numbers.get("zero")
        return TensorCells(operators.values(numbers), shape, dtype)

    # ---------------------------------------------------------------- with operations of torch

    def _measure_otherwise(self, tensor: torch.Tensor) -> TensorCells:
        with OwnWork():
            unwrapped = unwrap(tensor)
            values, dtype = unwrapped.values, unwrapped.dtype
            if values is None:
                return TensorCells(self.operators.nothing, unwrapped.shape, dtype)
            shape = tuple(values.shape) if unwrapped.sparse is None else unwrapped.shape
            cells = TensorCells(None, shape, dtype)
            results = self._results.setdefault(values.device, [])
            self._waiting.append((cells, values.device, len(results)))
            launched = _Launched(values.detach(), self.operators.eps)
            for name in self.operators.names:
                results.append(launched.result(name))
            return cells

    def collect(self) -> Callable[[], None]:
        """The step is over: begin the copies from all devices. Call what is returned when the cells are needed."""
        results, waiting = self._results, self._waiting
        self._results, self._waiting = {}, []
        if not waiting:
            return _nothing_to_do
        with OwnWork(), torch.no_grad():
            copies = {device: _to_host(torch.stack(numbers)) for device, numbers in results.items()}
        width = len(self.operators.names)
        names = self.operators.names

        def finish() -> None:
            numbers = {device: copy() for device, copy in copies.items()}
            for cells, device, place in waiting:
                row = numbers[device][place : place + width]
                cells.values = tuple(
                    int(value) if name == "nans" and value == value else value
                    for name, value in zip(names, row, strict=True)
                )

        return finish

    def drop(self) -> None:
        """What was launched is not wanted."""
        self._results, self._waiting = {}, []


def _nothing_to_do() -> None:
    return


class _Launched:
    """The statistics of a plain tensor of any type and device, as tensors of one element in double.

    On a device without double, in float32.
    """

    def __init__(self, values: torch.Tensor, eps: float) -> None:
        self.eps = eps
        self.single = values.dim() == 0
        self.is_complex = values.is_complex()
        self.is_bool = values.dtype == torch.bool
        if values.dtype.itemsize == 1 and values.dtype.is_floating_point:
            values = values.to(torch.float32)
        self.values = values
        self.wide = _wide_type(values.device)

    def result(self, name: str) -> torch.Tensor:
        try:
            value: torch.Tensor | None = getattr(self, f"_{name}")()
        except RuntimeError:
            value = None
        if value is None:
            return torch.full((), math.nan, dtype=self.wide, device=self.values.device)
        return value.to(self.wide)

    def _norm(self) -> Any:
        values = self.values
        if not values.is_floating_point() and not self.is_complex:
            values = values.to(self.wide)
        if self.is_complex:
            return torch.linalg.vector_norm(values.abs().to(self.wide))
        return torch.linalg.vector_norm(values, dtype=self.wide)

    def _mean(self) -> torch.Tensor | None:
        values = self.values.real if self.is_complex else self.values
        return values.mean(dtype=self.wide) if values.numel() else None

    def _min(self) -> torch.Tensor | None:
        return self._extreme(torch.amin)

    def _max(self) -> torch.Tensor | None:
        return self._extreme(torch.amax)

    def _extreme(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
        return reduce(self.values) if self.values.numel() and not self.is_complex else None

    def _projection(self) -> torch.Tensor | None:
        return projection(self.values, self.wide)

    def _nans(self) -> Any:
        return self.values.isnan().sum()

    def _zeros(self) -> torch.Tensor | None:
        if self.is_bool or not self.values.numel():
            return None
        # In double, as the bound is: that of a float32 may round to its other side.
        magnitudes = self.values.abs()
        below = magnitudes.to(self.wide) < self.eps if magnitudes.is_floating_point() else magnitudes < self.eps
        return below.to(self.wide).mean()

    def _id(self) -> torch.Tensor | None:
        return self.values if self.single and not self.is_complex else None


_WIDE: dict[str, torch.dtype] = {}


def _wide_type(device: torch.device) -> torch.dtype:
    """double, or float32 on a device that has none."""
    known = _WIDE.get(device.type)
    if known is None:
        try:
            torch.ones((), dtype=torch.float64, device=device).add_(1)
            known = torch.float64
        except (RuntimeError, TypeError):
            known = torch.float32
        _WIDE[device.type] = known
    return known


def _to_host(values: torch.Tensor) -> Callable[[], list[float]]:
    """Begin to copy to the host; call what is returned to have the numbers."""
    if values.device.type in ("cpu", "mps"):
        return values.tolist
    module = getattr(torch, values.device.type, None)
    if module is None or not hasattr(module, "Event"):
        return values.tolist
    host = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=values.device.type == "cuda")
    host.copy_(values, non_blocking=True)
    event: Any = module.Event()
    event.record()

    def finish() -> list[float]:
        event.synchronize()
        numbers: list[float] = host.tolist()
        return numbers

    return finish
