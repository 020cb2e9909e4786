"""What keeps gradients from a call is named: the call that cuts the graph, or the parameters that are frozen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from torch.nn import functional
from unit.diagnose.real_pairs import Training, compare_trainings


class Net(nn.Module):
    def __init__(self, detaches: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.detaches = detaches

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.table(ids))
        y = self.first(x)
        if self.detaches:
            y = y.detach()
        x = x + functional.dropout(y, 0.5)
        return self.second(x).pow(2).mean()


def training(frozen: str = "", detaches: bool = False) -> Training:
    model = Net(detaches)
    for parameter in getattr(model, frozen).parameters() if frozen else ():
        parameter.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(torch.arange(6) + number).backward()
        optimizer.step()

    return model, step


@pytest.mark.parametrize("level", ["mix", "L0"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("layer", ["table", "first"])
def test_a_frozen_layer_is_told_as_frozen(tmp_path: Path, layer: str, turned: bool, level: str) -> None:
    builds = [lambda: training(frozen=layer), training]
    verdict = compare_trainings(tmp_path, *(builds[::-1] if turned else builds), level=level)
    found = verdict.findings[0]
    assert (verdict.status, found.kind) == ("diverged", "missing_gradient"), verdict.findings
    assert found.evidence["cause"] == "frozen"
    side, other = ("reference", "candidate") if turned else ("candidate", "reference")
    assert mentions(found.message, "requires-grad-differs")
    assert found.message.index(f"{side},") < found.message.index(other, found.message.index(f"{side},") + len(side))
    assert {name.partition(".")[0] for name in found.evidence["parameters"]} == {layer}
    assert all("cuts the graph" not in one.message for one in verdict.findings)


def test_a_frozen_first_layer_is_told_where_modules_are_not_recorded(tmp_path: Path) -> None:
    found = compare_trainings(tmp_path, lambda: training(frozen="table"), training, level="L1").findings[0]
    assert (found.kind, found.entry) == ("missing_gradient", "Functional.embedding.0.forward")
    assert found.evidence["cause"] == "frozen"
    assert (found.code, found.arguments["what"]) == ("D403", "table.weight")


def test_a_detach_is_named_and_not_the_call_that_takes_its_result(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, lambda: training(detaches=True), training)
    found = verdict.findings[0]
    assert (found.kind, found.entry) == ("structure", "Tensor.detach.0.forward"), verdict.findings
    assert (found.code, found.arguments["side"]) == ("D401", "candidate")
    assert found.arguments["call"] == "Tensor.detach.0.forward"
