"""A dump that ends anywhere in its last step is not accused of what it had no time to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs


def training() -> Training:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(torch.randn(6, 8, generator=torch.Generator().manual_seed(number))).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()

    return model, step


def cut(data: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What is there of a step when these records have been written; gradients of parameters come with the last."""
    found = {name: data[name] for name in names}
    for name, record in data.items():
        stem = name.removesuffix(".parameters_grad")
        if stem != name and any(one.startswith(f"{stem}.forward") for one in names):
            done = any(one.startswith(f"{stem}.backward") for one in names)
            found[name] = record if done else {key: [None] for key in record}
    return found


@pytest.mark.parametrize("level", ["mix", "L0", "L1"])
def test_no_end_is_an_accusation(tmp_path: Path, level: str) -> None:
    whole = record_training(tmp_path / "whole", training, steps=2, level=level)
    content = json.loads((whole / "step1" / "rank" / "dump.json").read_text())
    data = content["data"]
    names = sorted((name for name in data if "msprobe" in data[name]), key=lambda name: data[name]["msprobe"]["order"])
    part = tmp_path / "part"
    for end in range(1, len(names), max(1, len(names) // 12)):
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(whole, part)
        ours = {**content["msprobe"], "complete": False}
        left = {**content, "msprobe": ours, "data": cut(data, names[:end])}
        (part / "step1" / "rank" / "dump.json").write_text(json.dumps(left))
        for pair in ((part, whole), (whole, part)):
            verdict = compare_runs(*pair)
            assert (verdict.status, verdict.findings) == ("agree", ()), (names[end - 1], verdict.findings)
