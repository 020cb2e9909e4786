"""The example "find the step": two trainings, and the first step at which they part."""

from __future__ import annotations

import os
from pathlib import Path

import forked
from command_line import Completed, call

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "05_find_the_step"


def _train(folder: Path, *words: str) -> None:
    environment = {**os.environ, "MONITOR_OUTPUT_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    ended = forked.run(str(EXAMPLE / "train.py"), "--steps", "45", *words, cwd=folder.parent, env=environment)
    assert ended.returncode == 0, ended.stderr


def _msprobe(*words: str) -> Completed:
    return call("monitor", *words)


def test_the_example_names_the_step(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    _train(good)
    _train(bad, "--bug", "30")
    found = _msprobe("diff", str(bad), str(good))
    assert found.returncode == 1
    assert "first bad step: 30 " in found.stdout
    assert "learning rate 0.01 instead of 0.001" in found.stdout
    assert _msprobe("diff", str(good), str(good)).returncode == 0
    page = tmp_path / "both.html"
    assert _msprobe("report", str(bad), str(good), "-o", str(page)).returncode == 0
    assert "learning rate 0.01 instead of 0.001" in page.read_text()
