"""``device_monitored.py DEVICE FOLDER``: a training whose alerts have steps recorded, and one without a monitor."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import simdev
import torch
from torch import nn

from msprobe.pytorch import TrainerMon

CONFIG = {
    "targets": {},
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "state_distribution": True,
    "ops": ["min", "max", "mean", "norm", "nans"],
    "step_count_per_record": 100,
    "alert": {"rules": [{"rule_name": "AnomalyNan"}, {"rule_name": "GradNormSpike"}], "record": {"keep": 2}},
}


def train(device: str, folder: Path | None) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    monitor = None
    if folder is not None:
        os.environ["MONITOR_OUTPUT_DIR"] = str(folder / "out")
        (folder / "monitor.json").write_text(json.dumps(CONFIG))
        monitor = TrainerMon(folder / "monitor.json")
        monitor.set_monitor(model, optimizer=optimizer)
    generator = torch.Generator().manual_seed(1)
    for step in range(7):
        loss = model(torch.randn(6, 4, generator=generator).to(device)).square().mean()
        (loss * (math.nan if step == 4 else 1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()
    if monitor is not None:
        monitor.stop()
    return [one.detach().cpu().tolist() for one in model.state_dict().values()]


def main() -> None:
    device, folder = sys.argv[1], Path(sys.argv[2])
    if device != "cpu":
        simdev.load()
    assert repr(train(device, None)) == repr(train(device, folder))


if __name__ == "__main__":
    main()
