"""The gradient probe beside that of 8.1.1: the same program writes the same bytes, and each reads the other's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference_env import make, python_of

PROGRAM = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
debugger = PrecisionDebugger(sys.argv[1])
debugger.monitor(model)
numbers = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(6, 8, generator=numbers)
    if step == 2 and sys.argv[2] == "bad":
        x = -x
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
debugger.stop()
"""
COMPARE = """
import sys
from msprobe import GradComparator
GradComparator.compare_distributed(*sys.argv[1:])
"""
TOOLS = ("theirs", "ours")


def run(tool: str, code: str, *words: object) -> None:
    python = python_of("8.1.1") if tool == "theirs" else Path(sys.executable)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([str(python), "-c", code, *map(str, words)], check=True, capture_output=True, env=environment)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders {tool}_{level}_{good, bad}."""
    make("8.1.1")
    below = tmp_path_factory.mktemp("probed")
    for level in ("L0", "L1", "L2"):
        for tool in TOOLS:
            for way in ("good", "bad"):
                folder = below / f"{tool}_{level}_{way}"
                section = {"grad_level": level, "param_list": [], "bounds": [-0.01, 0, 0.01]}
                if tool == "ours":
                    section["compat_norm"] = True
                config = below / f"{folder.name}.json"
                config.write_text(json.dumps({"task": "grad_probe", "dump_path": str(folder), "grad_probe": section}))
                run(tool, PROGRAM, config, way)
    return below


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
def test_the_files_are_the_same_to_the_byte(probed: Path, level: str) -> None:
    found = []
    for tool in TOOLS:
        folder = probed / f"{tool}_{level}_good"
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "run.json")
        found.append({str(path.relative_to(folder)): path.read_bytes() for path in paths})
    assert found[0] == found[1]
    assert len(found[0]) == (3 if level == "L0" else 3 + 3 * 4)


def test_similarities_are_the_same_to_the_byte_and_ours_has_a_verdict(probed: Path, tmp_path: Path) -> None:
    tables = []
    for tool in TOOLS:
        # Each compares what the other has recorded.
        other = TOOLS[tool == "theirs"]
        run(tool, COMPARE, probed / f"{other}_L1_good", probed / f"{other}_L1_bad", tmp_path / tool)
        tables.append((tmp_path / tool / "rank0" / "similarities.csv").read_bytes())
    assert tables[0] == tables[1]
    verdict = (tmp_path / "ours" / "verdict.csv").read_text("utf-8-sig").splitlines()
    assert verdict[1].startswith("0,2.weight,2,0.4")
