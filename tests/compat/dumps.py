"""Record programs under any msprobe, and read what they wrote with nothing but the standard library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
_BENCH = str(REPOSITORY / "bench")
sys.path.insert(0, _BENCH)

from reference_env import clean_environment, command_of, python_of  # noqa: E402

# Its folders have the names of packages: `mindspore` must not be found there.
sys.path.remove(_BENCH)

OURS = "ours"
REFERENCES = ("8.1.1", "26.2.0")


@dataclass(frozen=True)
class Setting:
    """One recording: who records which program at which level, and what of it."""

    tool: str
    program: str
    level: str
    task: str = "statistics"
    summary_mode: str = "statistics"

    @property
    def folder_name(self) -> str:
        return "-".join((self.tool, self.program, self.level, self.task, self.summary_mode))


@dataclass(frozen=True)
class Rank:
    """The files of one step and rank."""

    folder: Path

    @cached_property
    def dump(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "dump.json").read_text())
        return content

    @property
    def data(self) -> dict[str, dict[str, Any]]:
        data: dict[str, dict[str, Any]] = self.dump["data"]
        return data

    @cached_property
    def construct(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "construct.json").read_text())
        return content

    @cached_property
    def stacks(self) -> dict[str, list[str]]:
        """Entry name -> its frames, innermost first."""
        groups = json.loads((self.folder / "stack.json").read_text())
        return {name: frames for names, frames in groups.values() for name in names}


def environment_of(tool: str) -> dict[str, str]:
    environment = {**clean_environment(), "PYTHONWARNINGS": "ignore"}
    if tool == OURS:
        environment["PYTHONPATH"] = str(REPOSITORY / "src")
    return environment


def record(setting: Setting, below: Path) -> list[Rank]:
    """Run one program in its own process; return its steps. Fails with the output of a run that fails."""
    folder = below / setting.folder_name
    folder.mkdir(parents=True)
    config = {
        "task": setting.task,
        "dump_path": str(folder / "dump"),
        "rank": [],
        "step": [],
        "level": setting.level,
        # 26.2.0 leaves out most shape and creation calls by default.
        "risk_level": "ALL",
        setting.task: {"scope": [], "list": [], "data_mode": ["all"]},
    }
    if setting.task == "statistics":
        config["statistics"]["summary_mode"] = setting.summary_mode
    (folder / "config.json").write_text(json.dumps(config))
    python = sys.executable if setting.tool == OURS else str(python_of(setting.tool))
    done = subprocess.run(
        [python, str(HERE / "record.py"), setting.program, str(folder / "config.json")],
        env=environment_of(setting.tool), cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{setting}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    steps = sorted((folder / "dump").glob("step*"), key=lambda path: int(path.name.removeprefix("step")))
    ranks = [sorted(path for path in step.iterdir() if path.is_dir()) for step in steps]
    assert all(len(found) == 1 for found in ranks), f"{setting}: not one rank folder a step: {ranks}"
    return [Rank(found[0]) for found in ranks]


def run_command(version: str, *arguments: str | os.PathLike[str], cwd: Path) -> str:
    """Run the published `msprobe` command of one version; return its output, or fail with it."""
    done = subprocess.run(
        [str(command_of(version)), *map(str, arguments)],
        env=environment_of(version), cwd=cwd, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"msprobe {version} {arguments}:\n{output[-4000:]}"
    return output
