"""Level L2 of a static graph: the kernel dump that MindSpore writes, and statistics where it refuses them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

PROGRAM = Path(__file__).with_name("mindspore_kernels.py")


def run(folder: Path, settings: dict[str, Any] | None) -> list[str]:
    """Losses and gradients of the program, recorded or not."""
    environment = {key: value for key, value in os.environ.items() if key != "MINDSPORE_DUMP_CONFIG"}
    command = [sys.executable, str(PROGRAM), str(folder / "dump"), json.dumps(settings)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not mentions(done.stdout, "nothing-recorded-in-step")
    assert mentions(done.stdout, "graph-kernels-dumped") == (settings is not None)
    return [line for line in done.stdout.splitlines() if line.startswith("result")]


def test_tensors_of_chosen_kernels_and_steps(tmp_path: Path) -> None:
    recorded = run(tmp_path, {"task": "tensor", "step": [0, 2], "list": ["MatMul"]})
    assert recorded == run(tmp_path, None)
    graph = tmp_path / "dump" / "rank_0" / "Net" / "0"
    assert sorted(folder.name for folder in graph.iterdir()) == ["0", "2"]
    for number in ("0", "2"):
        names = [file.name for file in (graph / number).iterdir()]
        assert names
        assert all(name.startswith("MatMul.") for name in names)
        (given,) = (graph / number).glob("MatMul.Default*.input.0.*.npy")
        assert np.load(given).tolist() == np.full((2, 4), int(number) + 1.0).tolist()
    told = json.loads((tmp_path / "dump" / "kernel_kbyk_dump.json").read_text())
    assert told["common_dump_settings"]["iteration"] == "0|2"
    assert told["common_dump_settings"]["dump_mode"] == 1
    assert None not in told["e2e_dump_settings"].values()


def test_statistics_where_the_backend_refuses_them(tmp_path: Path) -> None:
    assert run(tmp_path, {"task": "statistics"}) == run(tmp_path, None)
    graph = tmp_path / "dump" / "rank_0" / "Net" / "0"
    for number in ("0", "1", "2"):
        assert [file.name for file in (graph / number).iterdir()] == ["statistic.csv"]
        with (graph / number / "statistic.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0])[:10] == [
            "Op Type",
            "Op Name",
            "Task ID",
            "Stream ID",
            "Timestamp",
            "IO",
            "Slot",
            "Data Size",
            "Data Type",
            "Shape",
        ]
        given = next(
            r for r in rows if r["Op Type"] == "MatMul" and r["IO"] == "input" and r["Op Name"][:7] == "Default"
        )
        value = int(number) + 1.0
        assert given["Shape"] == "(2,4)"
        assert given["Data Type"] == "float32"
        assert (float(given["Max Value"]), float(given["Min Value"])) == (value, value)
        assert float(given["L2Norm Value"]) == pytest.approx(value * 8**0.5)
        assert {"Tanh", "TanhGrad"} <= {row["Op Type"] for row in rows}
