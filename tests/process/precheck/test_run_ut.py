"""Workers of ``run_ut`` and of torch's own compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from support.command_line import call
from support.prechecked import TENSOR, forward, rows, write_dump
from torch import nn

from msprobe.precheck import pool
from msprobe.pytorch.compile_accuracy_checker.precision_checker import PrecisionChecker

PROCESS = pool.Worker


def test_a_call_that_does_not_end_is_ended_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", PROCESS)  # which is no Python here
    worker = tmp_path / "worker.sh"
    worker.write_text("#!/bin/sh\nread task\necho ready\nread call\nexec sleep 60\n")
    worker.chmod(0o755)
    dump = write_dump(tmp_path, {"Torch.sin.0.forward": forward(TENSOR)})
    words = ("--candidate", f"python:{worker}", "--timeout", 0.2)
    found = call("run_ut", "-api_info", dump, "-o", tmp_path, *words)
    assert found.returncode == 0, found.stderr
    (row,) = rows(tmp_path, "result")[1:]
    assert row[:3] == ["Torch.sin.0", "SKIP", " "]
    assert "no answer within 0.2 s" in row[3]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's own compiler needs one of C++")
def test_what_torch_itself_compiles_draws_the_same_random_numbers() -> None:
    one = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    checker = PrecisionChecker(backend="inductor")
    checker.wrap(one)
    checker.install(one)
    one(torch.randn(8, 4)).square().sum().backward()
    result = checker.collect()
    assert {row.status for row in result.rows[1:]} == {"PASS"}, result.lines()
