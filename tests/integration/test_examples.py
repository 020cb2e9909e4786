"""The examples run as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import forked
from torch_dumps import Dump

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_first_dump(tmp_path: Path) -> None:
    """Two trainings are recorded, call for call the same ones, and differ in values; the verdict names the mistake."""
    script = EXAMPLES / "01_first_dump" / "demo.py"
    ended = forked.run(str(script), str(tmp_path), cwd=tmp_path, timeout=250)
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
    check_verdict(tmp_path / "comparison", ended.stdout)


def check_verdict(folder: Path, told: str) -> None:
    """The planted mistake is found, in its line, and the files to open are there."""
    assert "DIVERGED at step 0, forward pass, in blocks.1.attention" in told
    verdict = json.loads((folder / "verdict.json").read_text())
    first = verdict["findings"][0]
    assert (first["kind"], first["module"]) == ("argument", "blocks.1.attention")
    assert first["evidence"]["arguments"] == [{"slot": "input.1", "candidate": "0.125", "reference": "0.25"}]
    assert "* self.scale" in first["stack"][0]
    for name in ("verdict.html", "compare_result_step0_rank.xlsx"):
        assert (folder / name).stat().st_size > 10_000
        assert str(folder / name) in told
