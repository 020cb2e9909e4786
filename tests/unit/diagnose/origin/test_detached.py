"""A branch that is detached where it enters a call with others, while what made it still gets a gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.coded_texts import mentions
from torch import nn
from unit.diagnose.real_pairs import Training, compare_trainings


class Shared(nn.Module):
    """Takes one tensor twice, in ``cat`` or a sum; ``cut``: the second is detached, by a call or without one."""

    def __init__(self, how: str, cut: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(16 if how == "cat" else 8, 4)
        self.how, self.cut = how, cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p = torch.tanh(self.first(x))
        q = {"": p, "call": p.detach() if self.cut == "call" else p, "data": p.data}[self.cut]
        both = {"cat": lambda: torch.cat([p, q], -1), "sum": lambda: p + q, "stack": lambda: torch.stack([p, q]).sum(0)}
        result: torch.Tensor = self.last(both[self.how]())
        return result


def training(how: str, cut: str = "") -> Callable[[], Training]:
    def build() -> Training:
        model = Shared(how, cut)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def step(number: int) -> None:
            optimizer.zero_grad()
            model(torch.randn(6, 8, generator=torch.Generator().manual_seed(number))).pow(2).mean().backward()
            optimizer.step()

        return model, step

    return build


@pytest.mark.parametrize("cut", ["call", "data"])
@pytest.mark.parametrize("turned", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("how", ["cat", "sum", "stack"])
def test_the_call_that_it_enters_is_named_first(tmp_path: Path, how: str, cut: str, turned: bool) -> None:
    pair = (training(how, cut), training(how))
    verdict = compare_trainings(tmp_path, *(pair[::-1] if turned else pair))
    found = verdict.findings[0]
    assert verdict.status == "diverged"
    assert found.kind == ("structure" if cut == "call" else "missing_gradient")
    assert found.evidence["seen_in"] == {
        "cat": "Torch.cat.0.forward", "sum": "Tensor.__add__.0.forward", "stack": "Torch.stack.0.forward"
    }[how]  # fmt: skip
    assert mentions(found.message, "detached", side="reference" if turned else "candidate")
    assert found.entry == ("Tensor.detach.0.forward" if cut == "call" else found.evidence["seen_in"])


def test_a_branch_that_is_cut_on_both_sides_is_no_difference(tmp_path: Path) -> None:
    assert compare_trainings(tmp_path, training("cat", "call"), training("cat", "data")).status == "agree"
