"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from torch_dumps import Dump

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_first_dump(tmp_path: Path) -> None:
    """Two trainings are recorded, call for call the same ones, and differ in their values."""
    script = EXAMPLES / "01_first_dump" / "demo.py"
    ended = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    healthy, broken = Dump(tmp_path / "healthy"), Dump(tmp_path / "broken")
    assert healthy.steps() == broken.steps() == ["step0", "step50", "step100"]
    assert healthy.names(0) == broken.names(0)
    first = "Module.blocks.0.Block.forward.0"
    second = "Module.blocks.1.Block.forward.0"
    assert healthy.data()[first]["output"] == broken.data()[first]["output"]
    assert healthy.data()[second]["output"] != broken.data()[second]["output"]
    assert not healthy.errors()
    assert str(tmp_path / "broken" / "step0" / "rank") in ended.stdout
