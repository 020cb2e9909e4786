"""Results that are what is left of larger terms: their rounding is that of the terms, on another device as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.diagnose.real_pairs import Training, compare_behind_device


def rand(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def certain(precision: str, factor: float = 40.0) -> Training:
    """The label of most rows is all but certain: the gradient is 1 less a probability near 1."""
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 24, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number: int) -> None:
        batch = rand(7 + number, 12, 24)
        with autocast(precision):
            result = F.normalize(model(batch), dim=1)
        near = result.float() @ result.float().T * factor
        optimizer.zero_grad()
        F.cross_entropy(near, torch.arange(12)).backward()
        optimizer.step()

    return model, step


def spelled(precision: str, blank: int = 0, reduction: str = "mean") -> Training:
    """The probability of a text is a sum over all paths, whose logarithms are added up step by step; what a batch norm
    takes away again is in front of it.
    """

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow = nn.Conv1d(16, 32, 3, stride=2, padding=1)
            self.grouped, self.norm = nn.Conv1d(32, 32, 5, padding=2, groups=4), nn.BatchNorm1d(32)
            self.head = nn.Linear(32, 12)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.narrow(x))
            x = x + F.silu(self.norm(self.grouped(x)))
            return self.head(x.transpose(1, 2))  # type: ignore[no-any-return]

    model = Speech()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(number: int) -> None:
        with autocast(precision):
            result = model(rand(7 + number, 5, 16, 40))
        texts = torch.randint(1, 11, (5, 6), generator=torch.Generator().manual_seed(number))
        paths = result.float().log_softmax(-1).transpose(0, 1)
        long, short = torch.full((5,), 20), torch.tensor([6, 5, 4, 6, 3])
        loss = F.ctc_loss(paths, texts, long, short, blank=blank, reduction=reduction)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    return model, step


def averaged(precision: str, weight: float = 0.95) -> Training:
    """Averages of gradients with a weight near 1 (a step of Muon with Nesterov's momentum)."""
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24)).to(
        torch.bfloat16 if precision == "bfloat16" else torch.float32
    )
    parameters = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    momenta = [torch.zeros_like(parameter) for parameter in parameters]

    def step(number: int) -> None:
        batch = rand(7 + number, 12, 24).to(parameters[0].dtype)
        with autocast(precision):
            loss = F.mse_loss(model(batch), batch)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter, momentum in zip(parameters, momenta, strict=True):
                momentum.lerp_(parameter.grad, 0.05)
                parameter.sub_(parameter.grad.lerp(momentum, weight), alpha=0.02)

    return model, step


def autocast(precision: str) -> contextlib.AbstractContextManager[object]:
    is_on = precision == "autocast"
    return torch.autocast("cpu", torch.bfloat16) if is_on else contextlib.nullcontext()


@pytest.mark.parametrize("precision", ["float32", "autocast", "bfloat16"])
@pytest.mark.parametrize("build", [certain, spelled, averaged])
def test_rounding_is_no_finding(tmp_path: Path, build: Callable[[str], Training], precision: str) -> None:
    verdict = compare_behind_device(tmp_path, lambda: build(precision), lambda: build(precision), steps=2)
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize("precision", ["float32", "autocast"])
@pytest.mark.parametrize(
    ("wrong", "right", "where"),
    [
        (lambda precision: certain(precision, factor=41.0), certain, "Tensor.__mul__.0.forward, input.1"),
        (lambda precision: spelled(precision, blank=11), spelled, "Functional.ctc_loss.0.forward, input.blank"),
        (lambda precision: averaged(precision, weight=0.9), averaged, "Tensor.lerp.0.forward, input.2 (weight)"),
    ],
    ids=["a factor", "another symbol", "a weight"],
)
def test_another_argument_is_named(
    tmp_path: Path, wrong: Callable[[str], Training], right: Callable[[str], Training], where: str, precision: str
) -> None:
    verdict = compare_behind_device(tmp_path, lambda: wrong(precision), lambda: right(precision))
    assert verdict.status in ("diverged", "harmless")
    assert (verdict.findings[0].kind, verdict.findings[0].where) == ("argument", where), verdict.findings


@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_where_modules_alone_were_recorded(tmp_path: Path, precision: str) -> None:
    """Of the loss nothing is recorded: what comes back from it may be what is left of anything."""
    asked = {"steps": 2, "level": "L0"}
    healthy = compare_behind_device(
        tmp_path / "healthy", lambda: certain(precision), lambda: certain(precision), **asked
    )
    assert healthy.status == "agree", healthy.findings
    verdict = compare_behind_device(
        tmp_path / "wrong", lambda: certain(precision, factor=41.0), lambda: certain(precision), **asked
    )
    assert (verdict.status, verdict.findings[0].name) == ("diverged", "computed-beyond-all-before"), verdict.findings
