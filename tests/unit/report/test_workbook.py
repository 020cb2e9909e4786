from __future__ import annotations

import csv
import itertools
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sheets import read_workbook

from msprobe.errors import PathError
from msprobe.report import workbook
from msprobe.report.csv_table import write_csv
from msprobe.report.workbook import PLAIN, RED, YELLOW, Sheet, safe_text, write_workbook

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
calamine = pytest.importorskip("python_calamine")


def sheet(*columns: list[Any], name: str = "Sheet", **more: Any) -> Sheet:
    header = [f"c{number}" for number in range(len(columns))]
    return Sheet(name, header, [columns], len(columns[0]), **more)


def read(path: Path, name: str = "Sheet") -> list[list[Any]]:
    """The rows, as an independent reader sees them."""
    rows: list[list[Any]] = calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_name(name).to_python()
    return rows


def test_numbers_and_texts_come_back(tmp_path: Path) -> None:
    columns = [[1.5, -2.0, 1e-300, 0.1], ["a", "", "b\nc", " d "], [7, True, None, "<&>\"'"]]
    write_workbook(tmp_path / "x.xlsx", [sheet(*columns)])
    assert read(tmp_path / "x.xlsx") == [
        ["c0", "c1", "c2"],
        [1.5, "a", 7.0],
        [-2.0, "", "True"],
        [1e-300, "b\nc", ""],
        [0.1, " d ", "<&>\"'"],
    ]


def test_numbers_have_sixteen_digits(tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet([25.495098114013672, 1 / 3, 2**62 + 1])])
    with zipfile.ZipFile(tmp_path / "x.xlsx") as archive:
        text = archive.read("xl/worksheets/sheet1.xml").decode()
    assert all(f"<v>{wanted}</v>" in text for wanted in ("25.49509811401367", "0.3333333333333333"))
    assert "<v>4.611686018427388E+18</v>" in text


@pytest.mark.parametrize(
    ("value", "text"), [(float("inf"), "inf\t"), (-float("inf"), "-inf\t"), (float("nan"), "nan\t")]
)
def test_numbers_that_no_sheet_has_are_texts(value: float, text: str, tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet([value])])
    assert read(tmp_path / "x.xlsx")[1] == [text]


@given(st.lists(st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers()), min_size=1))
def test_any_cells_come_back(tmp_path_factory: pytest.TempPathFactory, cells: list[Any]) -> None:
    path = tmp_path_factory.mktemp("cells") / "x.xlsx"
    write_workbook(path, [sheet(cells)])
    found = [row["c0"] for row in read_workbook(path)["Sheet"].rows]
    for got, cell in zip(found, cells, strict=True):
        if isinstance(cell, str):
            clean = workbook._UNSHOWABLE.sub("\ufffd", safe_text(cell)).replace("\r\n", "\n").replace("\r", "\n")
            assert got == clean
        elif abs(cell) < 1e300:
            assert got == pytest.approx(float(cell), rel=1e-15)


def test_rows_have_colours(tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet(["a", "b", "c"], ["", 1.0, "x"], colours=[PLAIN, YELLOW, RED])])
    assert read_workbook(tmp_path / "x.xlsx")["Sheet"].colours == ["", "yellow", "red"]


def test_sheets_too_long_for_one_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "MOST_ROWS", 4)
    blocks = [[[str(i) for i in range(start, start + 3)]] for start in (0, 3, 6)]
    long = Sheet("Sheet", ["n"], blocks, 9, colours=[PLAIN] * 5 + [RED] + [PLAIN] * 3)
    write_workbook(tmp_path / "x.xlsx", [long, sheet(["z"], name="Unmatched")])
    found = read_workbook(tmp_path / "x.xlsx")
    assert list(found) == ["part_0", "part_1", "part_2", "Unmatched"]
    rows = [row["n"] for name in ("part_0", "part_1", "part_2") for row in found[name].rows]
    assert rows == [str(i) for i in range(9)]
    assert found["part_1"].colours == ["", "red", "", ""]


def test_an_empty_table_has_a_header(tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [Sheet("Sheet", ["a"], [], 0)])
    assert read(tmp_path / "x.xlsx") == [["a"]]


def test_names_of_sheets_are_made_fit(tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet(["z"], name='a/b[c]:"d"?*' + "x" * 40)])
    (name,) = read_workbook(tmp_path / "x.xlsx")
    assert len(name) <= 31
    assert not set(name) & set("/[]:?*")


def test_long_texts_are_cut(tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet(["y" * 40_000])])
    assert len(read(tmp_path / "x.xlsx")[1][0]) == 32_767


@pytest.mark.parametrize("text", ["=1+1", "+a", "-b", "@c", "%d", "＝e"])
def test_texts_like_formulas_are_escaped(text: str, tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet([text])])
    write_csv(tmp_path / "x.csv", ["a"], [[[text]]])
    assert read(tmp_path / "x.xlsx")[1] == [f"'{text}"]
    with (tmp_path / "x.csv").open(newline="") as file:
        assert list(csv.reader(file))[1] == [f"'{text}"]


@pytest.mark.parametrize("text", ["-1.5", "-inf\t", "+3e-5%", "Torch.add", "-inf%"])
def test_numbers_in_texts_are_left_alone(text: str) -> None:
    assert safe_text(text) == text


def test_a_nul_is_shown_and_not_written(tmp_path: Path) -> None:
    write_workbook(tmp_path / "x.xlsx", [sheet(["a\0b"])])
    write_csv(tmp_path / "x.csv", ["a"], [[["a\0b"]]])
    assert read(tmp_path / "x.xlsx")[1] == ["a\ufffdb"]
    assert (tmp_path / "x.csv").read_text(encoding="utf-8") == "a\na\ufffdb\n"


def failing_blocks() -> Iterator[list[list[str]]]:
    yield [["a"]]
    raise PathError("the disk is full.")


@pytest.mark.parametrize("suffix", [".xlsx", ".csv"])
def test_what_fails_leaves_nothing_behind(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_text("before")
    with pytest.raises(PathError, match="disk is full"):
        if suffix == ".csv":
            write_csv(path, ["a"], failing_blocks())
        else:
            write_workbook(path, [Sheet("Sheet", ["a"], failing_blocks(), 2)])
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "before"


@pytest.mark.parametrize("suffix", [".xlsx", ".csv"])
def test_files_have_their_mode_whatever_the_umask(suffix: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / f"x{suffix}"
        if suffix == ".csv":
            write_csv(path, ["a"], [[["b"]]])
        else:
            write_workbook(path, [sheet(["b"])])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_path_that_cannot_be_written_is_named(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (lambda path: write_workbook(path, [sheet(["b"])]), lambda path: write_csv(path, ["a"], [])):
        with pytest.raises(PathError, match=folder):
            write(tmp_path / folder / "x.xlsx")


def test_csv_is_written_as_26_2_does(tmp_path: Path) -> None:
    columns = [[1.5, float("inf"), -float("inf"), 3], ["a,b", 'c"d', "e\nf", ""]]
    write_csv(tmp_path / "x.csv", ["n", "t"], [columns])
    assert (tmp_path / "x.csv").read_bytes() == b'n,t\n1.5,"a,b"\n inf,"c""d"\n -inf,"e\nf"\n3,\n'


def test_many_columns_have_their_letters() -> None:
    names = [workbook._letters(number) for number in range(18_278)]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert names == ["".join(word) for length in (1, 2, 3) for word in itertools.product(alphabet, repeat=length)]


def inside(path: Path, number: int = 1) -> Any:
    """The XML of a sheet."""
    with zipfile.ZipFile(path) as archive:
        return ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{number}.xml"))


def test_the_header_stays_in_view_and_every_column_can_be_filtered(tmp_path: Path) -> None:
    columns = [[f"Torch.tanh.{number}.forward.output.0" for number in range(700)], [0.5] * 700, [None] * 700]
    write_workbook(tmp_path / "x.xlsx", [sheet(*columns)])
    (pane,) = inside(tmp_path / "x.xlsx").iter(f"{MAIN}pane")
    assert (pane.get("ySplit"), pane.get("topLeftCell"), pane.get("state")) == ("1", "A2", "frozen")
    (filtered,) = inside(tmp_path / "x.xlsx").iter(f"{MAIN}autoFilter")
    assert filtered.get("ref") == "A1:C701"
    # In the order that the format asks for.
    assert [one.tag.removeprefix(MAIN) for one in inside(tmp_path / "x.xlsx")] == [
        "sheetViews",
        "cols",
        "sheetData",
        "autoFilter",
    ]


def test_columns_are_as_wide_as_what_is_in_them(tmp_path: Path) -> None:
    columns = [["Torch.tanh.0.forward.output.0", ""], [1.0, 2.0], ["x" * 5000, "y"], [None, "<&>" * 5]]
    write_workbook(tmp_path / "x.xlsx", [sheet(*columns)])
    widths = [float(one.get("width")) for one in inside(tmp_path / "x.xlsx").iter(f"{MAIN}col")]
    assert len("Torch.tanh.0.forward.output.0") < widths[0] < 35
    assert widths[1] < 10
    assert 50 < widths[2] <= 70
    assert widths[3] > 15


def test_a_sheet_in_parts_has_all_of_this_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "MOST_ROWS", 3)
    write_workbook(tmp_path / "x.xlsx", [sheet([1.0] * 5)])
    refs = [next(inside(tmp_path / "x.xlsx", number).iter(f"{MAIN}autoFilter")).get("ref") for number in (1, 2)]
    assert refs == ["A1:A4", "A1:A3"]
