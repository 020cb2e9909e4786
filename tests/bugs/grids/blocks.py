"""Building blocks: modules that take and give a tensor of :data:`SHAPE`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

BATCH, LENGTH, WIDTH, HEADS = 4, 8, 16, 4
SHAPE = (BATCH, LENGTH, WIDTH)
Function = Callable[[Any, torch.Tensor], torch.Tensor]


class Block(nn.Module):
    """A module that a program writes: ``function`` gets it and what it is given, ``inside`` are its own."""

    def __init__(self, function: Function, **inside: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in inside.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def linear(wide: int = WIDTH, given: int = WIDTH) -> nn.Linear:
    return nn.Linear(given, wide)


def weight(*shape: int, scale: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(3)) * scale)


def along(function: Function, **inside: Any) -> Block:
    """Channels first, as convolutions and some norms take them."""
    return Block(lambda own, x: function(own, x.transpose(1, 2)).transpose(1, 2), **inside)


def image(function: Function, **inside: Any) -> Block:
    """The same elements as images of 4 by 4 with 8 channels."""
    return Block(lambda own, x: function(own, x.reshape(BATCH, 8, 4, 4)).reshape(SHAPE), **inside)


def attention(mix: Callable[..., torch.Tensor]) -> Block:
    """``mix`` gets query, key and value, by heads."""

    def forward(own: Any, x: torch.Tensor) -> torch.Tensor:
        parts = [part.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for part in own.qkv(x).chunk(3, -1)]
        return own.out(mix(*parts).transpose(1, 2).reshape(SHAPE))

    return Block(forward, qkv=linear(3 * WIDTH), out=linear())


def by_hand(q: Any, k: Any, v: Any, scale: float = 0.5, bias: Any = 0.0) -> Any:
    scores = q @ k.transpose(-1, -2) * scale + bias
    return F.softmax(scores.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -math.inf), -1) @ v


def sliding(q: Any, k: Any, v: Any) -> Any:
    place = torch.arange(LENGTH)
    apart = place[:, None] - place
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(apart >= 0) & (apart < 3))


def with_positions(q: Any, k: Any, v: Any) -> Any:
    slopes = torch.tensor([0.5 ** (head + 1) for head in range(HEADS)]).view(1, HEADS, 1, 1)
    return by_hand(q, k, v, bias=(-torch.arange(LENGTH) * slopes).to(q.dtype))


def without_softmax(q: Any, k: Any, v: Any) -> Any:
    q, k = F.elu(q) + 1, F.elu(k) + 1
    sums = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
    whole = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2))[..., None]
    return torch.einsum("bhtd,bhtde->bhte", q, sums) / (whole + 1e-6)


def root_mean_square(own: Any, x: torch.Tensor) -> torch.Tensor:
    return own.scale * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def centred(own: Any, x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)


def state_space(own: Any, x: torch.Tensor) -> torch.Tensor:
    steps, rates = F.softplus(own.steps(x)), -torch.exp(own.rates).to(x.dtype)
    into, out = own.ends(x).chunk(2, -1)
    state, given = x.new_zeros(BATCH, WIDTH, 4), []
    for t in range(LENGTH):
        state = torch.exp(steps[:, t, :, None] * rates) * state
        state = state + steps[:, t, :, None] * into[:, t, None] * x[:, t, :, None]
        given.append((state * out[:, t, None]).sum(-1))
    return torch.stack(given, 1)


def recurrent_cell(own: Any, x: torch.Tensor) -> torch.Tensor:
    state, given = x.new_zeros(BATCH, WIDTH), []
    for t in range(LENGTH):
        state = own.cell(x[:, t], state)
        given.append(state)
    return torch.stack(given, 1)


def experts(own: Any, x: torch.Tensor) -> torch.Tensor:
    rows = x.reshape(-1, WIDTH)
    weights, chosen = F.softmax(own.router(rows).float(), -1).topk(2, -1)
    given = torch.zeros_like(rows)
    for number, expert in enumerate(own.experts):
        row, slot = (chosen == number).nonzero(as_tuple=True)
        given = given.index_add(0, row, (expert(rows[row]) * weights[row, slot, None]).to(given.dtype))
    return given.view_as(x)


def squeezed(own: Any, x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(own.up(F.relu(own.down(x.mean((2, 3))))))[:, :, None, None]


def residual(own: Any, x: torch.Tensor) -> torch.Tensor:
    return F.relu(x + own.norm(own.conv(F.relu(x))))


def spectrum(own: Any, x: torch.Tensor) -> torch.Tensor:
    filtered = torch.fft.rfft(x.float(), dim=1) * torch.view_as_complex(own.filter.float())
    return torch.fft.irfft(filtered, n=LENGTH, dim=1).to(x.dtype)


def neighbours(own: Any, x: torch.Tensor) -> torch.Tensor:
    rows = x.float().reshape(-1, WIDTH)
    return x + torch.exp(-torch.cdist(rows, rows)).mean(-1).view(BATCH, LENGTH, 1).to(x.dtype)


def gathered(own: Any, x: torch.Tensor) -> torch.Tensor:
    source, target = (torch.arange(24) * 5) % 32, (torch.arange(24) * 11) % 32
    rows = own.message(x).reshape(-1, WIDTH)
    return x + torch.zeros_like(rows).scatter_add(0, target[:, None].expand(-1, WIDTH), rows[source]).view_as(x)


def assigned(own: Any, x: torch.Tensor) -> torch.Tensor:
    scores = own.scores(x)
    for _ in range(3):
        scores = scores - scores.logsumexp(-1, keepdim=True)
        scores = scores - scores.logsumexp(1, keepdim=True)
    return scores.exp()


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "layer_norm": lambda: nn.LayerNorm(WIDTH),
    "rms_norm": lambda: nn.RMSNorm(WIDTH),
    "rms_by_hand": lambda: Block(root_mean_square, scale=nn.Parameter(torch.ones(WIDTH))),
    "layer_norm_by_hand": lambda: Block(centred),
    "group_norm": lambda: along(lambda own, x: own.norm(x), norm=nn.GroupNorm(4, WIDTH)),
    "batch_norm": lambda: along(lambda own, x: own.norm(x), norm=nn.BatchNorm1d(WIDTH)),
    "instance_norm": lambda: along(lambda own, x: own.norm(x), norm=nn.InstanceNorm1d(WIDTH, affine=True)),
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(linear()),
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(linear()),
    "unit_length": lambda: Block(lambda own, x: F.normalize(own.inside(x), dim=-1), inside=linear()),
    "softmax": lambda: Block(lambda own, x: F.softmax(own.inside(x), -1) * x, inside=linear()),
    "attention": lambda: attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "attention_by_hand": lambda: attention(by_hand),
    "attention_steep": lambda: attention(lambda q, k, v: by_hand(q, k, v, scale=4.0)),
    "attention_sliding": lambda: attention(sliding),
    "attention_positions": lambda: attention(with_positions),
    "attention_linear": lambda: attention(without_softmax),
    "encoder_layer": lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True),
    "gated": lambda: Block(
        lambda own, x: own.down(F.silu(own.gate(x)) * own.up(x)), gate=linear(32), up=linear(32), down=linear(WIDTH, 32)
    ),
    "relu": lambda: nn.Sequential(linear(32), nn.ReLU(), linear(WIDTH, 32)),
    "activations": lambda: nn.Sequential(nn.Hardswish(), linear(), nn.Mish(), linear(), nn.LeakyReLU(), nn.Softplus()),
    "conv1d": lambda: along(lambda own, x: own.conv(x), conv=nn.Conv1d(WIDTH, WIDTH, 3, padding=2, dilation=2)),
    "conv_depthwise": lambda: along(
        lambda own, x: F.silu(own.conv(x)), conv=nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
    ),
    "conv2d": lambda: image(lambda own, x: F.relu(own.conv(x)), conv=nn.Conv2d(8, 8, 3, padding=1)),
    "conv_transposed": lambda: image(
        lambda own, x: own.up(F.gelu(own.down(x))), down=nn.Conv2d(8, 8, 2, 2), up=nn.ConvTranspose2d(8, 8, 2, 2)
    ),
    "conv3d": lambda: Block(
        lambda own, x: own.conv(x.reshape(BATCH, 2, 4, 4, 4)).reshape(SHAPE), conv=nn.Conv3d(2, 2, 3, padding=1)
    ),
    "residual": lambda: image(residual, conv=nn.Conv2d(8, 8, 3, padding=1, bias=False), norm=nn.BatchNorm2d(8)),
    "squeeze": lambda: image(squeezed, down=linear(4, 8), up=linear(8, 4)),
    "pooled": lambda: image(lambda own, x: F.interpolate(F.max_pool2d(x, 2), scale_factor=2, mode="bilinear")),
    "gru": lambda: Block(lambda own, x: own.layer(x)[0], layer=nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "lstm": lambda: Block(lambda own, x: own.layer(x)[0], layer=nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "gru_cell": lambda: Block(recurrent_cell, cell=nn.GRUCell(WIDTH, WIDTH)),
    "state_space": lambda: Block(state_space, steps=linear(), ends=linear(8), rates=weight(WIDTH, 4, scale=0.3)),
    "cumsum": lambda: Block(lambda own, x: x.cumsum(1) / torch.arange(1, LENGTH + 1).view(1, LENGTH, 1)),
    "cumprod": lambda: Block(lambda own, x: x + torch.sigmoid(x + 2).cumprod(1)),
    "embedding": lambda: Block(lambda own, x: x + own.table(torch.arange(LENGTH) % 5), table=nn.Embedding(9, WIDTH)),
    "fft": lambda: Block(spectrum, filter=weight(LENGTH // 2 + 1, WIDTH, 2)),
    "neighbours": lambda: Block(neighbours),
    "distances": lambda: Block(
        lambda own, x: -torch.cdist(x.float(), own.centres.float()).to(x.dtype), centres=weight(WIDTH, WIDTH)
    ),
    "sorted": lambda: Block(lambda own, x: x.sort(-1)[0] * own.scale, scale=weight(WIDTH)),
    "messages": lambda: Block(gathered, message=linear()),
    "experts": lambda: Block(experts, router=linear(4), experts=nn.ModuleList(linear() for _ in range(4))),
    "assigned": lambda: Block(assigned, scores=linear()),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.2), linear()),
}
