"""Five networks on which nothing was chosen: no limit, no scale and no class of the judge comes from them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

SIZE, HEADS = 36, 3


def numbers(tokens: torch.Tensor, *shape: int) -> torch.Tensor:
    """Numbers between -1.5 and 1.5 that look like chance, the same on each device."""
    places = torch.arange(math.prod(shape))
    return (((places * places * 37 + places * 11 + tokens.sum()) % 1009).float() / 336 - 1.5).view(shape)


class PatchBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.up, self.down = nn.Linear(SIZE, 3 * SIZE), nn.Linear(3 * SIZE, SIZE)
        self.scale = nn.Parameter(torch.full((SIZE,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, SIZE)
        x = x + self.scale * self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Patches(nn.Module):
    """Pictures in patches, two views of each, and a contrastive loss between them."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, SIZE, 4, stride=4)
        self.first, self.positions = (
            nn.Parameter(torch.randn(1, 1, SIZE) * 0.1),
            nn.Parameter(torch.randn(1, 10, SIZE) * 0.1),
        )
        self.blocks = nn.ModuleList(PatchBlock() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(SIZE), nn.Linear(SIZE, 20)
        self.warmth = nn.Parameter(torch.tensor(1.5))

    def _view(self, pictures: torch.Tensor) -> torch.Tensor:
        x = self.patch(pictures).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return F.normalize(self.head(self.norm(x)[:, 0]), dim=-1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        pictures = numbers(tokens, 6, 3, 12, 12).to(self.patch.weight.dtype)
        one, two = self._view(pictures), self._view(pictures.flip(-1) * 0.9)
        scores = self.warmth.exp() * one @ two.t()
        target = torch.arange(6)
        return (F.cross_entropy(scores, target) + F.cross_entropy(scores.t(), target)) / 2


class ResidualBlock(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, into), nn.Conv2d(into, out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.time, self.skip = nn.Linear(24, out), nn.Conv2d(into, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Denoiser(nn.Module):
    """Down and up again, with a jump, group norms and the time as sines."""

    def __init__(self) -> None:
        super().__init__()
        self.time1, self.time2 = nn.Linear(16, 24), nn.Linear(24, 24)
        self.enter, self.one = nn.Conv2d(3, 8, 3, padding=1), ResidualBlock(8, 12)
        self.down, self.two = nn.Conv2d(12, 12, 3, stride=2, padding=1), ResidualBlock(12, 16)
        self.up, self.three = nn.Conv2d(16, 12, 3, padding=1), ResidualBlock(24, 8)
        self.norm, self.leave = nn.GroupNorm(2, 8), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        dtype = self.enter.weight.dtype
        clean, noise = numbers(tokens, 3, 3, 8, 8), numbers(tokens * 3 + 1, 3, 3, 8, 8)
        when = tokens[:, 0].float() / 50
        angles = when[:, None] * 100 * torch.exp(-torch.arange(8).float() * (math.log(100.0) / 8))
        time = self.time2(F.silu(self.time1(torch.cat((angles.sin(), angles.cos()), -1).to(dtype))))
        level = torch.cos(when * math.pi / 2)[:, None, None, None]
        noised = (level * clean + (1 - level**2).sqrt() * noise).to(dtype)
        high = self.one(self.enter(noised), time)
        low = self.two(self.down(high), time)
        x = torch.cat((high, self.up(F.interpolate(low, scale_factor=2.0, mode="nearest"))), 1)
        made = self.leave(F.silu(self.norm(self.three(x, time))))
        return F.mse_loss(made.float(), noise)


class Messages(nn.Module):
    """Attention along the edges of a graph, and what each node gets is a sum over its edges."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = nn.Embedding(50, 20)
        self.turn = nn.ModuleList(nn.Linear(20, 20, bias=False) for _ in range(2))
        self.score = nn.ModuleList(nn.Linear(40, 1) for _ in range(2))
        self.norm = nn.ModuleList(nn.BatchNorm1d(20) for _ in range(2))
        self.head = nn.Linear(40, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        kinds = tokens.flatten()
        count = len(kinds)
        source = torch.arange(count).repeat(4)
        target = (source * 7 + torch.arange(4).repeat_interleave(count) * 5 + 3) % count
        x = self.nodes(kinds)
        for turn, score, norm in zip(self.turn, self.score, self.norm, strict=True):
            y = turn(x)
            weight = F.leaky_relu(score(torch.cat((y[source], y[target]), -1)), 0.2)
            weight = torch.exp(weight - weight.max())
            total = torch.zeros_like(weight[:count]).index_add(0, target, weight)
            share = weight / total[target]
            got = torch.zeros_like(y).scatter_add(0, target[:, None].expand(-1, y.shape[1]), share * y[source])
            x = x + F.elu(norm(got))
        pairs = self.head(torch.cat((x[source[:60]], x[target[:60]]), -1))[:, 0]
        wanted = (kinds[source[:60]] > kinds[target[:60]]).to(pairs.dtype)
        return F.binary_cross_entropy_with_logits(pairs, wanted)


class ScanBlock(nn.Module):
    """A state space: a convolution along the time, a step size, and a state that decays."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(24))
        self.enter, self.leave = nn.Linear(24, 80, bias=False), nn.Linear(40, 24, bias=False)
        self.along = nn.Conv1d(40, 40, 3, padding=2, groups=40)
        self.sizes, self.of_state = nn.Linear(40, 40), nn.Linear(40, 2 * 6, bias=False)
        self.decay = nn.Parameter(torch.log(torch.arange(1, 7).float()).repeat(40, 1))
        self.jump = nn.Parameter(torch.ones(40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        normal = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * self.weight
        y, gate = self.enter(normal).chunk(2, -1)
        y = F.silu(self.along(y.transpose(1, 2))[..., :length]).transpose(1, 2)
        size = F.softplus(self.sizes(y))
        b, c = self.of_state(y).chunk(2, -1)
        kept = torch.exp(-size[..., None] * torch.exp(self.decay))
        added = (size * y)[..., None] * b[:, :, None, :]
        state, made = torch.zeros_like(added[:, 0]), []
        for place in range(length):
            state = kept[:, place] * state + added[:, place]
            made.append((state * c[:, place, None, :]).sum(-1))
        return x + self.leave((torch.stack(made, 1) + y * self.jump) * F.silu(gate))


class Scan(nn.Module):
    """Words, with the same weights to read and to write."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 24)
        self.blocks = nn.ModuleList(ScanBlock() for _ in range(2))
        self.norm = nn.LayerNorm(24)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens[:, :6])
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.words.weight.t()
        logits = 20.0 * torch.tanh(logits / 20.0)
        losses = torch.logsumexp(logits.float(), -1) - logits.float().gather(-1, tokens[:, 1:7, None])[..., 0]
        return losses.mean() + 1e-3 * torch.logsumexp(logits.float(), -1).square().mean()


class Crossing(nn.Module):
    """Attention with a bias of distances; of one text to itself, or to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32, bias=False) for _ in range(4))
        self.bias = nn.Embedding(8, 4)

    def forward(self, x: torch.Tensor, other: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
        batch, mine, theirs = len(x), x.shape[1], other.shape[1]
        q, k, v = (layer(one).view(batch, -1, 4, 8) for layer, one in ((self.q, x), (self.k, other), (self.v, other)))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
        far = (torch.arange(mine)[:, None] - torch.arange(theirs)).abs().clamp(max=7)
        scores = scores + self.bias(far).permute(2, 0, 1)
        if hidden is not None:
            scores = scores + torch.where(hidden, -1e4, 0.0).to(scores.dtype)
        shares = F.softmax(scores.float(), -1).to(v.dtype)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, mine, 32))


class TranslatorLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(32, eps=1e-6) for _ in range(3))
        self.itself, self.other = Crossing(), Crossing()
        self.gate, self.up, self.down = nn.Linear(32, 48, bias=False), nn.Linear(32, 48), nn.Linear(48, 32)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None, hidden: torch.Tensor | None) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.itself(y, y, hidden)
        if other is not None:
            x = x + self.other(self.norms[1](x), other, None)
        y = self.norms[2](x)
        return x + self.down(F.relu(self.gate(y)).square() + F.gelu(self.up(y)))


class Translator(nn.Module):
    """An encoder and a decoder, and a loss with smoothed labels."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.read, self.write = nn.Embedding(50, 32), TranslatorLayer(), TranslatorLayer()
        self.norm, self.head = nn.RMSNorm(32, eps=1e-6), nn.Linear(32, 50, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        text = self.read(self.words(tokens[:, :7]), None, None)
        hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
        made = self.write(self.words(tokens[:, 6:12]), self.norm(text), hidden)
        sure = F.log_softmax(self.head(self.norm(made)).float(), -1)
        wanted = F.one_hot(tokens[:, 7:13], 50).float() * 0.9 + 0.1 / 50
        return F.kl_div(sure.flatten(0, 1), wanted.flatten(0, 1), reduction="batchmean")
