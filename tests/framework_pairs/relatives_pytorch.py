"""The networks of `relatives.py` in PyTorch: the arguments are those of `relatives_mindspore.py`."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")

import torch
import torch.nn.functional as F
from common import asked, value
from relatives import HEALTHY, IMAGES, images, rows
from torch import nn

from msprobe.pytorch import PrecisionDebugger

WIDTH = 16


class Rows(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        if name == "turned":
            self.table = nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.fc1, self.fc2, self.name = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), name
        if name == "normed":
            self.norm = nn.LayerNorm(WIDTH)
        if name == "reduced":
            self.scale = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        x = self.fc1(x)
        if self.name == "leaky":
            x = F.leaky_relu(x)
        elif self.name == "spread":
            x = x / x.std(-1, keepdim=True)
        elif self.name == "turned":
            x = x @ self.table.t()
        elif self.name == "scores":
            x = x.softmax(-1)
        elif self.name == "normed":
            x = self.norm(x * 0.01)
        elif self.name == "reduced":
            x = x.mean(-1, keepdim=True) * self.scale
        elif self.name == "centred":
            x = x - x.mean(-1, keepdim=True)
        elif self.name == "exponential":
            x = F.elu(x)
        elif self.name == "cumulated":
            x = x.cumsum(2)
        elif self.name == "clamped":
            x = x.clamp(-1.0, 1.0)
        else:
            x = x.tanh()
        return self.fc2(x)


class Images(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        if name == "moving":
            self.bn = nn.BatchNorm2d(4)
        self.fc, self.name = nn.Linear(64 if name != "upsampled" else 256, WIDTH), name

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        if self.name == "moving":
            x = self.bn(x)
        elif self.name == "averages":
            x = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        elif self.name == "upsampled":
            x = F.interpolate(x, size=(8, 8), mode="bilinear")
        return self.fc(F.relu(x).flatten(1))


def loss_of(name: str, result: Any) -> Any:
    if name == "smooth":
        return F.smooth_l1_loss(result, torch.ones_like(result))
    if name == "labelled":
        return F.cross_entropy(result.reshape(64, WIDTH), torch.arange(64) % WIDTH)
    if name == "half":
        return result.half().pow(2).mean().float()
    return result.pow(2).mean()


def record(folder: str, name: str, level: str) -> None:
    """Three steps of a network."""
    model = (Images if name in IMAGES else Rows)(name)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.from_numpy(value(number, tuple(parameter.shape))))
    make = torch.optim.Adam if name in ("adam", "uncorrected") else torch.optim.SGD
    optimizer = make(model.parameters(), lr=0.01, weight_decay=0.1 if name == "adam" else 0.0)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=folder, task="statistics", level=level)
    for step in range(3):
        x = torch.from_numpy(images(step) if name in IMAGES else rows(step))
        debugger.start(model)
        optimizer.zero_grad()
        result = model(x)
        loss = loss_of(name, result)
        loss.backward()
        if name == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    chosen = asked(list(HEALTHY))
    for one in chosen.names:
        record(os.path.join(chosen.folder, one), one, chosen.level)
