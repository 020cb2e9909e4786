"""The published configuration check reads our packs, and we read those that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from dumps import run_command
from python_calamine import CalamineWorkbook
from support.command_line import call
from support.packs import statistics, write_pack

STATIC = "hyperparameters/hyperparameters_static.json"
SCRIPT = "torchrun --nproc_per_node 8 train.py --lr 1e-5 --seed {} --bf16\n"


def before(version: str) -> tuple[str, ...]:
    """8.1.1 asks for the framework."""
    return ("-f", "pytorch", "config_check") if version == "8.1.1" else ("config_check",)


def rows_of(folder: Path, sheet: str) -> list[list[object]]:
    """The rows of a sheet without its header."""
    return CalamineWorkbook.from_path(folder / "result.xlsx").get_sheet_by_name(sheet).to_python()[1:]


def levels(folder: Path) -> dict[object, bool]:
    """Which parts pass, in the words of both versions."""
    return {row[0]: str(row[1]) in ("True", "pass") for row in rows_of(folder, "summary")}


def ours(folder: Path, number: int, mean: float) -> Path:
    tensor = statistics(1.0, -1.0, mean, 2.0)
    entries = {
        "env": {"CUDA_LAUNCH_BLOCKING": str(number), "A_KEY": "***12345678"},
        "pip": "torch=2.13.0\nnumpy=2.0\nsystem:python=3.11.4\nmegatron@commit=abc\n",
        STATIC: {"lr": "1e-5", "seed": number},
        "weights/step0/rank0/weight.json": {"w": tensor},
        "dataset/step0/rank0/dataset.json": {"args": {"0": statistics(1.0, 2.0, 3.0, 4.0)}, "kwargs": {}},
        "digests/step0/rank0.json": {"weights": {"w": str(mean)}, "dataset": {"args.0": "a"}},
        "random/rank0.json": {"torch.rand": [{"count": 1, "stack": ["File /a.py, line 3, in f, torch.rand(1)"]}]},
        "random_state/rank0.json": {"seeds": [["torch.manual_seed", 1]]},
    }
    return write_pack(folder / f"{number}_{mean}.zip", entries)


@pytest.mark.parametrize("different", [False, True])
def test_our_packs_are_compared_by_the_published_package_as_by_ours(
    version: str, different: bool, tmp_path: Path
) -> None:
    one, two = ours(tmp_path, 0, 0.5), ours(tmp_path, int(different), 0.25 if different else 0.5)
    run_command(version, *before(version), "-c", one, two, "-o", tmp_path / "theirs", cwd=tmp_path)
    done = call("config_check", "-c", one, two, "-o", tmp_path / "ours")
    assert done.returncode == int(different)
    theirs = levels(tmp_path / "theirs")
    found = levels(tmp_path / "ours")
    found.pop("random_state")
    assert theirs == found
    assert set(theirs.values()) == ({True, False} if different else {True})


def test_packs_of_the_published_package_and_ours_of_the_same_files_agree(version: str, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT.format(1))
    (tmp_path / "other.sh").write_text(SCRIPT.format(2))
    run_command(version, *before(version), "-d", "train.sh", "-o", "theirs.zip", cwd=tmp_path)
    assert call("config_check", "-d", "train.sh", "-o", "ours.zip", cwd=tmp_path).returncode == 0
    assert call("config_check", "-d", "other.sh", "-o", "other.zip", cwd=tmp_path).returncode == 0
    call("config_check", "-c", "theirs.zip", "ours.zip", "-o", "same", cwd=tmp_path)
    assert levels(tmp_path / "same")["hyperparameters"]
    run_command(version, *before(version), "-c", "ours.zip", "other.zip", "-o", "by_them", cwd=tmp_path)
    assert [(row[1], row[6]) for row in rows_of(tmp_path / "by_them", "hyperparameters")] == [("seed", "error")]
