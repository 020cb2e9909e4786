"""The same networks as users of PyTorch write them: the arguments are those of `networks_mindspore.py`."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")

import numpy as np
import torch
import torch.nn.functional as F
from common import NETWORKS, asked, batch, value
from torch import nn
from wrong_kernels import kernel_of

from msprobe.pytorch import PrecisionDebugger

WIDTH, HEADS = 16, 2
_ACTIVATIONS = {
    "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "leakyrelu": lambda x: F.leaky_relu(x, 0.2),
}  # fmt: skip


class Mlp(nn.Module):
    def __init__(self, activation: str) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.act = _ACTIVATIONS[activation]

    def forward(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)))


class Gelu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Attention(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.how = how
        self.register_buffer("mask", torch.triu(torch.ones(6, 6, dtype=torch.bool), 1), persistent=False)

    def split(self, x: Any) -> Any:
        return x.view(4, 6, HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, x: Any) -> Any:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = (q @ k.transpose(-1, -2)) / 8**0.5
        if self.how == "masked":
            scores = scores.masked_fill(self.mask, -1e4)
        mixed = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3).contiguous().view(4, 6, WIDTH)
        return x + self.o(mixed)


class Norms(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        if how == "layer":
            self.norm = nn.LayerNorm(WIDTH)
        elif how == "group":
            self.norm = nn.GroupNorm(4, WIDTH)
        else:
            self.gain = nn.Parameter(torch.ones(WIDTH))
        self.how = how

    def forward(self, x: Any) -> Any:
        x = self.fc1(x)
        if self.how == "rms":
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain
        elif self.how == "group":
            x = self.norm(x.reshape(24, WIDTH, 1, 1)).reshape(4, 6, WIDTH)
        else:
            x = self.norm(x)
        return self.fc2(x)


class Images(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4) if how == "norm" else nn.Identity()
        self.pool = nn.AvgPool2d(2) if how == "average" else nn.MaxPool2d(2)
        self.fc = nn.Linear(4 * 3 * 8, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.fc(self.pool(F.relu(self.bn(self.conv(x.unsqueeze(1))))).flatten(1))


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.head(self.table(x).mean(1))


class Gates(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.wide, self.narrow, self.how = nn.Linear(WIDTH, 64), nn.Linear(32, WIDTH), how

    def forward(self, x: Any) -> Any:
        gate, up = self.wide(x).chunk(2, dim=-1)
        return self.narrow((F.silu(gate) if self.how == "silu" else gate.sigmoid()) * up)


class Places(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        angles = np.outer(np.arange(6), 1 / 100 ** (np.arange(8) / 8))
        self.cos, self.sin = (torch.from_numpy(f(angles).astype(np.float32)) for f in (np.cos, np.sin))

    def forward(self, x: Any) -> Any:
        x = self.fc(x)
        one, two = x[..., :8], x[..., 8:]
        x = torch.cat((one * self.cos - two * self.sin, two * self.cos + one * self.sin), dim=-1)
        return self.head(x[:, -1])


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Any) -> Any:
        h = self.body(x).tanh()
        return self.first(h) + self.second(h.detach())


def network(name: str) -> Any:
    kind, _, how = name.partition("-")
    if kind in ("gelu", "tokens", "places", "branches"):
        return {"gelu": Gelu, "tokens": Tokens, "places": Places, "branches": Branches}[kind]()
    return {"mlp": Mlp, "attention": Attention, "norm": Norms, "images": Images, "gates": Gates}[kind](how)


def loss_of(name: str, result: Any, target: Any) -> Any:
    if name.startswith("tokens"):
        return F.cross_entropy(result, target.long())
    if name.startswith("places"):
        return F.mse_loss(result, torch.zeros_like(result))
    return result.pow(2).mean()


def record(folder: str, name: str, level: str, dtype: torch.dtype) -> None:
    """Two steps of a network."""
    model = network(name)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.from_numpy(value(number, tuple(parameter.shape))))
    model.to(dtype)
    if isinstance(model, Places):
        model.cos, model.sin = model.cos.to(dtype), model.sin.to(dtype)
    momentum = 0.9 if name.startswith("gates") else 0.0
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=momentum)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=folder, task="statistics", level=level)
    for step in range(2):
        x, target = (torch.from_numpy(one) for one in batch(name, step))
        x = x.to(dtype) if x.is_floating_point() else x
        debugger.start(model)
        optimizer.zero_grad()
        loss_of(name, model(x), target).backward()
        optimizer.step()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    chosen = asked(list(NETWORKS))
    for one in chosen.names:
        network_of, _, wrong = one.partition("+")
        with kernel_of(wrong):
            record(os.path.join(chosen.folder, one), network_of, chosen.level, getattr(torch, chosen.dtype))
