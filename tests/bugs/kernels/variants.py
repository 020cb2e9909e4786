"""How healthy devices compute: orders of sums, types of accumulators, functions that are approximated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

_HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Kit:
    """What a device makes of sums, products and functions; arguments and results are in float32, or float64.

    ``tile``: so many terms are summed at once. ``order``: of the tiles: ``forward``, ``backward``, or ``strided`` (each
    takes every n-th term). ``double``: everything inside in float64. ``mantissa``: bits that products of float32 read
    of their inputs, 0: all. ``half_sums``: sums of tiles of half types are kept in these. ``fast``: functions are
    approximated. ``fused``: what is multiplied and added is rounded once. ``one_pass``: variances from sums of squares.
    """

    tile: int = 16
    order: str = "forward"
    double: bool = False
    mantissa: int = 0
    half_sums: bool = False
    fast: bool = False
    fused: bool = False
    one_pass: bool = False
    #: The type that the operator at hand has.
    dtype: torch.dtype = torch.float32

    def of(self, dtype: torch.dtype) -> Kit:
        """The same, for an operator in this type."""
        return self if dtype == self.dtype else replace(self, dtype=dtype)

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        """The values as they are inside of a kernel."""
        return x.double() if self.double else x.float()

    def product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The product of matrices, or of stacks of them."""
        a, b = self.wide(a), self.wide(b)
        if self.mantissa and self.dtype == torch.float32:
            a, b = to_bits(a, self.mantissa), to_bits(b, self.mantissa)
        parts = self._parts(a.shape[-1])
        found = None
        for at in parts:
            part = torch.matmul(a[..., at], b[..., at, :])
            found = part if found is None else found + part
            if self.half_sums and self.dtype in _HALF:
                found = found.to(self.dtype).float()
        return torch.matmul(a, b) if found is None else found

    def total(self, x: torch.Tensor, dims: tuple[int, ...] | None = None, keep: bool = False) -> torch.Tensor:
        """The sum over these dimensions, or over all."""
        x = self.wide(x)
        dims = tuple(range(x.dim())) if not dims else tuple(sorted(dim % x.dim() for dim in dims))
        if not dims:
            return x.clone()
        kept = [dim for dim in range(x.dim()) if dim not in dims]
        flat = x.permute(*kept, *dims).reshape(*[x.shape[dim] for dim in kept], -1)
        found = torch.zeros(flat.shape[:-1], dtype=flat.dtype)
        for at in self._parts(flat.shape[-1]):
            found = found + flat[..., at].sum(-1)
        if keep:
            found = found.reshape([1 if dim in dims else size for dim, size in enumerate(x.shape)])
        return found

    def _parts(self, count: int) -> list[slice]:
        if self.order == "strided":
            number = max(1, math.ceil(count / self.tile))
            return [slice(start, None, number) for start in range(number)]
        parts = [slice(start, min(start + self.tile, count)) for start in range(0, count, self.tile)]
        return parts[::-1] if self.order == "backward" else parts

    def moments(self, x: torch.Tensor, dims: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance (of all elements, not of all but one) over dimensions, which are kept."""
        x = self.wide(x)
        count = math.prod(x.shape[dim] for dim in dims)
        mean = self.total(x, dims, keep=True) / count
        if self.one_pass:
            return mean, (self.total(x * x, dims, keep=True) / count - mean * mean).clamp_min(0.0)
        return mean, self.total((x - mean) ** 2, dims, keep=True) / count

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        """e to the power of x."""
        x = self.wide(x)
        return torch.exp2(x * math.log2(math.e)) if self.fast else torch.exp(x)

    def sigmoid(self, x: torch.Tensor) -> torch.Tensor:
        """1 / (1 + e to the power of -x)."""
        return 1.0 / (1.0 + self.exp(-self.wide(x)))

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        """By the exponential, where functions are approximated."""
        x = self.wide(x)
        return 2.0 * self.sigmoid(2.0 * x) - 1.0 if self.fast else torch.tanh(x)

    def erf(self, x: torch.Tensor) -> torch.Tensor:
        """Abramowitz and Stegun 7.1.26 (1.5e-7), where functions are approximated."""
        x = self.wide(x)
        if not self.fast:
            return torch.erf(x)
        t = 1.0 / (1.0 + 0.3275911 * x.abs())
        series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
        return x.sign() * (1.0 - series * self.exp(-x * x))

    def cos(self, x: torch.Tensor) -> torch.Tensor:
        """By the sine of another angle, where functions are approximated."""
        x = self.wide(x)
        return torch.sin(x + math.pi / 2) if self.fast else torch.cos(x)

    def sin(self, x: torch.Tensor) -> torch.Tensor:
        """By the cosine of another angle, where functions are approximated."""
        x = self.wide(x)
        return torch.cos(x - math.pi / 2) if self.fast else torch.sin(x)

    def rsqrt(self, x: torch.Tensor) -> torch.Tensor:
        """One step of Newton's from an estimate of 13 bits, where functions are approximated."""
        x = self.wide(x)
        if not self.fast:
            return torch.rsqrt(x)
        found = to_bits(torch.rsqrt(x).float(), 13).to(x.dtype)
        return found * (1.5 - 0.5 * x * found * found)

    def added(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """a + b * c."""
        if self.fused:
            return (a.double() + b.double() * c.double()).to(self.wide(a).dtype)
        return self.wide(a) + (self.wide(b) * self.wide(c)).to(self.dtype).to(self.wide(a).dtype)


def to_bits(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Float32 rounded to a mantissa of so many bits, to the nearest, to even of two."""
    if x.dtype != torch.float32:
        return to_bits(x.float(), bits).to(x.dtype)
    lost = 23 - bits
    whole = x.contiguous().view(torch.int32)
    half = (1 << (lost - 1)) - 1
    return ((whole + half + (whole >> lost & 1)) >> lost << lost).view(torch.float32)


_TILES = Kit(tile=8, one_pass=True)
_SPLITS = Kit(tile=24, order="backward", fused=True)
_CORES = Kit(tile=16, order="strided", mantissa=10, fused=True)
_HALVES = Kit(tile=16, order="forward", half_sums=True)
_FAST = Kit(tile=32, order="strided", fast=True, fused=True)
_WIDE = Kit(tile=1 << 20, double=True, fused=True)

#: A device has one kit, or two that take turns from call to call.
VARIANTS: dict[str, tuple[Kit, ...]] = {
    "tiles": (_TILES,),
    "splits": (_SPLITS,),
    "cores": (_CORES,),
    "halves": (_HALVES,),
    "fast": (_FAST,),
    "wide": (_WIDE,),
    "tiles+fast": (_TILES, _FAST),
    "wide+cores": (_WIDE, _CORES),
}
