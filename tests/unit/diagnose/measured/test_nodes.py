"""Calls of two recordings, judged by their rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from unit.diagnose.real_pairs import Training, compare_trainings, record_training

from msprobe.diagnose.measured.nodes import nodes
from msprobe.diagnose.pairing.step import pair_timelines
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.store.reader import open_dump


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


def _dropping_nothing(moved: float) -> Training:
    """A dropout of nothing gives its input back: its gradient is that of the call before, and hangs on its choices."""
    model = nn.Linear(16, 64)
    head = nn.Linear(64, 16)
    data = torch.randn(64, 16)

    def step(number: int) -> None:
        hidden = functional.relu(model(data * (1.0 + moved * torch.randn_like(data))))
        head(functional.dropout(hidden, 0.0, training=True)).square().mean().backward()

    return model, step


def test_a_gradient_that_a_call_hands_through_is_not_judged_as_its_own(tmp_path: Path) -> None:
    sides = [record_training(tmp_path / str(moved), partial(_dropping_nothing, moved)) for moved in (1e-2, 0.0)]
    timelines = [Timeline(open_dump(side).part()) for side in sides]
    pairing = pair_timelines(timelines[0], timelines[1]).pairing
    excused = {node.event.name: node.excused for node in nodes(pairing, is_alone=True)}
    for timeline in timelines:
        timeline.close()
        timeline.part.close()
    assert excused["Functional.dropout.0.backward"] == "another node"
    assert excused["Functional.linear.1.backward"] == ""
