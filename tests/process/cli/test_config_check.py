"""A pack that a process of its own collects."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

from support.command_line import process


def test_the_variables_of_a_pack_are_those_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("torchrun train.py --seed 3\n")
    done = process("config_check", "-d", "train.sh", "-o", "s.zip", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        found = json.loads(archive.read("env"))
    # LINES and COLUMNS are put there by the readline of the process of the tests.
    assert {name for name in found if name not in os.environ} <= {"PWD", "OLDPWD", "LC_CTYPE", "LINES", "COLUMNS"}
