"""Which tensors have rows (:mod:`msprobe.store.rows`), and who makes them: the C extension, numpy, the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from msprobe import log
from msprobe.capture import native
from msprobe.capture.tensor_rows import PIECE, TensorRows, row_of, row_of_memory
from msprobe.capture.torch import digest
from msprobe.capture.torch.device_rows import LateRow
from msprobe.capture.torch.device_statistics import DeviceStatistics, LateNumbers
from msprobe.capture.torch.late_descriptions import reason
from msprobe.capture.torch.statistics_unusual import Unwrapped


class RowDescriptions:
    """The rows of tensors that the native memo does not describe. Call inside ``OwnWork``.

    ``types``: element type -> (name, kind of the native kernels, ..., values of a one-byte float).
    """

    def __init__(
        self,
        rows: TensorRows | None,
        device: DeviceStatistics,
        types: Mapping[torch.dtype, tuple[str, int, bool, bytes | None]],
    ) -> None:
        self._rows = rows
        self._device = device
        self._types = types

    def of(self, whole: Unwrapped, values: torch.Tensor, known: dict[Any, Any] | None, place: Any) -> int | None:
        """The number of the row of a plain CPU tensor, the elements of ``whole``; ``known``: those of this step that it
        may share, by ``place``. None if it has none.
        """
        rows = self._rows
        if rows is None or not self._has_row(whole, values):
            return None
        found: int | None = None if known is None else known.get(place)
        if found is not None:
            return found
        if values.is_complex():
            values = torch.view_as_real(values)
        kind = self._types.get(values.dtype)
        if kind is not None and native.RowTable is not None:
            made = row_of_memory(digest.address_of(values), values.shape, values.stride(), kind[1], kind[3])
        else:
            made = row_of(_pieces_of(values), values.numel())
        found = rows.add(made)
        if known is not None:
            known[place] = found
        return found

    def late_of(
        self, whole: Unwrapped, values: torch.Tensor | None, numbers: Any, known: dict[Any, Any] | None, place: Any
    ) -> LateRow | None:
        """The same of a tensor on a device, whose row comes with its statistics, ``numbers``."""
        rows = self._rows
        if rows is None or values is None or not isinstance(numbers, LateNumbers) or not self._has_row(whole, values):
            return None
        found: LateRow | None = None if known is None else known.get(place)
        if found is not None:
            return found
        try:
            found = self._device.launch_row(values, numbers, rows.add)
        except (NotImplementedError, RuntimeError) as error:
            # The statistics are on their way.
            log.debug(f"No row for a tensor of {values.dtype} on {values.device}: {reason(error)}")
            return None
        if known is not None:
            known[place] = found
        return found

    def _has_row(self, whole: Unwrapped, values: torch.Tensor) -> bool:
        """Of a sparse tensor none: other elements than those that are stored are zero."""
        if self._rows is None or not self._rows.on or not values.numel() or whole.sparse is not None:
            return False
        return all(key != "layout" for key, _ in whole.behind)


def _pieces_of(values: torch.Tensor) -> Iterator[Any]:
    """The elements of a plain CPU tensor in double, piece by piece. By their address: a tensor that was asked for an
    array of numpy is another one from then on.
    """
    raw, size, name = digest.of_tensor(values), values.element_size(), str(values.dtype).removeprefix("torch.")
    is_wide = values.dtype == torch.bfloat16 or digest.is_float8(values.dtype)
    for start in range(0, len(raw), PIECE * size):
        piece = digest.widen(values.dtype, raw[start : start + PIECE * size])
        yield np.frombuffer(piece, np.float32 if is_wide else name).astype(np.float64)
