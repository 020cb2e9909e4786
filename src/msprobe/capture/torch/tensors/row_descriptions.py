"""Which tensors have rows (:mod:`msprobe.store.rows`), and who makes them: the C extension, numpy, the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from msprobe.capture import native
from msprobe.capture.tensor_rows import PIECE, TensorRows, row_of, row_of_memory
from msprobe.capture.torch.tensors import digest
from msprobe.capture.torch.tensors.statistics_unusual import Unwrapped


class RowDescriptions:
    """The rows of tensors that the native memo does not describe. Call inside ``OwnWork``.

    ``types``: element type -> (name, kind of the native kernels, ..., values of a one-byte float).
    """

    def __init__(
        self,
        rows: TensorRows | None,
        types: Mapping[torch.dtype, tuple[str, int, bool, bytes | None]],
    ) -> None:
        self._rows = rows
        self._types = types

    def of(self, values: torch.Tensor, known: dict[Any, Any] | None, place: Any) -> int | None:
        """The number of the row of a plain CPU tensor that has one; ``known``: those of this step that it may share, by
        ``place``.
        """
        rows = self._rows
        if rows is None:
            return None
        row: int | None = None if known is None else known.get(place)
        if row is not None:
            return row
        if values.is_complex():
            values = torch.view_as_real(values)
        kind = self._types.get(values.dtype)
        if kind is not None and native.RowTable is not None:
            made = row_of_memory(digest.address_of(values), values.shape, values.stride(), kind[1], kind[3])
        else:
            made = row_of(_pieces_of(values), values.numel())
        row = rows.add(made)
        if known is not None:
            known[place] = row
        return row

    def has_row(self, whole: Unwrapped, values: torch.Tensor) -> bool:
        """Whether plain values, the elements of ``whole``, have a row now. Those of a sparse tensor have none: other
        elements than those that are stored are zero.
        """
        if self._rows is None or not self._rows.on or not values.numel() or whole.sparse is not None:
            return False
        return all(key != "layout" for key, _ in whole.behind)


def _pieces_of(values: torch.Tensor) -> Iterator[Any]:
    """The elements of a plain CPU tensor in double, piece by piece. By their address: a tensor that was asked for an
    array of numpy is another one from then on.
    """
    raw, size, name = digest.tensor_digest(values), values.element_size(), str(values.dtype).removeprefix("torch.")
    is_wide = values.dtype == torch.bfloat16 or digest.is_float8(values.dtype)
    for start in range(0, len(raw), PIECE * size):
        piece = digest.widen(values.dtype, raw[start : start + PIECE * size])
        yield np.frombuffer(piece, np.float32 if is_wide else name).astype(np.float64)
