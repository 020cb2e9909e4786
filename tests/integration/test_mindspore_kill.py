"""A MindSpore training that is killed in the middle of a step leaves what was recorded, nearly up to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from msprobe.store.reader import open_dump  # noqa: E402

PROGRAM = Path(__file__).with_name("mindspore_kill.py")
# Tensors are read every half second, which here are five of them.
MOST_LOST = 5


def test_a_killed_step_is_readable_nearly_to_its_end(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, str(PROGRAM), str(tmp_path / "dump")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
    handed_over = int(done.stdout.splitlines()[-1])
    dump = open_dump(tmp_path / "dump")
    whole, killed = dump.part(0), dump.part(1)
    assert whole.complete
    assert not killed.complete
    assert killed.lost == 0
    assert handed_over > 100
    assert handed_over - MOST_LOST <= len(killed) <= handed_over
    rows = killed.tensors()
    assert (rows.nulls == 0).all()
    there = [name for name in rows.data_name if name and killed.has_tensor(name)]
    assert len(there) > len(rows.entry) // 2
    for name in there:
        np.load(killed.tensor_path(name))
