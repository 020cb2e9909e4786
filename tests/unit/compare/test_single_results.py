"""Arrays of two runs that SingleSave wrote, against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.coded_texts import raising
from support.row_by_row import for_each

from msprobe.compare.single_results import ArrayPlace, compare_arrays, saved_arrays
from msprobe.core import SingleComparator
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said
from msprobe.report.single_sheet import COLUMNS

calamine = pytest.importorskip("python_calamine")


def put(root: Path, key: str, array: Any, item: str = "", step: int = 0, rank: int = 0, micro: int | None = 0) -> None:
    folder = root / "data" / key / f"step{step}" / f"rank{rank}"
    if micro is not None:
        folder /= f"micro_step{micro}"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / (f"{key}.{item}.npy" if item else f"{key}.npy"), np.asarray(array))


def sheet(path: Path) -> list[list[Any]]:
    book = calamine.CalamineWorkbook.from_path(str(path))
    assert book.sheet_names == ["Sheet1"]
    found: list[list[Any]] = book.get_sheet_by_index(0).to_python()
    return found


def test_two_steps_and_micro_steps_of_a_run_and_of_one_a_thousandth_larger(tmp_path: Path) -> None:
    # Row 28 of the acceptance checks; the numbers are those of mindstudio-probe 8.1.1.
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, factor, length in (("a", 1.0, 3), ("b", 1.001, 5)):
        for step in (0, 1):
            for micro in (0, 1):
                at = {"step": step, "micro": micro}
                put(tmp_path / name, "resp", base * np.float32(factor), **at)
                for number in (0, 1):
                    put(tmp_path / name, "logits", base + number * factor, str(number), **at)
                put(tmp_path / name, "d", base * np.float32(factor), "x", **at)
                put(tmp_path / name, "d", np.ones(length), "y", **at)
    written = SingleComparator.compare(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert sorted(path.name for path in written) == ["d.xlsx", "logits.xlsx", "resp.xlsx"]
    rows = sheet(tmp_path / "out/resp.xlsx")
    assert tuple(rows[0]) == COLUMNS
    assert len(COLUMNS) == 12
    assert [row[:4] for row in rows[1:]] == [[step, 0, micro, 0] for step in (0, 1) for micro in (0, 1)]
    expected = ["[3, 4]", "[3, 4]", 100 / 12, 1, 0.01100063323974609, 0.0009990872349590063, 100, 100]
    for row in rows[1:]:
        assert row[4:6] == expected[:2]
        assert row[6:] == pytest.approx(expected[2:], rel=1e-12)
    assert [row[3] for row in sheet(tmp_path / "out/logits.xlsx")[1:3]] == [0, 1]
    d = sheet(tmp_path / "out/d.xlsx")[1:3]
    assert [row[3:6] for row in d] == [["x", "[3, 4]", "[3, 4]"], ["y", "[3]", "[5]"]]
    assert d[1][6:] == [100, "", 0, 0, 100, 100]


def test_files_are_found_with_and_without_micro_step(tmp_path: Path) -> None:
    put(tmp_path, "a.b", [1.0], micro=None)
    put(tmp_path, "a.b", [1.0], "10", rank=3, step=2, micro=4)
    put(tmp_path, "a.b", [1.0], "x.1")
    (tmp_path / "data" / "a.b" / "step0" / "rank0" / "foreign.npy").touch()
    (tmp_path / "data" / "a.b" / "junk").mkdir()
    (tmp_path / "data" / "a.b" / "junk" / "a.b.npy").touch()
    found = saved_arrays(tmp_path)
    assert set(found["a.b"]) == {ArrayPlace(0, 0, 0, 0), ArrayPlace(2, 3, 4, 10), ArrayPlace(0, 0, 0, "x.1")}
    assert saved_arrays(tmp_path / "data") == found


def test_what_only_one_side_has_is_reported_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "a", "k", [1.0])
    put(tmp_path / "b", "k", [1.0])
    put(tmp_path / "a", "only", [1.0])
    put(tmp_path / "b", "k", [1.0], step=1)
    (path,) = SingleComparator.compare(tmp_path / "a", tmp_path / "b", tmp_path / "out", num_processes=1)
    assert len(sheet(path)) == 2
    told = capsys.readouterr().out
    assert said("arrays-of-one-folder", "1", "first", "only") in told
    assert said("arrays-of-one-folder", "1", "second", "k") in told


def test_a_broken_file_is_reported_and_the_others_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("a", "b"):
        put(tmp_path / side, "k", [1.0])
        put(tmp_path / side, "k", [1.0], micro=1)
    (tmp_path / "b/data/k/step0/rank0/micro_step0/k.npy").write_bytes(b"nothing")
    (path,) = SingleComparator.compare(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert [row[2] for row in sheet(path)[1:]] == [1]
    assert "k.npy" in capsys.readouterr().out


def test_bad_input_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    put(tmp_path / "a", "k", [1.0])
    put(tmp_path / "b", "other", [1.0])
    out = tmp_path / "out"
    with raising(PathError, "single-save-missing"):
        SingleComparator.compare(tmp_path / "a", tmp_path / "none", out)
    with raising(InvalidInputError, "no-common-array"):
        SingleComparator.compare(tmp_path / "a", tmp_path / "b", out)
    for number in (0, -1, True, 1.5, "8"):
        with raising(InvalidInputError, "num-processes-wrong"):
            SingleComparator.compare(tmp_path / "a", tmp_path / "a", out, num_processes=number)  # type: ignore[arg-type]
    assert not out.exists()


@for_each(
    ("first", "second", "equal", "at", "errors", "within"),
    [
        ([1.0, 2.0], [1.0, 2.0], 100, None, (0, 0), (100, 100)),
        ([0.0, 0.0], [0.0, 1.0], 50, 1, (1, 1), (50, 50)),
        ([100.0, -100.0], [100.05, -100.5], 0, 0, (0.5, 0.5 / 100.5), (50, 100)),
        ([1, 2, 3], [1, 2, 4], 200 / 3, 2, (1, 0.25), (200 / 3, 200 / 3)),
        (np.array([1], np.uint8), np.array([2], np.uint8), 0, 0, (1, 0.5), (0, 0)),
        ([True], [False], 0, 0, (1, 1), (0, 0)),
        (5.0, 5.0, 100, None, (0, 0), (100, 100)),
        ([[1.0, 9.0], [3.0, 9.0]], [[1.0], [3.0], [9.0]], 100, None, (0, 0), (100, 100)),
        ([[1.0, 2.0]], [1.0, 2.0, 3.0], 100, None, (0, 0), (100, 100)),
        (np.zeros((0,)), np.ones(3), 100, None, (0, 0), (100, 100)),
    ],
)
def test_measures(
    first: Any, second: Any, equal: float, at: int | None, errors: tuple[float, float], within: tuple[float, float]
) -> None:
    found = compare_arrays(np.asarray(first), np.asarray(second))
    assert found.first_difference == at
    assert found.equal_share == pytest.approx(equal)
    assert (found.largest_error, found.largest_relative_error) == pytest.approx(errors)
    assert (found.share_within_thousandth, found.share_within_hundredth) == pytest.approx(within)


_ARRAYS = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.bool_]),
    arrays.array_shapes(max_dims=3, max_side=4),
)


@given(_ARRAYS, _ARRAYS)
def test_any_two_arrays_have_measures(first: Any, second: Any) -> None:
    one, other = compare_arrays(first, second), compare_arrays(second, first)
    assert one.equal_share == other.equal_share
    assert 0 <= one.share_within_thousandth <= one.share_within_hundredth <= 100
    assert (one.first_difference is None) == (one.equal_share == 100)
