"""Kernel dumps and single points of MindSpore graphs, against each other."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, raising
from support.row_by_row import for_each

from msprobe.cli import main
from msprobe.compare.array_files import compare_array_files
from msprobe.compare.kernels import (
    FileSide,
    Kernel,
    common_places,
    compare_statistics,
    find_steps,
    pair_kernels,
    read_kernels,
)
from msprobe.compare.problems import InvalidArgumentError, InvalidPathError
from msprobe.compare.single_points import pair_points, point_name
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.report.graph_sheets import KERNEL_COLUMNS, POINT_COLUMNS, compare_kernels, compare_points

calamine = pytest.importorskip("python_calamine")

BASE = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
HEADER = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,Avg Value,Count,L2Norm Value"
)


def kernel(base: Path, name: str, array: Any = BASE, *, at: str = "rank_0/Net/1/0") -> None:
    (base / at).mkdir(parents=True, exist_ok=True)
    np.save(base / at / f"{name}.npy", array)


def statistics(base: Path, *rows: str, header: str = HEADER, at: str = "rank_0/Net/1/0") -> Path:
    (base / at).mkdir(parents=True, exist_ok=True)
    path = base / at / "statistic.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def row(op: str, *values: object, time: int = 1, dtype: str = "Float32", shape: str = '"(3,4)"') -> str:
    high, low, mean, norm = values
    return f"X,{op},5,0,{time},output,0,48,{dtype},{shape},{high},{low},{mean},12,{norm}"


def sheet(path: Path) -> list[dict[str, Any]]:
    book = calamine.CalamineWorkbook.from_path(str(path))
    assert book.sheet_names == ["Sheet1"]
    header, *rows = book.get_sheet_by_index(0).to_python()
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def test_kernels_answer_to_each_other_by_operator_task_and_slot(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    kernel(a, "MatMul.Default_x.y_MatMul-op1.5.0.100.output.0.1.ND", BASE * 1.5)
    kernel(b, "MatMul.Default_x.y_MatMul-op1.5.3.900.output.0.1.NCHW", BASE)
    kernel(a, "Add.Default_Add-op1.6.0.101.input.0.0.ND")
    kernel(b, "Add.Default_Add-op1.6.0.901.input.1.0.ND")
    (path,) = compare_kernels(a, b, tmp_path / "out")
    assert path.name.startswith("compare_result_0_0_2")
    rows = sheet(path)
    assert tuple(rows[0]) == KERNEL_COLUMNS["npy"]
    assert rows[0]["NPU Name"] == str(a / "rank_0/Net/1/0/MatMul.Default_x.y_MatMul-op1.5.0.100.output.0.1.ND.npy")
    expected = {"NPU Dtype": "float32", "NPU Tensor Shape": "(3, 4)", "NPU max": 18, "Bench max": 12}
    expected |= {"Cosine": 1, "MaxAbsErr": 6, "MaxRelativeErr": 0.5, "One Thousandth Err Ratio": 0}
    expected |= {"Accuracy Reached or Not": "No", "Err_message": ""}
    assert {column: rows[0][column] for column in expected} == expected
    # Of the other operator each side has another input: both stand alone, the bench's at the end.
    assert [bool(found["NPU Name"]) for found in rows] == [True, True, False]
    assert [bool(found["Bench Name"]) for found in rows] == [True, False, True]
    assert rows[1]["Err_message"] == "No bench data matched."
    assert rows[2]["Bench max"] == 12


def test_equal_keys_are_numbered_by_time(tmp_path: Path) -> None:
    for time in (30, 4, 100):
        kernel(tmp_path, f"Add.Add-op1.6.0.{time}.output.0.0.ND")
    kind, found = read_kernels([tmp_path / "rank_0/Net/1/0"])
    assert kind == "npy"
    ordered = [found["Add-op1", "6", "output.0", "0", number].path.name.split(".")[4] for number in range(3)]
    assert ordered == ["4", "30", "100"]


def test_graphs_of_one_step_stand_behind_each_other(tmp_path: Path) -> None:
    for graph, time in ((1, 50), (0, 90)):
        kernel(tmp_path, f"Add.Add-op1.6.0.{time}.output.0.0.ND", at=f"0/Net/{graph}/7")
    steps = find_steps(tmp_path, "npu_path")
    assert list(steps) == [(0, 7)]
    pairs = pair_kernels(read_kernels(steps[0, 7])[1], {})
    assert [str(pair.candidate.path).split(".")[-6] for pair in pairs if pair.candidate] == ["90", "50"]


def test_long_names_stand_in_the_mapping_file(tmp_path: Path) -> None:
    kernel(tmp_path, "12345678901234567890123456789012")
    folder = tmp_path / "rank_0/Net/1/0"
    (folder / "mapping.csv").write_text("12345678901234567890123456789012.npy,Add.Add-op1.6.0.9.output.0.0.ND.npy\n")
    assert list(read_kernels([folder])[1]) == [("Add-op1", "6", "output.0", "0", 0)]


def test_files_of_other_names_are_reported_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel(tmp_path, "Add.Add-op1.6.0.9.output.0.0.ND")
    kernel(tmp_path, "something")
    assert len(read_kernels([tmp_path / "rank_0/Net/1/0"])[1]) == 1
    assert "1 .npy files in" in capsys.readouterr().out


def test_arrays_go_before_statistics_and_both_sides_must_have_the_same(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    kernel(a, "Add.Add-op1.6.0.9.output.0.0.ND")
    statistics(a, row("x", 1, 1, 1, 1))
    statistics(b, row("x", 1, 1, 1, 1))
    with raising(InvalidPathError, "kinds-of-files-differ", our_kinds=".npy files", their_kinds="a statistic.csv"):
        compare_kernels(a, b, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_statistics_become_a_sheet_of_their_own(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    statistics(a, row("MatMul", 18, 1.5, 9.75, 38.25), row("Only", 1, 1, 1, 1))
    statistics(b, row("MatMul", 12, 1, 6.5, 25.5))
    (path,) = compare_kernels(a, b, tmp_path / "out", [0], [0])
    rows = sheet(path)
    assert tuple(rows[0]) == KERNEL_COLUMNS["statistic"]
    assert rows[0]["NPU Name"] == f"MatMul.5.output.0 {a / 'rank_0/Net/1/0/statistic.csv'}"
    expected = {"Max diff": 6, "L2norm diff": 12.75, "MaxRelativeErr": "50.0%", "Accuracy Reached or Not": "Yes"}
    assert {column: rows[0][column] for column in expected} == expected
    assert rows[1]["Err_message"] == "No bench data matched."


def side(*values: float | None, dtype: str = "Float32", shape: str = "(3,4)") -> FileSide:
    high, low, mean, norm = values
    return FileSide(dtype, shape, (high, low, mean, norm))


NAN, INF = float("nan"), float("inf")


@for_each(
    ("ours", "theirs", "accuracy", "relative"),
    [
        (side(1, 1, 1, 1), side(1, 1, 1, 1), "Yes", "0.0%"),
        (side(20, 0, 0, 1), side(10, 0, 0, 1), "Yes", "100.0%"),
        (side(21, 0, 0, 1), side(10, 0, 0, 1), "No", "110.00000000000001%"),
        # mindstudio-probe divides by the larger number, whatever its sign, and takes any difference for small.
        (side(-1, -9, -3, 9), side(-3, -9, -3, 9), "No", "66.66666666666666%"),
        (side(3, 0, 0, 1), side(0, 0, 0, 1), "No", "N/A"),
        (side(NAN, 0, 0, 1), side(1, 0, 0, 1), "No", "N/A"),
        (side(1, 0, INF, 1), side(1, 0, 0, 1), "No", "0.0%"),
        (side(NAN, 0, 0, 1), side(NAN, 0, 0, 1), "Yes", "0.0%"),
        (side(INF, 0, 0, 1), side(INF, 0, 0, 1), "Yes", "0.0%"),
        (side(1, 0, 0, None), side(1, 0, 0, 1), "Yes", "0.0%"),
        (side(1, 1, 1, 1, dtype="Float16"), side(1, 1, 1, 1), "Yes", "0.0%"),
        (side(1, 1, 1, 1, shape="(3, 4)"), side(1, 1, 1, 1), "Yes", "0.0%"),
        (side(1, 1, 1, 1, shape="(4,3)"), side(1, 1, 1, 1), "", None),
        (side(None, None, None, None), side(1, 1, 1, 1), "", None),
        (None, side(1, 1, 1, 1), "", None),
        (side(1, 1, 1, 1), None, "", None),
    ],
)
def test_statistics_are_judged(
    ours: FileSide | None, theirs: FileSide | None, accuracy: str, relative: str | None
) -> None:
    found = compare_statistics(ours, theirs)
    assert (found.accuracy, found.relative[0]) == (accuracy, relative)
    assert bool(found.message) == (not accuracy or "NaN" in found.message or "types" in found.message)


def test_only_ranks_and_steps_that_both_have_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for base, places in ((a, ((0, 0), (0, 1), (10, 0))), (b, ((0, 0), (10, 0), (2, 0)))):
        for rank, step in places:
            kernel(base, "Add.Add-op1.6.0.9.output.0.0.ND", at=f"rank_{rank}/Net/1/{step}")
    names = [path.name.rsplit("_", 1)[0] for path in compare_kernels(a, b, tmp_path / "out")]
    assert names == ["compare_result_0_0", "compare_result_10_0"]
    told = capsys.readouterr().out
    assert str(said("places-of-one-side", "candidate", "rank 0 step 1")) in told
    assert str(said("places-of-one-side", "reference", "rank 2 step 0")) in told


def test_nothing_in_common_is_an_error() -> None:
    with raising(InvalidArgumentError, "no-common-place", ranks="[3]", steps="all"):
        common_places([(0, 0)], [(0, 0)], [3], [])
    with raising(InvalidArgumentError, "no-common-place"):
        common_places([(0, 0)], [(1, 0)], [], [])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "has no column Op Name, Task ID"),
        ("a,b\n", "has no column Op Name"),
        ("Op Name,Task ID,Timestamp,IO,Slot,Data Type,Shape\n", "has 7 columns; .* has 13 or more"),
        (f"{HEADER}\n1,2\n", r'statistic.csv":2: the row has 2 cells, the header 15'),
    ],
)
def test_a_broken_statistics_file_is_named(tmp_path: Path, content: str, told: str) -> None:
    path = statistics(tmp_path)
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=told):
        read_kernels([path.parent])


def test_a_broken_rank_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for base in (tmp_path / "a", tmp_path / "b"):
        statistics(base, row("x", 1, 1, 1, 1), at="rank_0/Net/1/0")
        statistics(base, row("x", 1, 1, 1, 1), at="rank_1/Net/1/0").write_text("broken")
    (path,) = compare_kernels(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert path.name.startswith("compare_result_0_0_")
    assert "rank 1 step 0 is not compared" in capsys.readouterr().out


def test_folders_that_are_no_kernel_dumps_are_reported(tmp_path: Path) -> None:
    with raising(InvalidPathError, "kernel-dump-folder-missing", field="npu_path"):
        find_steps(tmp_path / "none", "npu_path")
    with raising(InvalidPathError, "no-kernel-dump-below", field="bench_path"):
        find_steps(tmp_path, "bench_path")
    (tmp_path / "rank_0/Net/1/0").mkdir(parents=True)
    with raising(InvalidPathError, "kernels-missing"):
        read_kernels([tmp_path / "rank_0/Net/1/0"])


def saved(folder: Path, name: str, array: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npy"
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    ("ours", "theirs", "accuracy", "told"),
    [
        (BASE, BASE, "Yes", ""),
        (np.zeros((0,)), np.zeros((0,)), "", "empty"),
        (np.float32(2.5), np.float32(2.0), "", "single value"),
        (BASE, BASE.T, "Unmatched", r"shapes [3, 4] and [4, 3]"),
        (BASE.astype(np.float16), BASE, "Yes", "types are float16 and float32"),
        (np.array([NAN, 1, 2]), np.array([1, NAN, 2]), "No", "NaN or infinities"),
        (np.array([NAN, 1, 2]), np.array([NAN, 1, 2]), "Yes", ""),
    ],
)
def test_arrays_are_judged(tmp_path: Path, ours: Any, theirs: Any, accuracy: str, told: str) -> None:
    found = compare_array_files(saved(tmp_path / "a", "x", ours), saved(tmp_path / "b", "x", theirs))
    assert found.accuracy == accuracy
    assert told in found.message
    assert bool(found.message) == bool(told)
    assert not set(found.measures) & {"unsupported", "shape unmatched", "N/A"}


def test_a_file_that_is_no_array_is_named(tmp_path: Path) -> None:
    good = saved(tmp_path, "good", BASE)
    bad = tmp_path / "bad.npy"
    bad.write_bytes(b"nothing")
    found = compare_array_files(bad, good)
    assert "bad.npy" in found.message
    assert found.measures == (None,) * 6
    assert found.reference.statistics[0] == 12


def test_single_points_are_paired_in_order_in_each_folder(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for number in (10, 2, 1):
        saved(a / "x/y", f"loss_float32_{number}", BASE * number)
        saved(b / "x/y", f"other_float32_{number + 100}", BASE * number)
    saved(a / "x/y", "alone_float32_0", BASE)
    saved(a, "top_float32_0", BASE)
    saved(b, "top_float32_0", BASE * 2)
    written = compare_points(a, b, tmp_path / "out", {"loss": "other"})
    assert [path.relative_to(tmp_path / "out").as_posix() for path in written] == ["result.csv", "x/y/result.csv"]
    with open(written[1], newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == POINT_COLUMNS
    assert [found["Name"] for found in rows] == ["alone", "loss", "loss", "loss"]
    assert [found["Data_name"] for found in rows[1:]] == [
        f"['loss_float32_{number}.npy', 'other_float32_{number + 100}.npy']" for number in (1, 2, 10)
    ]
    assert {found["MaxAbsErr"] for found in rows[1:]} == {"0.0"}
    assert rows[0]["Err_message"] == "No bench data matched."
    assert rows[0]["Data_name"] == "['alone_float32_0.npy', 'N/A']"


def test_what_only_the_bench_has_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "a", "x_f_0", BASE)
    saved(tmp_path / "b", "y_f_0", BASE)
    saved(tmp_path / "b/more", "y_f_0", BASE)
    pairs = pair_points(tmp_path / "a", tmp_path / "b", {})
    assert [pair.reference for pair in pairs[Path()]] == [None]
    told = capsys.readouterr().out
    assert mentions(told, "points-of-bench", alone="y")
    assert mentions(told, "folder-of-bench", folder="more")


@pytest.mark.parametrize(
    ("file", "name"),
    [("a_b_c_0.npy", "a_b"), ("x_0.npy", "x_0"), ("x.npy", "x"), ("__0.npy", "__0"), ("a__0.npy", "a")],
)
def test_the_name_of_a_point_is_the_file_without_its_last_two_parts(file: str, name: str) -> None:
    assert point_name(file) == name


def test_points_of_folders_that_are_none_are_reported(tmp_path: Path) -> None:
    with raising(InvalidPathError, "point-folder-missing", field="bench_path"):
        pair_points(tmp_path, tmp_path / "none", {})
    with raising(InvalidPathError, "no-npy-files"):
        pair_points(tmp_path, tmp_path, {})


def test_pairs_stand_in_the_order_of_the_candidate() -> None:
    def one(order: int) -> Kernel:
        return Kernel(str(order), Path(), (0, order, 0))

    ours = {("a", "", "", "", 0): one(2), ("b", "", "", "", 0): one(1)}
    theirs = {("c", "", "", "", 0): one(0), ("b", "", "", "", 0): one(5)}
    pairs = pair_kernels(ours, theirs)
    assert [pair.candidate.name if pair.candidate else None for pair in pairs] == ["1", "2", None]
    assert [pair.reference.name if pair.reference else None for pair in pairs] == ["5", None, "0"]


def asked(folder: Path, **fields: Any) -> str:
    path = folder / "compare.json"
    path.write_text(json.dumps({"npu_path": str(folder / "a"), "bench_path": str(folder / "b"), **fields}))
    return str(path)


def test_the_command_compares_kernels_where_ranks_are_named(tmp_path: Path) -> None:
    for base in (tmp_path / "a", tmp_path / "b"):
        for step in (0, 3):
            kernel(base, "Add.Add-op1.6.0.9.output.0.0.ND", at=f"rank_0/Net/1/{step}")
    out = tmp_path / "out"
    words = ["compare", "-i", asked(tmp_path, rank_id=[], step_id=[3]), "-o", str(out)]
    assert main(["-f", "mindspore", *words]) == 0
    assert [path.name.rsplit("_", 1)[0] for path in out.iterdir()] == ["compare_result_0_3"]
    words = ["-tp", str(tmp_path / "a"), "-gp", str(tmp_path / "b"), "--rank", "0", "--step", "0", "-o", str(out)]
    assert main(["compare", *words]) == 0
    assert len(list(out.iterdir())) == 2


def test_the_command_compares_single_points_where_common_is_said(tmp_path: Path) -> None:
    saved(tmp_path / "a/s", "x_f_0", BASE)
    saved(tmp_path / "b/s", "y_f_0", BASE)
    file = asked(tmp_path, common=True, map_dict={"x": "y"})
    assert main(["-f", "mindspore", "compare", "-i", file, "-o", str(tmp_path / "out")]) == 0
    assert "y_f_0.npy" in (tmp_path / "out/s/result.csv").read_text()


@pytest.mark.parametrize("fields", [{"rank_id": [0]}, {"common": True}])
def test_graphs_are_of_mindspore_only(
    tmp_path: Path, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-f", "pytorch", "compare", "-i", asked(tmp_path, **fields), "-o", str(tmp_path / "out")]) == 2
    assert mentions(capsys.readouterr().err, "field-of-mindspore-graphs", field=next(iter(fields)))
    assert not (tmp_path / "out").exists()
