"""The examples run as they stand."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.torch_dumps import Dump

from msprobe.messages import said

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_first_dump(tmp_path: Path) -> None:
    """Two trainings are recorded, call for call the same ones, and differ in values; the verdict names the mistake."""
    script = EXAMPLES / "01_first_dump" / "demo.py"
    ended = forked.run(str(script), str(tmp_path), cwd=tmp_path, timeout=250)
    assert ended.returncode == 0, ended.stderr
    healthy, broken = Dump(tmp_path / "healthy"), Dump(tmp_path / "broken")
    assert healthy.steps() == broken.steps() == ["step0", "step20", "step40"]
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
    place = said("named-at", "DIVERGED", "step 0, forward pass")
    assert f"{place}{said('in-module', 'blocks.1.attention')}" in told
    verdict = json.loads((folder / "verdict.json").read_text())
    check_argument(verdict["findings"][0])
    for name in ("verdict.html", "compare_result_step0_rank.xlsx"):
        assert (folder / name).stat().st_size > 10_000
        assert str(folder / name) in told


def check_argument(first: dict[str, Any]) -> None:
    """The factor of the second block's scores, and its line."""
    assert (first["kind"], first["module"]) == ("argument", "blocks.1.attention")
    assert first["evidence"]["arguments"] == [{"slot": "input.1", "candidate": "0.125", "reference": "0.25"}]
    assert "* self.scale" in first["stack"][0]


def test_prove_it(tmp_path: Path) -> None:
    """Each command of the demo ends as it says; the README has them as they are, and what they print."""
    folder = EXAMPLES / "03_prove_it"
    readme = (folder / "README.md").read_text()
    printed = []
    for command, shown in zip(commands_of(folder, tmp_path), commands_of(folder, "output"), strict=True):
        ended = forked.run(*command.run, cwd=folder, timeout=120)
        assert ended.returncode == command.status, (command.shown, ended.stdout, ended.stderr)
        assert shown.shown in readme
        printed.append(" ".join(ended.stdout.split()))
    assert quoted_but_not_printed(readme, tmp_path, printed) == []
    assert (tmp_path / "script" / "Functional.softmax.1.forward.min.py").is_file()


def quoted_but_not_printed(readme: str, out: Path, printed: list[str]) -> list[str]:
    """Lines that the README shows as output of a command and that none has printed. How many elements differ depends on
    the kernels of the processor.
    """
    quoted = readme.replace("output/", f"{out}/").split("```")[1::2]
    lines = [line for part in quoted for line in part.split("\n")]
    shown = [" ".join(line.split()) for line in lines if line and not line.startswith(("msprobe", "python", "..."))]
    texts = [_COUNT.sub(r"some \1", text) for text in printed]
    return [line for line in shown if not any(_COUNT.sub(r"some \1", line) in text for text in texts)]


_COUNT = re.compile(r"\d+ (of \d+ elements)")


def commands_of(folder: Path, out: str | Path) -> list[Any]:
    """The commands of the demo, with their results in ``out``."""
    spec = importlib.util.spec_from_file_location(f"{folder.name}_demo", folder / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return list(module.commands(str(out)))


def test_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command ends as it says, the setting that is to blame comes first, and so does the rank of the first NaN."""
    folder = EXAMPLES / "04_before_training"
    # torchrun is that of this Python, and its ranks find the packages that the tests have.
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    readme = (folder / "README.md").read_text()
    printed = {}
    for command, shown in zip(commands_of(folder, tmp_path), commands_of(folder, "output"), strict=True):
        ended = forked.run(*command.run, cwd=folder, timeout=120)
        assert ended.returncode == command.status, (command.shown, ended.stdout, ended.stderr)
        assert shown.shown in readme
        printed[command.why] = " ".join(ended.stdout.split())
    assert quoted_but_not_printed(readme, tmp_path, list(printed.values())) == []
    heading = "What differs, what matters first"
    assert "first: 1. error hyperparameters: norm-epsilon: 1e-5 | 1e-50" in printed[heading]
    (found,) = (tmp_path / "nan").glob("anomaly_analyze_*.json")
    (first,) = json.loads(found.read_text())["rank_1"]
    assert first["op_name"] == "Torch.rsqrt.0.forward"


def test_rollout(tmp_path: Path) -> None:
    """What the engine's numbers mean is named, and once that is mended both sides agree; no engine is needed."""
    folder = EXAMPLES / "07_rollout"
    readme = (folder / "README.md").read_text()
    printed, statuses = [], []
    for command, shown in zip(commands_of(folder, tmp_path), commands_of(folder, "output"), strict=True):
        ended = forked.run(*command.run, cwd=folder, timeout=120)
        assert ended.returncode == command.status, (command.shown, ended.stdout, ended.stderr)
        assert shown.shown in readme
        printed.append(" ".join(ended.stdout.split()))
        if command.words[0] == "rollout":
            statuses.append(json.loads((tmp_path / "contract" / "rollout.json").read_text())["status"])
    assert statuses == ["diverged", "agree"]
    assert quoted_but_not_printed(readme, tmp_path, printed) == []
