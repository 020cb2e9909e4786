"""Parts as public models and threads write them in two ways; see ``modules``."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from rewritings.modules import LENGTH, WIDTH, Part


class RmsNormOfRoots(Part):
    """RMS norm in the type of its argument, by a root and a division."""

    def build(self) -> None:
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.norm(x)
        mean = x.square().sum(-1, keepdim=True) / (WIDTH - 1 if self.bug == "unbiased" else WIDTH)
        return x / torch.sqrt(mean + 1e-5) * self.norm.weight


class SwiGlu(Part):
    """Gate and value by one product or by two, and `silu` called or written out."""

    def build(self) -> None:
        self.up = nn.Parameter(torch.randn(2 * WIDTH, WIDTH) / 3)
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.down(F.silu(x @ self.up[:WIDTH].T) * (x @ self.up[WIDTH:].T))
        gate, value = F.linear(x, self.up).split(WIDTH, -1)
        if self.bug == "exchanged":
            gate, value = value, gate
        return self.down(gate / (1 + torch.exp(-gate)) * value)


class GroupedQueries(Part):
    """Heads of keys that serve several of queries: repeated, or by `enable_gqa`."""

    def build(self) -> None:
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).reshape(len(x), LENGTH, 4, 2).transpose(1, 2)
        k, v = (one.reshape(len(x), LENGTH, 2, 2).transpose(1, 2) for one in self.kv(x).chunk(2, -1))
        if not self.other:
            made = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            if self.bug == "repeat":
                k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
            else:
                k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
            made = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return made.transpose(1, 2).reshape(x.shape)


class RotaryOfComplex(Part):
    """Rotary positions by a product of complex numbers, or by cosine and sine of pairs."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).float()
        angle = torch.outer(torch.arange(LENGTH).float(), 10.0 ** -torch.arange(WIDTH // 2).float())
        if self.other:
            turn = torch.polar(torch.ones_like(angle), -angle if self.bug == "way" else angle)
            pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)
        cos, sin = angle.cos(), angle.sin()
        even, odd = y[..., 0::2], y[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)


class WeightNorm(Part):
    """A weight of a length and a direction, by torch's call or by hand."""

    def build(self) -> None:
        self.way, self.size = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Parameter(torch.rand(WIDTH, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return F.linear(x, torch._weight_norm(self.way, self.size, 0))
        length = self.way.norm(dim=0 if self.bug == "dim" else 1, keepdim=True)
        return F.linear(x, self.way * (self.size / length))


class Pointwise(Part):
    """A convolution of length one as a linear layer."""

    def build(self) -> None:
        self.conv = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.conv(x.transpose(1, 2)).transpose(1, 2)
        return F.linear(x, self.conv.weight.squeeze(-1), None if self.bug == "bias" else self.conv.bias)


class ChannelsLast(Part):
    """A convolution of images whose channels are last in memory."""

    def build(self) -> None:
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(len(x), 2, 4, 6)
        if self.other:
            y = y.contiguous(memory_format=torch.channels_last)
            y = y.flip(-1) if self.bug == "flipped" else y
        return F.relu(self.conv(y)).reshape(x.shape)


class GroupedConvolution(Part):
    """A convolution of groups as convolutions of each group."""

    def build(self) -> None:
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.transpose(1, 2)
        if not self.other:
            return self.conv(y).transpose(1, 2)
        weights, biases = self.conv.weight.chunk(2), self.conv.bias.chunk(2)
        made = [F.conv1d(*each, padding=1) for each in zip(y.chunk(2, 1), weights, biases, strict=True)]
        return torch.cat(made[::-1] if self.bug == "order" else made, 1).transpose(1, 2)


class Transposed(Part):
    """A transposed convolution as a product that is folded."""

    def build(self) -> None:
        self.conv = nn.ConvTranspose2d(2, 2, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(len(x), 2, 4, 6)[:, :, ::2, ::2]
        if not self.other:
            return self.conv(y).reshape(x.shape)
        columns = self.conv.weight.flatten(1).T @ y.flatten(2)
        made = F.fold(columns, (4, 6), 2, stride=2)
        return (made if self.bug == "bias" else made + self.conv.bias[:, None, None]).reshape(x.shape)


class LinearOfEinsum(Part):
    """A linear layer by `einsum`."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.linear(x)
        text = "bti,io->bto" if self.bug == "transposed" else "bti,oi->bto"
        return torch.einsum(text, x, self.linear.weight) + self.linear.bias


class Squeezed(Part):
    """Channels weighed by their average, by pooling layers or by `mean`."""

    def build(self) -> None:
        self.first, self.last = nn.Linear(WIDTH, 4), nn.Linear(4, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.other:
            mean = x.amax(1) if self.bug == "largest" else x.mean(1)
        else:
            mean = F.adaptive_avg_pool1d(x.transpose(1, 2), 1).squeeze(-1)
        return x * self.last(self.first(mean).relu()).sigmoid().unsqueeze(1)


class WholeAttention(Part):
    """torch's module for attention, or its products by hand with the same weights."""

    def build(self) -> None:
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.attention
        if not self.other:
            return own(x, x, x, need_weights=False)[0]
        q, k, v = F.linear(x, own.in_proj_weight, own.in_proj_bias).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in (q, k, v))
        scores = q @ k.mT / math.sqrt(WIDTH if self.bug == "scale" else WIDTH // 2)
        return own.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class PixelShuffle(Part):
    """Pixels from channels, by torch's call or by a permutation."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).transpose(1, 2).reshape(len(x), 8, 2, 3)
        if not self.other:
            return F.pixel_shuffle(y, 2).reshape(x.shape)
        y = y.reshape(len(x), 2, 2, 2, 2, 3)
        order = (0, 1, 4, 3, 5, 2) if self.bug == "order" else (0, 1, 4, 2, 5, 3)
        return y.permute(order).reshape(x.shape)


class Routed(Part):
    """The weights of the chosen experts: of all, then made to sum to one; or of the chosen scores alone."""

    def build(self) -> None:
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.Parameter(torch.randn(4, WIDTH, WIDTH) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x)
        if self.other:
            chosen, places = scores.softmax(-1).topk(2)
            chosen = chosen if self.bug == "sum" else chosen / chosen.sum(-1, keepdim=True)
        else:
            chosen, places = scores.topk(2)
            chosen = chosen.softmax(-1)
        each = torch.einsum("bti,eio->bteo", x, self.experts)
        taken = each.gather(2, places.unsqueeze(-1).expand(*places.shape, WIDTH))
        return (taken * chosen.unsqueeze(-1)).sum(2)


class LowRank(Part):
    """A low-rank addition to a weight: beside it, or merged into it."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.first, self.last = nn.Parameter(torch.randn(2, WIDTH) / 3), nn.Parameter(torch.randn(WIDTH, 2) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.linear(x) + x @ self.first.T @ self.last.T * 2.0
        share = 1.0 if self.bug == "share" else 2.0
        return F.linear(x, self.linear.weight + share * (self.last @ self.first), self.linear.bias)


class GluOfHalves(Part):
    """A gated linear unit by torch's call or by its halves."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return F.glu(self.linear(x))
        value, gate = self.linear(x).chunk(2, -1)
        return torch.tanh(gate) * value if self.bug == "tanh" else torch.mul(value, gate.sigmoid())


class Bags(Part):
    """Sums of rows of a table: at once, or looked up and summed."""

    def build(self) -> None:
        self.table = nn.Embedding(4, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x[..., :3] > 0).long() + torch.arange(3)
        rows = rows.flatten(0, 1).clamp(max=3)
        if not self.other:
            return F.embedding_bag(rows, self.table.weight, mode="sum").reshape(x.shape)
        found = self.table(rows)
        return (found.mean(1) if self.bug == "mean" else found.sum(1)).reshape(x.shape)


class Bilinear(Part):
    """A product of two arguments with a weight of three dimensions."""

    def build(self) -> None:
        self.both = nn.Bilinear(WIDTH, WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.both(x, x.roll(1, 1))
        second = x if self.bug == "same" else x.roll(1, 1)
        return torch.einsum("bti,oij,btj->bto", x, self.both.weight, second) + self.both.bias


class Recomputed(Part):
    """Two layers that are computed again for their backward pass."""

    def build(self) -> None:
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.layers(x)
        return checkpoint(self.layers, x * 1.02 if self.bug == "factor" else x, use_reentrant=False)


class Compiled(Part):
    """A function that torch.compile takes."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        """What is compiled."""
        return x * torch.sigmoid(1.1 * x if self.bug == "factor" else x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.compile(self.activation, backend="aot_eager")(y) if self.other else F.silu(y)


class Upsampled(Part):
    """Every second token twice, by `interpolate` or by repeating."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)[:, ::2]
        if not self.other:
            return F.interpolate(y.transpose(1, 2), scale_factor=2.0).transpose(1, 2)
        return y.repeat(1, 2, 1) if self.bug == "repeat" else y.repeat_interleave(2, 1)
