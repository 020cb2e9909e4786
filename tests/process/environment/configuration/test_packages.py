from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

from support.row_by_row import for_each

from msprobe.environment.configuration.packages import as_text, canonical, collected, compare, git_commit


def test_what_runs_the_numbers_is_an_error_and_the_rest_is_reported() -> None:
    bench = {
        "torch": "2.1.0",
        "Flash_Attn": "2.5",
        "requests": "1.0",
        "megatron.core": "0.9",
        "nvidia-cudnn-cu12": "9.1",
    }
    cmp = {"torch": "2.13.0", "flash-attn": "2.5", "requests": "2.0", "megatron-core": "0.10"}
    part = compare(bench, cmp)
    assert part.rows == [
        ("megatron-core", "0.9", "0.10", "error"),
        ("nvidia-cudnn-cu12", "9.1", "None", "error"),
        ("torch", "2.1.0", "2.13.0", "error"),
        ("requests", "1.0", "2.0", "info"),
    ]
    assert part.level == "error"
    assert compare({"requests": "1"}, {"requests": "2"}).level == "pass"
    assert compare({"requests": "1"}, {"requests": "2"}, also=("Requests",)).level == "error"
    assert compare({}, {}).rows == []


def test_another_kind_of_device_brings_its_own_packages() -> None:
    bench = {"torch": "2.1.0+cu118", "nvidia-cudnn-cu11": "8.7", "system:cuda": "11.8", "numpy": "1.26"}
    cmp = {"torch": "2.1.0", "torch-npu": "2.1.0.post6", "system:cann": "8.0", "numpy": "2.0"}
    levels = {row[0]: row[3] for row in compare(bench, cmp, other_device=True).rows}
    assert levels.pop("numpy") == "error"
    assert set(levels.values()) == {"warning"}


@for_each(
    ("name", "one", "two", "level"),
    [
        ("system:python", "3.11.4", "3.11.9", "warning"),
        ("system:python", "3.10.4", "3.11.4", "error"),
        ("system:cuda", "12.1", "12.4", "error"),
        ("system:gpu", "8 x H100", "8 x A100", "warning"),
        ("system:glibc", "2.31", "2.35", "info"),
        ("mindspeed@commit", "abc", "def", "error"),
        ("mindspeed@commit", "abc", "abc", None),
    ],
)
def test_the_system_below(name: str, one: str, two: str, level: str | None) -> None:
    rows = compare({name: one}, {name: two}).rows
    assert [row[3] for row in rows] == ([] if level is None else [level])


def test_python_packages_commits_and_the_system_are_collected(tmp_path: Path) -> None:
    source = tmp_path / "Megatron-LM"
    source.mkdir()
    git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "proc/driver/nvidia/gpus/0").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/gpus/0/information").write_text("Model: \t NVIDIA H100\nIRQ: 1\n")
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64  550.54.15  Tue\n")
    (tmp_path / "proc/cpuinfo").write_text("model name\t: A CPU\n")
    (tmp_path / "usr/local/cuda").mkdir(parents=True)
    (tmp_path / "usr/local/cuda/version.json").write_text(json.dumps({"cuda": {"version": "12.4.1"}}))
    (tmp_path / "cann").mkdir()
    (tmp_path / "cann/version.cfg").write_text("runtime_running_version=[7.5.T11.0.B088:8.0.RC3]\n")
    found = collected({"PYTHONPATH": str(source), "ASCEND_HOME_PATH": str(tmp_path / "cann")}, str(tmp_path))
    assert found["system:python"] == platform.python_version()
    assert found["Megatron-LM@commit"] == commit
    assert found["system:gpu"] == "1 x NVIDIA H100"
    assert found["system:nvidia-driver"] == "550.54.15"
    assert found["system:cpu"] == "A CPU"
    assert found["system:cuda"] == "12.4.1"
    assert found["system:cann"].startswith("7.5")
    assert any(name == "numpy" for name in found)
    lines = as_text(found).decode().splitlines()
    assert f"Megatron-LM@commit={commit}" in lines
    assert all(line.count("=") >= 1 for line in lines)
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    assert git_commit(str(source / "megatron")) == commit
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "other")], check=True)
    assert git_commit(str(tmp_path / "other")) == commit
    subprocess.run([*git, "checkout", "-q", "--detach"], check=True)
    assert git_commit(str(source)) == commit
    assert git_commit("/") == ""


def test_broken_files_of_the_system_are_none(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda").mkdir(parents=True)
    (tmp_path / "usr/local/cuda/version.json").write_text("[1")
    (tmp_path / ".git").write_text("nonsense")
    found = collected({"PYTHONPATH": str(tmp_path)}, str(tmp_path))
    assert not {"system:cuda", f"{tmp_path.name}@commit"} & found.keys()


def test_names_are_spelled_as_all_tools_do() -> None:
    assert canonical("Torch_NPU") == "torch-npu"
    assert canonical("My.Package@commit") == "my-package@commit"
