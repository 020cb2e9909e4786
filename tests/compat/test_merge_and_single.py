"""merge_result, SingleSave and SingleComparator beside those of the published 8.1.1."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dumps import OURS, environment_of, run_command
from reference_env import make
from support.hand_made import call, tensor, write_part

from msprobe.core import SingleComparator
from msprobe.pytorch import compare_distributed
from msprobe.report.merged_sheet import merge_result

calamine = pytest.importorskip("python_calamine")

VERSION = "8.1.1"
SAVING = """
import sys
import torch
from msprobe.core import SingleSave

factor = float(sys.argv[2])
saver = SingleSave(sys.argv[1], fmk="pytorch")
saver.save_config({"a": 1})
for step in range(2):
    for micro_step in range(2):
        base = torch.arange(12.0).reshape(3, 4)
        saver.save({"resp": base * factor, "logits": [base, base + factor], "half": base.to(torch.bfloat16)})
    saver.save({"whole": torch.arange(5), "flag": torch.tensor([True, False]), "scalar": torch.tensor(2.5 * factor)})
    saver.save_ex({"plain": base * factor})
    saver.step()
"""


def sheets(path: Path) -> dict[str, list[list[Any]]]:
    book = calamine.CalamineWorkbook.from_path(str(path))
    return {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}


def test_merged_sheets_are_those_of_the_published_one(tmp_path: Path) -> None:
    make(VERSION)
    for rank in (0, 1):
        for side, value in (("a", 1.5 + rank), ("b", 1.0)):
            data = {
                f"{api}.{number}.forward": call(tensor(2), tensor(3, value=value), out=tensor(2, value=value))
                for api in ("Torch.add", "Distributed.all_reduce", "Torch.mul")
                for number in range(2 + rank)
            }
            data["Torch.add.0.forward"]["input_kwargs"]["group"] = {"type": "str", "value": "[0, 1]"}
            write_part(tmp_path / side / f"rank{rank}", data)
    compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "results")
    config = tmp_path / "config.yaml"
    config.write_text("api: [Torch.mul, Torch.add]\ncompare_index: [Max diff, NormRelativeErr]\n")
    ours = sheets(merge_result(tmp_path / "results", tmp_path / "ours", config))
    # The published one knows its own sheets by another name than it gives them.
    (tmp_path / "renamed").mkdir()
    for path in (tmp_path / "results").glob("*.xlsx"):
        rank = path.name.split("_")[2]
        shutil.copy(path, tmp_path / "renamed" / path.name.replace(rank, f"{rank}-{rank}"))
    arguments = ("-i", tmp_path / "renamed", "-o", tmp_path / "theirs", "-config", config)
    run_command(VERSION, "-f", "pytorch", "merge_result", *arguments, cwd=tmp_path)
    (written,) = (tmp_path / "theirs").glob("*.xlsx")
    theirs = sheets(written)
    assert list(ours) == list(theirs)
    for metric, rows in theirs.items():
        assert ours[metric] == rows
    assert len(ours["Max diff"]) > 15
    assert "NPU:[0, 1]  Bench:[0, 1]" in [cell for row in ours["Max diff"] for cell in row]


def save(tool: str, folder: Path, factor: float, below: Path) -> None:
    """Run the saving program under one msprobe."""
    script = below / "saving.py"
    script.write_text(SAVING)
    python = sys.executable if tool == OURS else str(make(tool))
    done = subprocess.run(
        [python, str(script), str(folder), str(factor)], env=environment_of(tool), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tool", [OURS, VERSION])
def test_single_sheets_are_those_of_the_published_one(tmp_path: Path, tool: str) -> None:
    for name, factor in (("a", 1.0), ("b", 1.001)):
        save(tool, tmp_path / name, factor, tmp_path)
    SingleComparator.compare(tmp_path / "a", tmp_path / "b", tmp_path / "ours")
    script = "from msprobe.core import SingleComparator as S\n"
    script += f"S.compare({str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r}, "
    script += f"{str(tmp_path / 'theirs')!r}, num_processes=1)\n"
    subprocess.run(
        [str(make(VERSION)), "-c", script], env=environment_of(VERSION), check=True, capture_output=True, timeout=300
    )
    names = sorted(path.name for path in (tmp_path / "theirs").glob("*.xlsx"))
    assert names == sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert len(names) == 7
    for name in names:
        ((sheet, mine),) = sheets(tmp_path / "ours" / name).items()
        ((other, rows),) = sheets(tmp_path / "theirs" / name).items()
        assert sheet == other == "Sheet1"
        assert len(mine) == len(rows)
        for row, their_row in zip(mine, rows, strict=True):
            assert row[:6] == their_row[:6]
            for cell, their_cell in zip(row[6:], their_row[6:], strict=True):
                assert cell == (pytest.approx(their_cell, rel=1e-6) if isinstance(their_cell, float) else their_cell)


def test_saved_files_are_those_of_the_published_one(tmp_path: Path) -> None:
    for name, tool in (("ours", OURS), ("theirs", VERSION)):
        save(tool, tmp_path / name, 1.0, tmp_path)
    found = [
        sorted(path.relative_to(tmp_path / name).as_posix() for path in (tmp_path / name).rglob("*") if path.is_file())
        for name in ("ours", "theirs")
    ]
    assert found[0] == found[1]
