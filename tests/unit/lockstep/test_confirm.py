"""With one call put right, is that all? An answer must hold for optimizers, and for calls that use an input twice."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import raising
from torch import nn
from torch.nn import functional as F

from msprobe.errors import InvalidInputError
from msprobe.lockstep.confirm import confirmed, named_calls
from msprobe.messages import arguments_of
from msprobe.pytorch import PrecisionDebugger

from .trainings import in_lockstep, record


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


class Model(nn.Module):
    """A residual branch whose norm is made of several calls of the framework, each of which takes the input."""

    def __init__(self, ways: Collection[str]) -> None:
        super().__init__()
        self.ways = ways
        self.first, self.branch, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.norm = nn.RMSNorm(8, eps=1e-2 if "eps" in ways else 1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number for each row."""
        x = self.first(x)
        x = x + self.branch(self.norm(x))
        return self.last(F.gelu(x, approximate="tanh" if "gelu" in self.ways else "none"))


def train(ways: Collection[str] = ()) -> None:
    """Train for two steps with the debugger there is."""
    torch.manual_seed(0)
    model = Model(ways)
    decay = 0.3 if "decay" in ways else 0.01
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay)
    for _ in range(2):
        PrecisionDebugger.start(model)
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training as it was recorded."""
    return record(train, tmp_path_factory.mktemp("confirm") / "reference")


@pytest.mark.parametrize(
    ("way", "entry"), [("decay", "Optimizer.AdamW.0.forward"), ("eps", "Torch.rms_norm.0.forward")]
)
@pytest.mark.parametrize("further", [(), ("gelu",)])
def test_a_call_that_is_put_right_is_all_or_is_not(
    way: str, entry: str, further: tuple[str, ...], reference: Path, tmp_path: Path
) -> None:
    finding = {"kind": "optimizer" if way == "decay" else "argument", "entry": entry, "message": "it differs"}
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"findings": [finding], "reference": str(reference)}))
    named = named_calls(verdict, [1], is_every_call=True)

    in_lockstep(partial(train, (way, *further)), reference, tmp_path / "own", only=",".join(named.entries))
    found = confirmed(named, tmp_path / "own")

    assert found.is_confirmed is not bool(further), found.sentence()
    if further:
        assert found.rest is not None
        assert found.rest.entry == "Functional.gelu.0.forward"


@pytest.mark.parametrize("numbers", [[1], [2], [1, 2]])
def test_several_calls_are_put_right_together(numbers: list[int], reference: Path, tmp_path: Path) -> None:
    entries = ["Torch.rms_norm.0.forward", "Functional.gelu.0.forward"]
    findings = [{"kind": "argument", "entry": one, "message": "it differs"} for one in entries]
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"findings": findings, "reference": str(reference)}))
    named = named_calls(verdict, numbers, is_every_call=True)

    in_lockstep(partial(train, ("eps", "gelu")), reference, tmp_path / "own", only=",".join(named.entries))
    found = confirmed(named, tmp_path / "own")

    assert found.is_confirmed is (len(numbers) == 2), found.sentence()
    words = [f"every call {entries[one - 1].replace('.0.', '.*.')}" for one in numbers]
    assert arguments_of(found.sentence())["call"] == " and ".join(words)


def test_a_finding_that_names_no_call_of_both_is_left_out_among_others_and_refused_alone(tmp_path: Path) -> None:
    findings = [
        {"kind": "data", "entry": "Functional.embedding.0.forward", "message": "other batch"},
        {"kind": "argument", "entry": "Functional.gelu.0.forward", "message": "it differs"},
    ]
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"findings": findings, "reference": str(tmp_path)}))
    named = named_calls(verdict, [1, 2])
    assert named.entries == ("Functional.gelu.0.forward",)
    assert [one.startswith("finding 1 of") for one in named.left_out] == [True]
    with raising(InvalidInputError, "finding-not-confirmable", number=1, kind="data"):
        named_calls(verdict, [1])
    with pytest.raises(InvalidInputError, match="no finding 3"):
        named_calls(verdict, [2, 3])
