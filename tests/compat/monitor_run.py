"""Train the small documented model under the monitor of the msprobe that this interpreter has.

    python monitor_run.py FOLDER CONFIG STEPS MICRO_STEPS

Gradients are a hundred times too large at step 3, and one element is NaN at step 4 of a run that has alerts.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import nn


class Model(nn.Module):
    """Two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.drop = nn.Dropout(0)
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc2(self.drop(torch.relu(self.fc1(x))))


def main() -> None:
    folder, config, steps, micro_steps = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    os.environ["MONITOR_OUTPUT_DIR"] = folder
    with open(f"{folder}.json", "w") as file:
        json.dump(config, file)
    from msprobe.pytorch import TrainerMon

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    monitor = TrainerMon(f"{folder}.json", params_have_main_grad=False)
    monitor.set_monitor(model, grad_acc_steps=micro_steps, optimizer=optimizer)
    for step in range(steps):
        for _ in range(micro_steps):
            (model(torch.randn(3, 4)).square().mean() / micro_steps).backward()
        if "alert" in config and step == 3:
            for parameter in model.parameters():
                parameter.grad *= 100
        if "alert" in config and step == 4:
            model.fc1.weight.grad[0, 0] = float("nan")
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
