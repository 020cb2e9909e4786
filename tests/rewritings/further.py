"""More parts as public programs write them in two ways, in which terms cancel out or sums have another order; see
``modules``.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from rewritings.modules import LENGTH, WIDTH, Attention, Part


class SameValues(Attention):
    """Tokens that look at tokens whose values are all the same, so that gradients of scores are rounding alone."""

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = self.qkv(x).chunk(3, -1)
        return q, k, v[:, :1].expand_as(v) * (1.05 if self.bug == "value" else 1.0)

    def written(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return (q @ k.mT * scale).softmax(-1) @ v

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)


class Squares(Part):
    """Squares of distances to eight points, by differences or by products."""

    def build(self) -> None:
        self.linear, self.points = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.other:
            return -(y[:, :, None] - self.points).square().sum(-1) / WIDTH
        products = y @ self.points.T
        own, others = y.square().sum(-1, keepdim=True), self.points.square().sum(-1)
        return -(own + others - (1.9 if self.bug == "two" else 2.0) * products) / WIDTH


class VarianceOfSquares(Part):
    """A layer norm whose variance is the mean of squares less the square of the mean."""

    def build(self) -> None:
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.norm(x)
        mean, squares = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
        variance = squares if self.bug == "mean" else squares - mean.square()
        return (x - mean) * (variance + self.norm.eps).rsqrt() * self.norm.weight + self.norm.bias


class LinearAttention(Part):
    """Attention without a softmax: keys and values first, or queries and keys."""

    def build(self) -> None:
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if self.other:
            mixed = q @ (k.mT @ v) / (q @ k.sum(1, keepdim=True).mT)
            return self.out(mixed * (1.05 if self.bug == "factor" else 1.0))
        scores = q @ k.mT
        return self.out(scores / scores.sum(-1, keepdim=True) @ v)


class TanhOfSigmoid(Part):
    """`tanh` by `sigmoid`, and GELU by `erf`."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.other:
            return F.gelu(y) + y.tanh()
        grown = 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))
        return grown + (2 * torch.sigmoid((1.9 if self.bug == "two" else 2.0) * y) - 1)


class Patches(Part):
    """Patches by a convolution, or by a view and a product."""

    def build(self) -> None:
        self.conv = nn.Conv2d(2, WIDTH, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        images = x.reshape(len(x), 2, 4, 6)
        if not self.other:
            return self.conv(images).flatten(2).transpose(1, 2)
        cut = images.reshape(len(x), 2, 2, 2, 3, 2)
        order = (0, 2, 4, 1, 5, 3) if self.bug == "order" else (0, 2, 4, 1, 3, 5)
        rows = cut.permute(order).reshape(len(x), 6, 8)
        return F.linear(rows, self.conv.weight.flatten(1), self.conv.bias)


class MaskedMean(Part):
    """The mean of some tokens, by a product with a mask or by the sum of what is chosen."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        mask = torch.arange(LENGTH) < torch.tensor([[6], [4], [3], [1]])
        counts = mask.sum(1, keepdim=True).to(x.dtype)
        if not self.other:
            return x + (y * mask[..., None]).sum(1, keepdim=True) / counts[..., None]
        weight = mask.to(x.dtype) / (LENGTH if self.bug == "count" else counts)
        return x + torch.einsum("bl,bld->bd", weight, y)[:, None]


class LogSoftmax(Part):
    """A mixture by `log_softmax` and `exp`, or by `logsumexp`, or by `softmax`."""

    def build(self) -> None:
        self.linear, self.values = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.other:
            return y.softmax(-1) @ self.values
        return (y - y.logsumexp(-1, keepdim=True)).exp() @ (self.values.T if self.bug == "turned" else self.values)


class HeadsOfOutput(Part):
    """A projection of joined heads, or the sum of a projection of each."""

    def build(self) -> None:
        self.into, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x).tanh()
        if not self.other:
            return self.out(y)
        heads, weights = y.chunk(4, -1), self.out.weight.chunk(4, 1)
        made = [one @ weight.T for one, weight in zip(heads, weights, strict=True)]
        return sum(made[1:] if self.bug == "head" else made) + self.out.bias  # type: ignore[return-value]


class Biased(Attention):
    """A bias of scores by place, added by hand or handed to the fused call with the mask."""

    def bias(self) -> torch.Tensor:
        """The further away, the less."""
        places = torch.arange(LENGTH)
        return -0.3 * (places[:, None] - places).abs().to(self.out.weight.dtype)

    def written(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        scores = q @ k.mT * scale + self.bias()
        return scores.masked_fill(~self.mask(), float("-inf")).softmax(-1) @ v

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        seen = torch.where(self.mask(), self.bias(), float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
