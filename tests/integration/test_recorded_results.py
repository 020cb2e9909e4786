"""``run_ut --candidate recorded``: the results of a dump are judged, and a wrong one is named."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from support.coded_texts import mentions
from torch import nn

from msprobe.cli import main
from msprobe.pytorch import PrecisionDebugger


class Attention(nn.Module):
    """Query, key and value have one shape, and several nodes of the graph lie between them and the result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = torch.cat((x, 2 * x, x.sin()), -1)[None].chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(query, key, value)[0]


def record(folder: Path, task: str) -> Path:
    PrecisionDebugger.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), Attention(), nn.Linear(8, 2))
    with PrecisionDebugger(dump_path=str(folder), task=task, level="L1").recording():
        model(torch.randn(3, 4, requires_grad=True)).square().mean().backward()
    PrecisionDebugger.reset()
    return folder / "step0" / "rank" / "dump.json"


def wrong_in(folder: Path) -> list[str]:
    (file,) = folder.glob("accuracy_checking_details_*.csv")
    with file.open(encoding="utf-8-sig", newline="") as opened:
        return [row["API Name"] for row in csv.DictReader(opened) if row["Status"] == "error"]


@pytest.mark.usefixtures("forked_workers")
def test_a_wrong_result_and_a_wrong_gradient_are_named(tmp_path: Path) -> None:
    dump = record(tmp_path / "dump", "tensor")
    words = ["run_ut", "-api_info", str(dump), "--candidate", "recorded", "-o"]
    assert main([*words, str(tmp_path / "sound")]) == 0
    assert wrong_in(tmp_path / "sound") == []
    (file,) = (tmp_path / "sound").glob("accuracy_checking_details_*.csv")
    attention = "Functional.scaled_dot_product_attention.0.backward.output"
    judged = [
        line for line in file.read_text("utf-8-sig").splitlines() if line.startswith(attention) and "pass" in line
    ]
    assert len(judged) == 3
    data = json.loads(dump.read_text())["data"]
    gradients = data["Functional.linear.1.backward"]["input_grads"]
    spoiled = [data["Functional.gelu.0.forward"]["output"][0], gradients["input.1"]]
    for one in spoiled:
        path = dump.parent / "dump_tensor_data" / one["data_name"]
        values = torch.load(path)
        path.unlink()  # the input of the next call may be the same file under another name
        torch.save(values * 1.01, path)
    main([*words, str(tmp_path / "spoiled")])
    found = wrong_in(tmp_path / "spoiled")
    (summary,) = (tmp_path / "spoiled").glob("accuracy_checking_summary_*.txt")
    assert "op_generate --dump" in summary.read_text()
    assert "--device recorded" not in summary.read_text(), "there is no such device"
    assert "Functional.gelu.0.forward.output.0" in found
    assert any(name.startswith("Functional.linear.1.backward") for name in found)
    assert {name.rpartition(".output")[0] for name in found} <= {
        "Functional.gelu.0.forward",
        "Functional.linear.1.backward",
    }


def test_a_dump_without_values_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = record(tmp_path / "dump", "statistics")
    words = ["run_ut", "-api_info", str(dump), "--candidate", "recorded", "-o", str(tmp_path / "out")]
    assert main(words) != 0
    assert mentions(capsys.readouterr().err, "recorded-results-missing")
    assert list((tmp_path / "out").glob("*")) == []
