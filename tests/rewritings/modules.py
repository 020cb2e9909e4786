"""Parts of a model in two ways. Each takes ``other``, whether it is the rewritten one, and ``bug``, what is wrong with
it, and maps numbers of shape (4, 6, 8) to numbers of this shape.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LENGTH = 8, 6


class Part(nn.Module):
    """A part of a model: ``other`` if it is the rewritten one, with ``bug`` in it."""

    def __init__(self, other: bool, bug: str) -> None:
        super().__init__()
        self.other, self.bug = other, bug
        self.build()

    def build(self) -> None:
        """Make the parameters, which both ways have."""


def _images(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], 2, 4, 6)


class Unfolded(Part):
    """A convolution as a product with what `unfold` gives."""

    def build(self) -> None:
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, conv = _images(x), self.conv
        if not self.other:
            return conv(y).reshape(x.shape)
        columns = F.unfold(y, 3, padding=1)
        if self.bug == "factor":
            columns = columns * 1.02
        made = conv.weight.flatten(1) @ columns
        return (made if self.bug == "bias" else made + conv.bias[:, None]).reshape(x.shape)


class Shifted(Part):
    """A convolution over time as the sum of shifted products."""

    def build(self) -> None:
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.conv(x.transpose(1, 2)).transpose(1, 2)
        padded = F.pad(x, (0, 0, 1, 1))
        made = self.conv.bias
        for place in range(2 if self.bug == "tap" else 3):
            made = made + padded[:, place : place + LENGTH] @ self.conv.weight[:, :, place].T
        return made


class Depthwise(Part):
    """A convolution of each channel by itself as products element by element."""

    def build(self) -> None:
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=2, groups=WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.conv(x.transpose(1, 2))[..., :LENGTH].transpose(1, 2)
        padded = F.pad(x, (0, 0, 1, 1) if self.bug == "centred" else (0, 0, 2, 0))
        windows = padded.unfold(1, 3, 1)
        return torch.einsum("btcw,cw->btc", windows, self.conv.weight[:, 0]) + self.conv.bias


class Pooled(Part):
    """An average over windows by `mean`, spread again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.other:
            made = x.view(len(x), LENGTH, WIDTH // 2, 2).mean(-1) * (2.0 if self.bug == "sum" else 1.0)
        else:
            made = F.avg_pool1d(x, 2)
        return x + made.repeat_interleave(2, -1)


class BatchNorm(Part):
    """Batch norm by hand, with its running averages."""

    def build(self) -> None:
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, norm = x.flatten(0, 1), self.norm
        if not self.other:
            return norm(y).view(x.shape)
        mean, var, n = y.mean(0), y.var(0, unbiased=False), len(y)
        keep = 0.99 if self.bug == "decay" else 0.9
        with torch.no_grad():
            norm.num_batches_tracked += 1
            norm.running_mean.mul_(keep).add_(0.1 * mean)
            norm.running_var.mul_(keep).add_(0.1 * var * n / (n - 1))
        eps = 1e-2 if self.bug == "eps" else norm.eps
        return ((y - mean) / (var + eps).sqrt() * norm.weight + norm.bias).view(x.shape)


class BatchNormLerped(Part):
    """Batch norm by statistics that come together, and averages by `lerp_`."""

    def build(self) -> None:
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, norm = x.flatten(0, 1), self.norm
        if not self.other:
            return norm(y).view(x.shape)
        var, mean = torch.var_mean(y, 0, correction=0)
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean.detach(), 0.2 if self.bug == "decay" else 0.1)
        norm.running_var.lerp_(var.detach() * (len(y) / (len(y) - 1)), 0.1)
        scale = norm.weight * torch.rsqrt(var + norm.eps)
        return torch.addcmul(norm.bias - mean * scale, y, scale).view(x.shape)


class LayerNorm(Part):
    """Layer norm by hand."""

    def build(self) -> None:
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.norm(x)
        centred = x - x.mean(-1, keepdim=True)
        square = centred.pow(2)
        var = square.sum(-1, keepdim=True) / (WIDTH - 1) if self.bug == "unbiased" else square.mean(-1, keepdim=True)
        eps = 1e-2 if self.bug == "eps" else self.norm.eps
        return centred / (var + eps).sqrt() * self.norm.weight + self.norm.bias


class GroupNorm(Part):
    """Group norm by hand."""

    def build(self) -> None:
        self.norm = nn.GroupNorm(2, LENGTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = self.norm
        if not self.other:
            return norm(x)
        y = x.view(len(x), 3 if self.bug == "groups" else 2, -1)
        y = (y - y.mean(-1, keepdim=True)) * torch.rsqrt(y.var(-1, keepdim=True, unbiased=False) + norm.eps)
        return y.view_as(x) * norm.weight[:, None] + norm.bias[:, None]


class InstanceNorm(Part):
    """Instance norm as a group norm of one channel each."""

    def build(self) -> None:
        self.norm = nn.InstanceNorm1d(LENGTH, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = self.norm
        if not self.other:
            return norm(x)
        eps = 1e-1 if self.bug == "eps" else norm.eps
        return F.group_norm(x, LENGTH, norm.weight, norm.bias, eps)


class RmsNorm(Part):
    """RMS norm by hand, computed in float32 as models have it."""

    def build(self) -> None:
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.norm(x)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + (1e-2 if self.bug == "eps" else 1e-5))
        return wide.to(x.dtype) * self.norm.weight


class Normalized(Part):
    """Rows of length one by hand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return F.normalize(x, dim=-1) * 3
        return x / x.norm(p=1 if self.bug == "norm" else 2, dim=-1, keepdim=True).clamp_min(1e-12) * 3


class Attention(Part):
    """Causal self-attention; ``write`` says how the reference and the rewritten one compute it."""

    heads = 2

    def build(self) -> None:
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (len(x), LENGTH, self.heads, WIDTH // self.heads)
        q, k, v = (one.reshape(shape).transpose(1, 2) for one in self.split(x))
        scale = 1 / math.sqrt(shape[-1]) * (1.1 if self.bug == "scale" else 1.0)
        mixed = (self.rewritten if self.other else self.written)(q, k, v, scale)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values."""
        return self.qkv(x).chunk(3, -1)

    def weights(self, q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
        """Scores that see no later token."""
        scores = q @ k.transpose(-2, -1) * scale
        return scores.masked_fill(~self.mask(), float("-inf"))

    @staticmethod
    def mask() -> torch.Tensor:
        """Which token sees which."""
        return torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()

    def written(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        """The reference's way."""
        return self.weights(q, k, scale).softmax(-1) @ v

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        """The candidate's way."""
        return self.written(q, k, v, scale)


class FusedAttention(Attention):
    """Attention by hand in the place of the fused call."""

    def written(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return self.weights(q, k, scale).softmax(-1) @ v


class AttentionOfExp(Attention):
    """Softmax by `exp` and a division."""

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        scores = self.weights(q, k, scale)
        grown = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        return grown / grown.sum(-1, keepdim=True) @ v


class AttentionOfExpCast(Attention):
    """The same between two casts that both sides make, and that do nothing in float32."""

    def written(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        return self.weights(q, k, scale).float().softmax(-1).to(v.dtype) @ v

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        scores = self.weights(q, k, scale).float()
        grown = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        return (grown / grown.sum(-1, keepdim=True)).to(v.dtype) @ v


class AttentionOfEinsum(Attention):
    """`einsum` for both products."""

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
        scores = scores.masked_fill(~self.mask(), float("-inf"))
        return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)


class AttentionScaledBefore(Attention):
    """Queries are scaled, and a mask is added."""

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        mask = torch.full((LENGTH, LENGTH), float("-inf"), dtype=q.dtype).triu(1)
        return ((q * scale) @ k.transpose(-2, -1) + mask).softmax(-1) @ v


class AttentionHeadByHead(Attention):
    """A loop over heads."""

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        made = [
            self.written(q[:, head], k[:, 0 if self.bug == "head" else head], v[:, head], scale)
            for head in range(self.heads)
        ]
        return torch.stack(made, 1)


class AttentionSeparate(Attention):
    """One product for queries, keys and values in the place of three."""

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.other:
            return self.qkv(x).split(WIDTH, -1)
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        q, k, v = (F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True))
        return q, k, v


class AttentionInBlocks(Attention):
    """Softmax over blocks of keys with a running maximum, as fused kernels do it."""

    def rewritten(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        scores = self.weights(q, k, scale)
        top = torch.full_like(scores[..., :1], float("-inf"))
        total, mixed = torch.zeros_like(top), torch.zeros_like(q)
        for part, value in zip(scores.split(2, -1), v.split(2, -2), strict=True):
            new = torch.maximum(top, part.detach().amax(-1, keepdim=True))
            grown, shrunk = (part - new).exp(), (top - new).exp()
            total = total * shrunk + grown.sum(-1, keepdim=True)
            mixed = (mixed if self.bug == "rescale" else mixed * shrunk) + grown @ value
            top = new
        return mixed / total


class LinearParts(Part):
    """A linear layer as a product and a sum, and as `addmm`."""

    def build(self) -> None:
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.first, self.second
        if not self.other:
            return second(first(x).tanh())
        y = torch.einsum("btc,oc->bto", x, first.weight)
        y = (y if self.bug == "bias" else y + first.bias).tanh()
        return torch.addmm(second.bias, y.flatten(0, 1), second.weight.T).view(x.shape)


class ColumnParts(Part):
    """The hidden columns in two halves, whose products are summed, as tensor-parallel layers do it."""

    def build(self) -> None:
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return self.down(F.silu(self.up(x)))
        made = torch.zeros_like(x)
        for weight, bias, down in zip(
            self.up.weight.chunk(2), self.up.bias.chunk(2), self.down.weight.chunk(2, 1), strict=True
        ):
            made = made + F.linear(F.silu(F.linear(x, weight, bias)), down, self.down.bias if self.bug else None)
        return made if self.bug else made + self.down.bias


class Gated(Part):
    """A gated layer: `silu` by hand, gate and value from one product in the place of two."""

    def build(self) -> None:
        self.both = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            gate, value = self.both(x).chunk(2, -1)
            return F.silu(gate) * value
        weight, bias = self.both.weight, self.both.bias
        gate = F.linear(x, weight[:WIDTH], bias[:WIDTH])
        value = F.linear(x, weight[WIDTH:], bias[WIDTH:])
        if self.bug == "exchanged":
            gate, value = value, gate
        return gate * torch.sigmoid(gate) * value


class Gelus(Part):
    """Both forms of gelu by hand."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.other:
            return F.gelu(self.linear(F.gelu(x)), approximate="tanh")
        y = self.linear(0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0))))
        factor = 0.4 if self.bug == "factor" else 0.044715
        return 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + factor * y.pow(3))))


class AddedProducts(Part):
    """`addcmul`, `lerp` and `addcdiv` in the place of a product and a sum."""

    def build(self) -> None:
        self.gate, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.gate(x).sigmoid(), self.value(x)
        if not self.other:
            y = x + gate * value
            return y * (1 - gate) + value * gate
        y = torch.addcmul(x, gate, value, value=1.1 if self.bug == "factor" else 1.0)
        return torch.lerp(y, value, gate)


class InPlace(Part):
    """Writes in place in the place of new tensors."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.other:
            return torch.relu(y * 1.5 + x)
        y = y.mul_(1.6 if self.bug == "factor" else 1.5)
        return F.relu(y.add_(x), inplace=True)


class Regrouped(Part):
    """Halves in another order, by other calls."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.other:
            first, second = y.chunk(2, -1)
            return torch.cat([second, first.tanh()], -1) + torch.flip(x, [1])
        second, first = y[..., WIDTH // 2 :], y.narrow(-1, 0, WIDTH // 2)
        both = [first.tanh(), second] if self.bug == "order" else [second, first.tanh()]
        made = torch.stack(both, -2).reshape(x.shape)
        return made + x[:, torch.arange(LENGTH - 1, -1, -1)]


class Rotary(Part):
    """Rotary positions by complex numbers' parts in the place of a rotation of halves."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        half = WIDTH // 2
        angle = torch.outer(torch.arange(LENGTH).float(), 10.0 ** -torch.arange(half).float())
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second = y[..., :half], y[..., half:]
        if not self.other:
            turned = torch.cat([-second, first], -1)
            return y * torch.cat([cos, cos], -1) + turned * torch.cat([sin, sin], -1)
        sign = -1.0 if self.bug == "sign" else 1.0
        return torch.cat([first * cos - second * sin * sign, second * cos + first * sin], -1)


class DoesNothing(Part):
    """Calls that do nothing on one side alone."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.other:
            y = y.contiguous().to(y.dtype).reshape(y.shape).view_as(y) + 0.0
            y = y.clone() if self.bug != "factor" else y * 1.05
            y = F.dropout(y, 0.5, False).expand(y.shape)
        return y.tanh()


class OneHot(Part):
    """A table looked up by a product with rows of a unit matrix, and a choice of elements by a sum."""

    def build(self) -> None:
        self.table = nn.Embedding(5, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = (torch.arange(LENGTH) * 2) % 5
        if not self.other:
            rows, chosen = self.table(places), x.gather(-1, places.expand(len(x), -1)[..., None])
        else:
            asked = (places + 1) % 5 if self.bug == "shifted" else places
            rows = F.one_hot(asked, 5).to(x.dtype) @ self.table.weight
            chosen = (x * F.one_hot(places, WIDTH).to(x.dtype)).sum(-1, keepdim=True)
        return x * chosen + rows


class Experts(Part):
    """Experts by a loop over those that are chosen, or all of them weighted."""

    def build(self) -> None:
        self.router = nn.Linear(WIDTH, 3)
        self.experts = nn.Parameter(torch.randn(3, WIDTH, WIDTH) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.flatten(0, 1)
        probs = self.router(y).softmax(-1)
        weight, place = probs.max(-1)
        if not self.other:
            made = torch.stack([y @ one for one in self.experts], 1)
            mixed = (made * F.one_hot(place, 3).to(x.dtype)[..., None]).sum(1) * weight[:, None]
            return x + mixed.view(x.shape)
        mixed = torch.zeros_like(y)
        for number in range(3):
            (rows,) = torch.where(place == number)
            made = y[rows] @ self.experts[number]
            mixed = mixed.index_add(0, rows, made if self.bug == "weight" else made * weight[rows][:, None])
        return x + mixed.view(x.shape)


class Means(Part):
    """Averages and variances by sums of products."""

    def build(self) -> None:
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.other:
            return y - y.mean(1, keepdim=True) + y.std(-1, keepdim=True)
        even = torch.full((1, LENGTH), 1 / (LENGTH - 1 if self.bug == "count" else LENGTH), dtype=x.dtype)
        far = y - y.sum(-1, keepdim=True) / WIDTH
        return y - even @ y + (far.square().sum(-1, keepdim=True) / (WIDTH - 1)).sqrt()
