"""What autocast computes in float32 is given another type by a cast of one side, and computes in the same."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from support.recorded import record
from torch.nn import functional

from msprobe.diagnose import compare_runs
from msprobe.messages import code_of


def test_a_loss_that_autocast_casts_itself_takes_another_type_and_computes_in_the_same(tmp_path: Path) -> None:
    def run(name: str, casts: bool) -> Path:
        def step() -> None:
            torch.manual_seed(0)
            weight = torch.randn(5, 8, requires_grad=True)
            with torch.autocast("cpu", torch.bfloat16):
                out = functional.linear(torch.randn(4, 8), weight)
                out = functional.linear(torch.tanh(out), torch.randn(5, 5))
                functional.cross_entropy(out.float() if casts else out, torch.arange(4)).backward()

        with torch.autocast("cpu", torch.bfloat16):
            record(tmp_path / name, step)
        return tmp_path / name

    verdict = compare_runs(run("one", False), run("other", True))
    assert verdict.status == "harmless"
    message = verdict.findings[0].message
    assert code_of(message)[0]
    types = re.findall(r"\b(?:b?float\d+)", message)
    assert types[:2] == ["bfloat16", "float32"], message
    assert "cross_entropy.0.forward" in message
