"""MSAdapter: PyTorch's names, MindSpore's values. With a stand-in for the package, named as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

STAND_IN = Path(__file__).parent.parent / "stand_in"


def run(*arguments: str) -> list[str]:
    path = os.pathsep.join([str(STAND_IN), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(STAND_IN / "program.py"), *arguments]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("result")]


def test_names_of_pytorch_and_values_of_mindspore(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    assert run(str(dump), "record") == run(str(tmp_path))
    for step in (0, 1):
        folder = dump / f"step{step}" / "rank"
        assert not (folder / "dump_error_info.log").exists()
        head = json.loads((folder / "dump.json").read_text())
        assert head["framework"] == "mindtorch"
        data: dict[str, Any] = head["data"]
        assert [name for name in data if ".forward" in name] == [
            "Functional.linear.0.forward",
            "Module.block.inner.Linear.forward.0",
            "Functional.relu.0.forward",
            "Tensor.__add__.0.forward",
            "Module.block.Block.forward.0",
            "Torch.tanh.0.forward",
            "Tensor.sum.0.forward",
        ]
        assert {"Functional.relu.0.backward", "Torch.tanh.0.backward", "Module.block.Block.backward.0"} <= set(data)
        (given,) = data["Torch.tanh.0.forward"]["input_args"]
        assert (given["type"], given["dtype"]) == ("mindspore.Tensor", "Float32")
        assert data["Module.block.inner.Linear.parameters_grad"]["weight"][0]["shape"] == [3, 4]
        parents = json.loads((folder / "construct.json").read_text())
        assert parents["Functional.linear.0.forward"] == "Module.block.inner.Linear.forward.0"
        assert parents["Module.block.inner.Linear.forward.0"] == "Module.block.Block.forward.0"
