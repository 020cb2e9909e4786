"""Random numbers that one side alone draws shift all that are drawn later, whichever side it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings


def training(draws: bool = False) -> Callable[[], Training]:
    def build() -> Training:
        model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.Linear(32, 4))

        def step(number: int) -> None:
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(number))
            if draws:
                torch.rand(3)
            model(x).pow(2).mean().backward()

        return model, step

    return build


@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
def test_the_call_of_one_side_is_named(tmp_path: Path, turned: bool) -> None:
    pair = (training(True), training())
    verdict = compare_trainings(tmp_path, *(pair[::-1] if turned else pair))
    found = verdict.findings[0]
    assert (verdict.status, found.kind, found.entry) == ("diverged", "structure", "Torch.rand.0.forward")
    assert (found.code, found.arguments["other_call"]) == ("D217", "Torch.rand.0.forward")
    assert found.arguments["side"] == ("reference" if turned else "candidate")
    assert (found.evidence.get("side") == "reference") == turned
