"""What ``msprobe.pytorch`` says where PyTorch is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_NO_TORCH = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Absent())
from msprobe.errors import NotAvailableError
for name in sys.argv[1].split(","):
    try:
        getattr(__import__("msprobe.pytorch", fromlist=[name]), name)
    except NotAvailableError as problem:
        print("SENTENCE", problem.message)
    else:
        print("THERE")
"""


@pytest.mark.parametrize(
    ("names", "expected"),
    [("PrecisionDebugger,seed_all,TrainerMon,check_api", "SENTENCE"), ("compare,compare_distributed", "THERE")],
)
def test_a_sentence_says_what_to_install_and_what_works_on_files_works(names: str, expected: str) -> None:
    done = subprocess.run([sys.executable, "-c", _NO_TORCH, names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(names.split(","))
    for name, line in zip(names.split(","), lines, strict=True):
        assert line.startswith(expected)
        assert expected == "THERE" or (f"msprobe.pytorch.{name}" in line and "pip install torch" in line)
