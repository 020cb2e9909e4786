"""The installed MindSpore runs the program of the test data; its dump is joined with its own texts of the graphs."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.graph_dumps import BACKWARD_LINES, DATA, FORWARD_LINES, LOOP_LINES, program_line

from msprobe.cli import main

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

COMMON = {"dump_mode": 0, "net_name": "Net", "iteration": "all", "saved_data": "tensor", "input_output": 0}
RANKS = {"kernels": [], "support_device": [0]}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run: ``program.py``, ``dump`` and ``ir``."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copy(DATA / "program.py", folder)
    settings = {
        "common_dump_settings": {**COMMON, **RANKS, "path": str(folder / "dump")},
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
    }
    (folder / "dump.json").write_text(json.dumps(settings))
    environment = {
        "MINDSPORE_DUMP_CONFIG": str(folder / "dump.json"),
        "MS_DEV_SAVE_GRAPHS": "1",
        "MS_DEV_SAVE_GRAPHS_PATH": str(folder / "ir"),
    }
    subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env={**os.environ, **environment}, check=True, timeout=240
    )
    return folder


@pytest.mark.parametrize("texts", ["ir", "dump/rank_0/graphs"])
def test_every_kernel_of_a_run_has_its_line(recorded: Path, texts: str, tmp_path: Path) -> None:
    words = ["--ir", recorded / texts, "--dump_data", recorded / "dump", "--output", tmp_path]
    assert main(["-f", "mindspore", "code_mapping", *map(str, words)]) == 0
    (result,) = tmp_path.iterdir()
    with open(result, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    files = sorted((recorded / "dump").rglob("*.npy"))
    assert len(files) > 100
    assert sorted(row[0] for row in rows) == list(map(str, files))
    lines: dict[tuple[int, str], int] = {}
    for path, code, scope in rows:
        assert bool(code) is bool(scope) is not Path(path).name.startswith("Parameter.")
        lines[int(Path(path).parents[1].name), Path(path).name.split(".")[1]] = program_line(
            code, str(recorded / "program.py")
        )
    for graph, wanted in {0: FORWARD_LINES | BACKWARD_LINES, **LOOP_LINES}.items():
        assert {name: lines.get((graph, name)) for name in wanted} == wanted
