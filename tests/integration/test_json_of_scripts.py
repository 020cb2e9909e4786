"""Commands that run a script: with ``--json`` and ``--quiet`` what the script prints stays apart from what we say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import forked

SCRIPT = """
import subprocess
import torch

print("of the script")
subprocess.run(["echo", "of its child"], check=True)
torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
"""


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_what_a_script_prints_stays_apart(tmp_path: Path, option: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = forked.run("-m", "msprobe", "run", "-o", "dump", option, "--", "train.py", cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    printed = done.stderr if option == "--json" else done.stdout
    assert printed.count("of the script\n") == printed.count("of its child\n") == 1
    if option == "--json":
        assert json.loads(done.stdout)["dump_path"] == "dump"
    else:
        assert "[INFO]" not in done.stdout + done.stderr
    assert list(tmp_path.glob("dump/step*/rank*/dump.json"))
