"""Beside infinities statistics hide what a tensor holds: that two look alike says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn
from unit.diagnose.real_pairs import Training, record_training

from msprobe.diagnose import compare_runs


class CausalScores(nn.Module):
    def __init__(self, moved: float) -> None:
        super().__init__()
        scores = torch.linspace(-1, 1, 36).reshape(6, 6)
        noise = torch.randn(6, 6, generator=torch.Generator().manual_seed(1)) * moved
        noise[5] = 0.0  # the largest score stays as it is
        self.scores = nn.Parameter(scores + noise)

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        scores = (self.scores * scale).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
        return torch.softmax(scores.float().contiguous(), -1).pow(2).mean()


def training(moved: float = 0.0) -> Training:
    model = CausalScores(moved)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(torch.tensor(2.0)).backward()
        optimizer.step()

    return model, step


def test_a_softmax_is_not_blamed_for_masked_scores_that_differ_where_no_statistic_shows_it(tmp_path: Path) -> None:
    one = record_training(tmp_path / "one", lambda: training(moved=1e-3))
    verdict = compare_runs(one, record_training(tmp_path / "other", training))
    assert verdict.status == "diverged"
    assert "initial_weights" in {found.kind for found in verdict.findings}
    assert [found.message for found in verdict.findings if "softmax" in (found.entry or "")] == []


def test_a_wrong_softmax_of_equal_masked_scores_is_found(tmp_path: Path) -> None:
    one, other = (record_training(tmp_path / name, training) for name in ("one", "other"))
    file = one / "step0" / "rank" / "dump.json"
    content = json.loads(file.read_text())
    content["data"]["Torch.softmax.0.forward"]["output"][0]["Norm"] *= 1.1
    file.write_text(json.dumps(content))
    found = compare_runs(one, other).findings[0]
    assert (found.kind, found.entry) == ("computation", "Torch.softmax.0.forward")


def test_a_call_is_not_blamed_for_an_input_that_could_not_be_read(tmp_path: Path) -> None:
    call = "Torch.softmax.0.forward"
    one = record_training(tmp_path / "one", lambda: training(moved=1e-3))
    other = record_training(tmp_path / "other", training)
    for folder in (one, other):
        file = folder / "step0" / "rank" / "dump.json"
        content = json.loads(file.read_text())
        leaf = content["data"][call]["input_args"][0]
        leaf.update(dict.fromkeys(("Max", "Min", "Mean", "Norm")), unsupported="no kernel")
        leaf.pop("row", None)
        file.write_text(json.dumps(content))
    assert call not in {found.entry for found in compare_runs(one, other).findings}
