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
        loss = F.smooth_l1_loss(result, torch.ones_like(result)) if name == "smooth" else result.pow(2).mean()
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
