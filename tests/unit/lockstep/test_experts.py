"""Experts in another order, shares of the chosen ones alone, and running averages: which call answers to which, and
where a gradient belongs that comes back by another way.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions, pieces_of
from torch import nn
from torch.nn import functional as F

from msprobe.lockstep.confirm import NamedCalls, confirmed
from msprobe.messages import said
from msprobe.pytorch import PrecisionDebugger

from .trainings import entries, in_lockstep, record

WIDTH, EXPERTS, ROWS = 6, 4, 20


@pytest.fixture(autouse=True)
def _no_debugger_is_left() -> Any:
    yield
    PrecisionDebugger.reset()


class Experts(nn.Module):
    """Each row goes to two of the experts; ``ways`` says what is written otherwise, and what is wrong."""

    def __init__(self, ways: Collection[str]) -> None:
        super().__init__()
        self.ways = ways
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.balance = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of what the chosen experts make of each row, by their shares."""
        ways = self.ways
        logits = self.router(x)
        chances = torch.softmax(logits, dim=-1)
        if "of the chosen" in ways:
            best, chosen = torch.topk(logits, 2, dim=-1)
            shares = torch.softmax(best, dim=-1)
        else:
            shares, chosen = torch.topk(chances, 2, dim=-1)
            shares = shares if "whole" in ways else shares / shares.sum(dim=-1, keepdim=True)
        self.balance = (chances.mean(dim=0) ** 2).sum()
        result = torch.zeros_like(x)
        order = range(EXPERTS)
        for number in reversed(order) if "reversed" in ways else order:
            rows, places = torch.where(chosen == number)
            taken = self.experts[(number + 1) % EXPERTS if "next" in ways and number == 2 else number](x[rows])
            result = result.index_add(0, rows, taken * shares[rows, places, None])
        return F.gelu(result, approximate="tanh" if "gelu" in ways else "none")


def train(ways: Collection[str] = (), steps: int = 1) -> dict[str, torch.Tensor]:
    """Train for some steps. What the model keeps."""
    torch.manual_seed(0)
    first = nn.BatchNorm1d(WIDTH, momentum=0.5 if "momentum" in ways else 0.1)
    model = nn.Sequential(first, Experts(ways), nn.Linear(WIDTH, 3))
    if "average" in ways:
        first.running_mean.fill_(0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        batch, goals = torch.randn(ROWS, WIDTH), torch.randint(0, 3, (ROWS,))
        PrecisionDebugger.start(model)
        loss = F.cross_entropy(model(batch), goals) + 0.1 * model[1].balance
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def other_training() -> None:
    """A step of something else."""
    model = nn.Sequential(nn.GRU(3, 5, batch_first=True))
    PrecisionDebugger.start(model)
    found, _ = model(torch.randn(2, 4, 3))
    for factor in range(12):
        found = torch.tanh(found * (1.0 + factor)).cumsum(dim=1)
    found.square().mean().backward()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training as it was recorded."""
    return record(train, tmp_path_factory.mktemp("experts") / "reference")


@pytest.mark.parametrize("way", ["reversed", "of the chosen"])
def test_another_order_and_other_shares_that_come_to_the_same_are_harmless(
    way: str, reference: Path, tmp_path: Path
) -> None:
    verdict = in_lockstep(partial(train, (way,)), reference, tmp_path / "own")

    assert not entries(verdict)
    assert verdict.exit_code == 0


@pytest.mark.parametrize("way", ["reversed", "of the chosen"])
def test_another_call_behind_them_is_the_one_finding(way: str, reference: Path, tmp_path: Path) -> None:
    verdict = in_lockstep(partial(train, (way, "gelu")), reference, tmp_path / "own")

    assert entries(verdict) == {"Functional.gelu.0.forward"}


@pytest.mark.parametrize(
    ("ways", "named"),
    [(("reversed", "next"), "where the reference calls Functional.linear"), (("whole",), "the reference calls Tensor")],
)
def test_a_bug_in_the_midst_of_them_is_named(
    ways: tuple[str, ...], named: str, reference: Path, tmp_path: Path
) -> None:
    verdict = in_lockstep(partial(train, ways), reference, tmp_path / "own")

    assert verdict.status == "diverged"
    assert any(named in one.message for one in verdict.findings if not one.harmless), entries(verdict)


def test_running_averages_are_put_right_for_good_and_named_once(tmp_path: Path) -> None:
    kept: list[dict[str, torch.Tensor]] = []
    reference = record(lambda: kept.append(train(steps=2)), tmp_path / "reference")

    verdict = in_lockstep(lambda: kept.append(train(("average",), steps=2)), reference, tmp_path / "own")

    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    counting = [one for one in verdict.findings if not one.harmless]
    assert len(counting) == 1
    assert "running_mean" in counting[0].message
    assert counting[0].step == 0


def test_calls_of_one_name_that_answer_to_others_are_distinguished(reference: Path, tmp_path: Path) -> None:
    verdict = in_lockstep(partial(train, ("reversed", "next")), reference, tmp_path / "own")

    told = [one for one in verdict.findings if "counterpart-of" in pieces_of(one.message)]
    assert [(one.code, one.arguments["slot"], one.arguments["call"]) for one in told] == [
        ("D213", "input.0", "Functional.gelu.0.forward")
    ]
    assert told[0].arguments["candidate"] == said("result-of", "Tensor.index_add.3.forward")


def test_other_running_averages_are_no_harmless_difference(reference: Path, tmp_path: Path) -> None:
    verdict = in_lockstep(partial(train, ("momentum",)), reference, tmp_path / "own")

    assert entries(verdict) == {"Functional.batch_norm.0.forward"}
    assert verdict.status == "diverged"


def test_running_averages_are_confirmed_by_the_steps_that_follow(tmp_path: Path) -> None:
    reference = record(partial(train, steps=2), tmp_path / "reference")
    named = NamedCalls(("Functional.batch_norm.0.forward",), reference)

    in_lockstep(partial(train, ("momentum",), steps=2), reference, tmp_path / "own", only=",".join(named.entries))

    assert confirmed(named, tmp_path / "own").is_confirmed


def test_another_model_cannot_be_compared(reference: Path, tmp_path: Path) -> None:
    verdict = in_lockstep(other_training, reference, tmp_path / "own")

    assert verdict.status == "incomparable"
    assert mentions(verdict.reason, "hardly-any-call-matches")
