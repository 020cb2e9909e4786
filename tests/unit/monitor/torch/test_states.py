"""What no optimizer owns is measured by its name: buffers, averages, biases that a router keeps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from unit.monitor.torch.monitored import SIX, monitored


class Averaged(nn.Module):
    """A network with a norm, an average of it, and a bias for each of its experts."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.ema = copy.deepcopy(self.net).requires_grad_(False)
        self.register_buffer("expert_bias", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]


def train(attach: Any) -> Any:
    torch.manual_seed(0)
    model = Averaged()
    optimizer = torch.optim.SGD(model.net.parameters(), lr=0.1)
    attach(model, optimizer)
    for step in range(3):
        model(torch.randn(6, 4)).square().mean().backward()
        with torch.no_grad():
            model.get_buffer("expert_bias").fill_(step + 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for average, one in zip(model.ema.parameters(), model.net.parameters(), strict=True):
                average.lerp_(one, 0.1)
    return [model, optimizer]


def test_buffers_and_averages_are_measured_by_name(tmp_path: Path) -> None:
    found = monitored(tmp_path, {"state_distribution": True, "ops": SIX}, train)
    names = set(found.names("state", 1))
    assert {"expert_bias", "ema.0.weight", "ema.1.running_mean", "net.1.running_var", "net.1.running_mean"} <= names
    assert not {"net.0.weight", "net.1.bias"} & names
    biases = [found.norms("state", step, "max")["expert_bias"] for step in range(3)]
    assert biases == [1.0, 2.0, 3.0]


def test_targets_choose_among_them(tmp_path: Path) -> None:
    found = monitored(tmp_path, {"state_distribution": True, "targets": {"expert_bias": {}, "ema.": {}}}, train)
    assert {name.partition(".")[0] for name in found.names("state", 0)} == {"expert_bias", "ema"}
