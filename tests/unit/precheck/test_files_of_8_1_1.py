"""Details files that mindstudio-probe 8.1.1 wrote, of two dumps of a small model, and what it made of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from msprobe.precheck import precision_compare

FILES = Path(__file__).parent / "files_of_8_1_1"


def rows(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row[0]: row for row in csv.reader(file)}


@pytest.mark.parametrize("kind", ["result", "details"])
def test_its_files_get_its_verdict(tmp_path: Path, kind: str) -> None:
    paths = precision_compare.compare(
        FILES / "npu_details.csv", FILES / "gpu_details.csv", tmp_path, "8.1.1", "20260101000000"
    )
    ours = rows(paths[kind == "details"])
    theirs = rows(FILES / f"compared_{kind}.csv")
    assert list(ours) == list(theirs)
    # The message is the last cell, in words of each.
    assert [row[:-1] for row in ours.values()] == [row[:-1] for row in theirs.values()]


def test_an_api_that_the_other_file_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    lacking = tmp_path / "gpu.csv"
    with (FILES / "gpu_details.csv").open(encoding="utf-8-sig", newline="") as file:
        kept = [row for row in csv.reader(file) if not row[0].startswith("Torch.softmax")]
    with lacking.open("w", newline="") as file:
        csv.writer(file).writerows(kept)
    result, _ = precision_compare.compare(FILES / "npu_details.csv", lacking, tmp_path, "8.1.1", "20260101000000")
    row = rows(result)["Torch.softmax.0"]
    assert row[1:3] == ["SKIP", "SKIP"]
    assert "no row" in row[3]
    assert rows(result)["Functional.linear.0"][1] == "pass"
