"""One element of ten thousand is wrong in a result: the call is named, since its inputs agree bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from unit.diagnose.real_pairs import Training, compare_trainings

CALLS = {"addmm": "Functional.linear.1.forward", "tanh": "Torch.tanh.1.forward"}


class Fault(TorchDispatchMode):
    """Makes one element of the second result of an operator larger."""

    def __init__(self, operator: str, by: float) -> None:
        super().__init__()
        self.operator, self.by, self.calls = operator, by, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.operator in str(func):
            self.calls += 1
            if self.calls == 2:
                result.view(-1)[result.numel() // 3] *= 1 + self.by
        return result


def training(dtype: torch.dtype, operator: str = "", by: float = 0.0) -> Callable[[], Training]:
    def build() -> Training:
        layers = [nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 4)]
        model = nn.Sequential(*layers).to(dtype)

        def step(number: int) -> None:
            x = torch.randn(100, 100, generator=torch.Generator().manual_seed(number)).to(dtype)
            with Fault(operator, by) if operator else nullcontext():
                loss = model(x).pow(2).mean()
            loss.backward()

        return model, step

    return build


@pytest.mark.parametrize("operator", CALLS)
@pytest.mark.parametrize(
    ("dtype", "mode", "by"),
    [
        (torch.float32, "tensor", 1e-4),
        (torch.float32, "tensor", 1.0),
        (torch.float32, "digest", 0.05),
        (torch.bfloat16, "tensor", 3.0),
        (torch.bfloat16, "digest", 3.0),
    ],
    ids=str,
)
def test_the_call_is_named_first(tmp_path: Path, dtype: torch.dtype, mode: str, by: float, operator: str) -> None:
    verdict = compare_trainings(tmp_path, training(dtype, operator, by), training(dtype), mode=mode)
    assert verdict.status == "diverged"
    found = verdict.findings[0]
    assert (found.kind, found.entry) == ("computation", CALLS[operator])
    if mode == "tensor":
        assert "1 of 10000 elements" in found.message
