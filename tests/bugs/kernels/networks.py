"""Five small networks, and those of :mod:`.other_networks`, each with a loss and an optimizer, in four precisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from . import further_networks, library_networks, other_networks

#: Widths whose tiles have remainders: 40 is no multiple of 16.
WIDTH, HEADS, KV_HEADS, LENGTH, BATCH, VOCABULARY = 40, 4, 2, 12, 3, 50
PRECISIONS = ("float32", "bfloat16", "autocast", "float16")


class Attention(nn.Module):
    """Grouped queries with rotary positions, fused."""

    def __init__(self) -> None:
        super().__init__()
        self.size = WIDTH // HEADS
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * KV_HEADS * self.size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).view(BATCH, LENGTH, HEADS, self.size).transpose(1, 2)
        k, v = self.kv(x).view(BATCH, LENGTH, 2 * KV_HEADS, self.size).transpose(1, 2).chunk(2, dim=1)
        angles = torch.outer(
            torch.arange(LENGTH).float(), 100.0 ** (-torch.arange(0, self.size, 2).float() / self.size)
        )
        cos, sin = (torch.cat((table, table), -1).to(q.dtype) for table in (angles.cos(), angles.sin()))
        q, k = (one * cos + torch.cat((-one.chunk(2, -1)[1], one.chunk(2, -1)[0]), -1) * sin for one in (q, k))
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, dim=1) for one in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))


class DecoderBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.attention, self.between = (
            nn.RMSNorm(WIDTH, eps=1e-5),
            Attention(),
            nn.RMSNorm(WIDTH, eps=1e-5),
        )
        self.gate, self.up, self.down = nn.Linear(WIDTH, 72), nn.Linear(WIDTH, 72), nn.Linear(72, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(DecoderBlock() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens[:, 1:].flatten())


class EncoderBlock(nn.Module):
    """Attention in pieces, with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(padding[:, None, None, :], torch.finfo(scores.dtype).min)
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(EncoderBlock() for _ in range(2))
        self.pool, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        padding = torch.arange(LENGTH) >= torch.tensor([LENGTH, LENGTH - 2, LENGTH - 5])[:, None]
        x = self.norm(self.embedding(tokens[:, :LENGTH]) + self.positions(torch.arange(LENGTH)))
        for block in self.blocks:
            x = block(x, padding)
        return F.cross_entropy(self.head(torch.tanh(self.pool(x[:, 0]))), tokens[:, -1] % 7)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 10, 3, padding=1), nn.BatchNorm2d(10)
        self.conv2, self.norm2 = nn.Conv2d(10, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.conv3, self.norm3 = nn.Conv2d(12, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        pictures = torch.sin(tokens.float().mean() + torch.arange(6 * 3 * 100).float() ** 1.3).view(6, 3, 10, 10)
        x = F.relu(self.norm1(self.conv1(pictures.to(self.conv1.weight.dtype))))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = x + F.relu(self.norm3(self.conv3(x)))
        return F.cross_entropy(self.head(x.mean((2, 3))), tokens.flatten()[:6] % 7)


class Mixture(nn.Module):
    """Each token goes to two of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4, bias=False)
        self.up = nn.ModuleList(nn.Linear(WIDTH, 56) for _ in range(4))
        self.down = nn.ModuleList(nn.Linear(56, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        probabilities = torch.softmax(self.router(x).float(), -1)
        weights, chosen = probabilities.topk(2, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        result = torch.zeros_like(x)
        for number in range(4):
            token, place = torch.where(chosen == number)
            y = self.down[number](F.silu(self.up[number](x.index_select(0, token))))
            result = result.index_add(0, token, (y * weights[token, place, None]).to(x.dtype))
        used = F.one_hot(chosen, 4).float().mean((0, 1))
        return result, 4 * (used * probabilities.mean(0)).sum()


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.layers = nn.ModuleList(Mixture() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens[:, :-1].flatten())
        balance = torch.zeros(())
        for norm, layer in zip(self.norms, self.layers, strict=False):
            y, share = layer(norm(x))
            x, balance = x + y, balance + share
        return F.cross_entropy(self.head(self.norms[2](x)), tokens[:, 1:].flatten()) + 0.01 * balance


class Recurrent(nn.Module):
    """A layer of one call, and gates in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.layer = nn.LSTM(24, 32, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.gates, self.new = nn.Linear(64, 64), nn.Linear(64, 32)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.layer(self.embedding(tokens[:, :-1]))[0])
        state, losses = torch.zeros_like(x[:, 0]), []
        for place in range(6):
            z, r = torch.sigmoid(self.gates(torch.cat((x[:, place], state), -1))).chunk(2, -1)
            new = torch.tanh(self.new(torch.cat((x[:, place], r * state), -1)))
            state = (1 - z) * state + z * new
            losses.append(F.cross_entropy(self.head(state), tokens[:, place + 1]))
        return torch.stack(losses).mean()


@dataclass(frozen=True)
class Network:
    """``clip``: the norm that gradients are clipped to. ``averages``: they go through a collective in one buffer."""

    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    clip: float = 0.0
    averages: bool = False
    one_dnn: bool = True


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.05, foreach=False)


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3, foreach=False)


def _rms(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.5, foreach=False)


def _lists(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05, foreach=True)


NETWORKS = {
    "decoder": Network(Decoder, _adam, clip=1.0),
    "encoder": Network(Encoder, _adam, averages=True),
    "images": Network(Images, _sgd),
    "experts": Network(Experts, _adam),
    # What oneDNN has for LSTM knows no float16.
    "recurrent": Network(Recurrent, _adam, clip=0.5, one_dnn=False),
}
#: Nothing that the judge knows of healthy devices, and no limit, comes from these.
OTHERS = {
    "patches": Network(other_networks.Patches, _adam, clip=1.0),
    "denoiser": Network(other_networks.Denoiser, _adam),
    "messages": Network(other_networks.Messages, _sgd),
    "scan": Network(other_networks.Scan, _adam, clip=0.5),
    "translator": Network(other_networks.Translator, _rms),
}
#: Of kinds that neither of them is.
FURTHER = {
    "windows": Network(further_networks.Windows, _adam),
    "depthwise": Network(further_networks.Depthwise, _lists),
    "policy": Network(further_networks.Policy, _adam, clip=1.0),
    "clicks": Network(further_networks.Clicks, _rms),
    "student": Network(further_networks.Student, _lists),
    "bent": Network(further_networks.Bent, _adam),
    "chosen": Network(further_networks.Chosen, _adam),
    "wave": Network(further_networks.Wave, _adam, clip=1.0),
}
#: Models of Transformers, that neither the judge nor the bench was made with.
LIBRARY = {name: Network(partial(library_networks.Library, name), _lists, clip=1.0) for name in library_networks.TABLE}

ALL = {**NETWORKS, **OTHERS, **FURTHER, **LIBRARY}


class Training:
    """One network in a precision: ``float32``, ``bfloat16`` (all weights), ``autocast`` (in bfloat16) or ``float16``
    (autocast, with a scaler of the loss).
    """

    def __init__(self, network: str, precision: str) -> None:
        self.network = ALL[network]
        torch.manual_seed(1)
        self.model: Any = self.network.model()
        if precision == "bfloat16":
            self.model.bfloat16()
        half = {"autocast": torch.bfloat16, "float16": torch.float16}.get(precision)
        self.autocast: Any = torch.autocast("cpu", half) if half else nullcontext()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=precision == "float16")
        self.optimizer = self.network.optimizer(self.model.parameters())
        self.losses: list[float] = []

    def step(self, number: int) -> None:
        """One iteration."""
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(number))
        self.optimizer.zero_grad()
        with torch.backends.mkldnn.flags(enabled=self.network.one_dnn):
            with self.autocast:
                loss = self.model(tokens)
            self.scaler.scale(loss).backward()
        if self.network.averages:
            self._average()
        if self.network.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.network.clip, foreach=False)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.losses.append(loss.item())

    def _average(self) -> None:
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        buffer = torch.cat([one.flatten() for one in gradients])
        dist.all_reduce(buffer)
        for one, part in zip(gradients, buffer.split([one.numel() for one in gradients]), strict=True):
            one.copy_(part.view_as(one))
