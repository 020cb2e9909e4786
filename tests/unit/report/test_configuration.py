from __future__ import annotations

from pathlib import Path

import pytest
from support.coded_texts import mentions
from support.packs import statistics, write_pack
from support.sheets import read_workbook

from msprobe.report.configuration import workbook
from msprobe.report.configuration.folder import compare_to_folder
from msprobe.report.configuration.text import lines


def packs(folder: Path, **differing: float) -> tuple[Path, Path]:
    """Two packs with three weights, of which the second has other means for those that are named."""
    names = ("a", "b", "c")
    found = []
    for number, means in enumerate(({}, differing)):
        tree = {name: statistics(1.0, -1.0, means.get(name, 0.5), 2.0) for name in names}
        entries = {"env": {}, "weights/step0/rank0/weight.json": tree}
        found.append(write_pack(folder / f"{number}.zip", entries))
    return found[0], found[1]


def test_a_sheet_with_more_rows_than_a_sheet_may_have_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "MOST_ROWS", 2)
    compare_to_folder(*packs(tmp_path, c=0.25), tmp_path / "out")
    sheets = read_workbook(tmp_path / "out/result.xlsx")
    assert [*sheets] == ["summary", "env", "weights_part_0", "weights_part_1", "findings"]
    assert [row["weight_name"] for row in sheets["weights_part_1"].rows] == ["c"]
    assert sheets["weights_part_1"].colours == ["red"]
    assert sheets["weights_part_0"].colours == ["", ""]


def test_the_page_shows_what_differs_first_and_reports_rows_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msprobe.report.configuration.page._MOST_ROWS", 2)
    compare_to_folder(*packs(tmp_path, c=0.25), tmp_path / "out")
    page = (tmp_path / "out/result.html").read_text()
    assert page.index("<td>c</td>") < page.index("<td>a</td>")
    assert "<td>b</td>" not in page
    assert "1 more in result.xlsx" in page


def test_the_console_says_the_worst_twelve_and_what_was_not_compared(tmp_path: Path) -> None:
    static = "hyperparameters/hyperparameters_static.json"
    one, two = (write_pack(tmp_path / f"{n}.zip", {static: {f"x{i}y": n for i in range(20)}}) for n in (1, 2))
    told = lines(compare_to_folder(one, two, tmp_path / "out"))
    assert sum("hyperparameters: x" in line for line in told) == 12
    assert any(mentions(line, "more-in-findings-sheet", count=8) for line in told)
    (note,) = [line for line in told if "note:" in line]
    assert mentions(note, "packs-lack", names="dataset, weights, random")
    assert "ConfigChecker" in note
