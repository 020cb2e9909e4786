"""The configuration check as a process of its own: what it collects of variables and of a training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from support.command_line import process
from unit.config_check.test_checker import read


def test_the_variables_of_a_pack_are_those_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("torchrun train.py --seed 3\n")
    done = process("config_check", "-d", "train.sh", "-o", "s.zip", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        found = json.loads(archive.read("env"))
    # LINES and COLUMNS are put there by the readline of the process of the tests.
    assert {name for name in found if name not in os.environ} <= {"PWD", "OLDPWD", "LC_CTYPE", "LINES", "COLUMNS"}


IN_A_PROCESS = """
import sys
from msprobe.core.config_check import ConfigChecker
ConfigChecker.apply_patches()
import torch
class Net(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.randn_like(x)
model = Net(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 1.0)  # imports the compiler
assert "torch._dynamo" in sys.modules and "config_check" in torch.rand.__code__.co_filename
compiled = torch.compile(model, backend="eager", fullgraph=True)
ConfigChecker(compiled, None, sys.argv[1])
for _ in range(2):
    compiled(torch.ones(1, 2))
"""


def test_a_compiler_that_is_imported_meanwhile_knows_all_functions(tmp_path: Path) -> None:
    """In a process of its own, where it has not been imported yet."""
    command = [sys.executable, "-W", "error::UserWarning", "-c", IN_A_PROCESS, str(tmp_path / "a.zip")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert list(read(tmp_path / "a.zip")["weights/step0/rank0/weight.json"]) == ["weight", "bias"]
