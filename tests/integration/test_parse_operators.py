"""Operators of two real trainings on the CPU (level L2), compared by the command that compares kernels of devices."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import torch
from torch import nn

import msprobe
from msprobe.cli.parse_shell import Shell
from msprobe.pytorch import PrecisionDebugger


def record(folder: Path, change: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight[0, 0] += change
    recorder = PrecisionDebugger(dump_path=str(folder), task="tensor", level="L2")
    try:
        recorder.start(model)
        model(torch.ones(2, 4)).sum().backward()
        recorder.stop()
        recorder.step()
    finally:
        PrecisionDebugger.reset()


def compared(folder: Path) -> list[dict[str, str]]:
    assert Shell().run(io.StringIO(f"vc -m {folder}/a -g {folder}/b -out {folder}/out\n")) == 0
    (file,) = (folder / "out").glob("batch_compare_*.csv")
    return list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"))))


def test_two_runs_alike_agree_in_every_operator(tmp_path: Path) -> None:
    record(tmp_path / "a", 0.0)
    record(tmp_path / "b", 0.0)
    rows = compared(tmp_path)
    assert {row["NPU File Name"].split(".")[1] for row in rows} >= {"addmm", "mm", "sum"}
    assert {row["Md5 Consistency"] for row in rows} == {"True"}


def test_one_weight_that_differs_shows_first_where_it_goes_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "a", 0.0)
    record(tmp_path / "b", 0.5)
    rows = compared(tmp_path)
    apart = [row["NPU File Name"] for row in rows if row["Md5 Consistency"] == "False"]
    addmm = [name for name in apart if ".addmm." in name]
    assert "input" in addmm[0]
    assert "output" in addmm[-1]
    assert apart[0] in capsys.readouterr().out
    (most,) = {row["Max Abs Error"] for row in rows if row["NPU File Name"] == addmm[0]}
    assert float(most) == pytest.approx(0.5)


def test_the_verdict_on_operators_names_the_weight(tmp_path: Path) -> None:
    record(tmp_path / "a", 0.0)
    record(tmp_path / "b", 0.5)
    found = msprobe.compare(tmp_path / "a", tmp_path / "b")
    assert found.exit_code == 1
    (first, *_) = found.findings
    assert (first.kind, first.where) == ("initial_weights", "weight")
