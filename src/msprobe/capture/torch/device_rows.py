"""Rows of tensors on an accelerator, by the framework's own reductions and without waiting for it.

At most nine launches a tensor. The signed sums are one product with a matrix of signs that stays on the device; of
tensors that are larger than ``MOST_SIGNED`` they are not computed (NaN in the row), and of those of which some elements
are left out, and of complex ones, the extremes are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe.capture.tensor_rows import pack
from msprobe.capture.torch.device_chunks import host_memory
from msprobe.capture.torch.digest import UINT16, UINT32, UINT64, is_float8
from msprobe.capture.torch.statistics_framework import widest
from msprobe.store import row_format, row_signs

MOST_SIGNED = 1 << 17
_NAN = float("nan")
_UNSIGNED = (UINT16, UINT32, UINT64)


class SignMatrices:
    """On each device the signs of the sums, and a row of ones: a matrix that serves all tensors up to its width."""

    def __init__(self) -> None:
        self._known: dict[torch.device, torch.Tensor] = {}
        self._hosts: dict[torch.device, torch.Tensor] = {}

    def of(self, device: torch.device, count: int) -> torch.Tensor:
        """The part of the matrix for so many elements."""
        known = self._known.get(device)
        if known is None or known.shape[1] < count:
            width = min(max(1 << (count - 1).bit_length(), 1 << 12), MOST_SIGNED)
            # The host does not wait for the copy, so its memory is kept.
            signs = self._hosts[device] = host_memory((row_signs.SUMS + 1, width), widest(device), device)
            signs[:-1] = torch.from_numpy(row_signs.signs(width))
            signs[-1] = 1
            known = torch.empty(signs.shape, dtype=signs.dtype, device=device)
            known.copy_(signs, non_blocking=True)
            self._known[device] = known
        return known[:, :count]


class LateRow:
    """The row of one tensor: results on the device, and once they are here its ``number``."""

    __slots__ = ("_add", "count", "number", "numbers", "places")

    def __init__(
        self, count: int, places: dict[str, tuple[Any, int]], numbers: Any, add: Callable[[bytes], int]
    ) -> None:
        """``numbers``: the tensor's :class:`msprobe.capture.torch.device_statistics.LateNumbers`, which come before.
        ``add``: gives a row its number.
        """
        self.count = count
        self.numbers = numbers
        self.places = places
        self.number: int | None = None
        self._add = add

    def receive(self, here: dict[int, list[Any]]) -> None:
        """Make the row of the results, which are on the host: those of each list by its id."""
        places, self.places = self.places, {}
        found = {name: here[id(results)][place] for name, (results, place) in places.items()}
        blocks = [*found.get("blocks", ()), *([found["rest"]] if "rest" in found else ())]
        blocks += [0.0] * (8 - len(blocks))
        products = found.get("products")
        left_out = self.count - int(found["kept"]) if "kept" in found else 0
        numbers, extremes = self.numbers.numbers, (_NAN, _NAN)
        if "nonzero" in found:
            zeros = self.count - int(found["nonzero"])
        else:
            zeros = int(numbers.get("zero", 0))
            if not left_out:
                extremes = float(numbers.get("max", _NAN)), float(numbers.get("min", _NAN))
        self.number = self._add(
            pack(
                products[-1] if products is not None else found["sum"],
                sum(block * block for block in blocks),
                products[:-1] if products is not None else [_NAN] * row_signs.SUMS,
                blocks,
                extremes,
                zeros,
                left_out,
            )
        )


def launch_row(
    values: torch.Tensor, signs: SignMatrices, place: Callable[[torch.Tensor], tuple[Any, int]]
) -> tuple[int, dict[str, tuple[Any, int]]]:
    """Start the reductions of a plain tensor with elements, inside of ``OwnWork``: how many elements they are of, and
    where the results will be. ``place`` keeps a result. Raises what torch raises.
    """
    dtype, is_complex = values.dtype, values.dtype.is_complex
    if is_complex:
        values = torch.view_as_real(values)
        dtype = values.dtype
    if is_float8(dtype) or dtype in _UNSIGNED:
        values = values.to(torch.float32 if is_float8(dtype) else torch.int64)
    flat = values.reshape(-1).to(widest(values.device))
    count = flat.numel()
    places: dict[str, tuple[Any, int]] = {}
    if is_complex:
        places["nonzero"] = place(torch.count_nonzero(flat))
    if dtype.is_floating_point or dtype.itemsize == 8:
        kept = flat.abs() <= row_format.LARGEST
        places["kept"] = place(torch.count_nonzero(kept))
        flat = torch.where(kept, flat, 0.0)
    block = row_format.block_of(count)
    whole = count // block
    if whole:
        places["blocks"] = place(torch.linalg.vector_norm(flat[: whole * block].view(whole, block), dim=1))
    if whole * block < count:
        places["rest"] = place(torch.linalg.vector_norm(flat[whole * block :]))
    if count <= MOST_SIGNED:
        places["products"] = place(signs.of(flat.device, count) @ flat)
    else:
        places["sum"] = place(flat.sum())
    return count, places
