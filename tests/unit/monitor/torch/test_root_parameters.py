"""Every trained parameter has its unreduced gradient, wherever it is; what is asked for is of the step asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from unit.monitor.torch.monitored import make


class Root(nn.Module):
    """Owns a parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, 4, 8))
        self.layer = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + self.pos)  # type: ignore[no-any-return]


class Listed(nn.Module):
    """Keeps parameters in a list and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.ParameterList([nn.Parameter(torch.ones(8))])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(8))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.items[0] + self.named["a"]  # type: ignore[no-any-return]


class Used(nn.Module):
    """Uses the weights of a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.layer.weight, self.layer.bias)


class Nested(nn.Module):
    """Has the first as a part, and a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = Root(), nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale  # type: ignore[no-any-return]


MODELS: list[Callable[[], nn.Module]] = [Root, Listed, Used, Nested, lambda: nn.Linear(8, 3)]


@pytest.mark.parametrize(
    ("model", "micro"), [*((one, False) for one in MODELS), *((one, True) for one in (Root, Nested, MODELS[-1]))]
)
def test_all_parameters_are_in_both_tables(tmp_path: Path, model: Callable[[], nn.Module], micro: bool) -> None:
    monitor = make(tmp_path, {"wg_distribution": True, "micro_delta": micro, "squash_name": False, "format": "api"})
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    monitor.set_monitor(trained, optimizer=optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        trained(torch.randn(2, 4, 8)).square().mean().backward()
        expected = {name: float(one.grad.double().norm()) for name, one in trained.named_parameters()}  # type: ignore[union-attr]
        optimizer.step()
        for tables in monitor.generate_wgrad_metrics():
            found = {tag.split("/")[0].partition(":")[2]: float(one["norm"]) for tag, one in tables.items()}
            assert found == pytest.approx(expected, rel=1e-5)
    monitor.stop()


def test_a_parameter_without_its_unreduced_gradient_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    monitor = make(tmp_path, {"wg_distribution": True, "micro_delta": True})
    trained = nn.Sequential(Used(), nn.Linear(3, 3))
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    monitor.set_monitor(trained, optimizer=optimizer)
    for _ in range(3):
        trained(torch.randn(2, 8)).square().mean().backward()
        optimizer.step()
    monitor.stop()
    assert "grad_unreduced lacks" in capfd.readouterr().out
