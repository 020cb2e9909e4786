"""Calls of two recordings, judged by their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from unit.diagnose.real_pairs import Training, compare_trainings


def _ensemble(moved: float) -> Training:
    """Under autocast the product inside of ``vmap`` is taken in bfloat16, while the call takes and gives float32."""
    model = nn.Linear(16, 16)
    weights, biases = torch.randn(3, 8, 16), torch.randn(3, 8)
    data = torch.randn(32, 16)

    def member(weight: Any, bias: Any, given: Any) -> Any:
        return functional.linear(given, weight, bias)

    def step(number: int) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            model(data)
            with torch.no_grad():
                torch.vmap(member, in_dims=(0, 0, None))(weights, biases, data * (1.0 + moved))

    return model, step


def test_calls_inside_of_vmap_may_compute_in_the_half_type_of_the_run(tmp_path: Path) -> None:
    verdict = compare_trainings(tmp_path, lambda: _ensemble(1e-4), lambda: _ensemble(0.0))
    assert [found.entry for found in verdict.findings if "linear" in str(found.entry)] == []
