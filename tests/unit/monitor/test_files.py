"""The folders of monitored runs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import mentions, raising
from support.row_by_row import for_each
from unit.monitor.runs import STARTED, begun, run_of

from msprobe.errors import InvalidInputError, PathError
from msprobe.monitor import files


@given(st.floats(0, 4e9), st.integers(0, 999_999), st.integers(0, 2**32 - 1))
def test_a_folder_name_is_read_as_it_was_written(seconds: float, rank: int, mark: int) -> None:
    name = files.folder_name(seconds, rank, f"{mark:08x}")
    stamp, found_rank, found_mark = files.parse_folder_name(name) or ("", -1, "")
    assert (found_rank, found_mark) == (rank, f"{mark:08x}")
    local = time.localtime(seconds)
    assert files.stamp_of(stamp) == (local.tm_mon, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec)


@for_each(
    "name",
    ["", "Nov24_00-37-06-rank0-7bd1702", "Nov24_00-37-06-rank-7bd17023", "Okt24_00-37-06-rank0-7bd17023", "a\n", "٣"],
)
def test_other_names_are_no_folders_of_runs(name: str) -> None:
    assert files.parse_folder_name(name) is None


def test_a_folder_of_8_1_1_is_known() -> None:
    assert files.parse_folder_name("Nov24_00-37-06-rank0-7bd17023") == ("Nov24_00-37-06", 0, "7bd17023")


@for_each("text", ["xx", "Feb30_00-00-00", "Nov24_24-00-00", None, 3, "Nov24_00-37-06-rank0-7bd17023"])
def test_a_bad_timestamp_is_named(text: object) -> None:
    with raising(InvalidInputError, "timestamp-wrong", where="timestamp") as problem:
        files.stamp_of(text)
    assert repr(text) in str(problem.value)


def test_the_folder_says_whose_it_is_and_is_kept_from_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run = begun(tmp_path / "a" / "b", rank=3, world=8, config={"targets": {}, "ops": ["norm"]})
    finally:
        os.umask(before)
    folder = Path(run.folder)
    assert files.parse_folder_name(folder.name) is not None
    assert "-rank3-" in folder.name
    about = json.loads((folder / "run.json").read_text())
    assert about["rank"] == 3
    assert about["world"] == 8
    assert about["framework"] == "pytorch"
    assert about["config"] == {"targets": {}, "ops": ["norm"]}
    assert about["started_seconds"] == STARTED
    assert about["started"][-6] in "+-", "the time has a zone"
    assert set(about["versions"]) >= {"msprobe", "python"}
    assert folder.stat().st_mode & 0o777 == 0o750
    assert folder.parent.stat().st_mode & 0o777 == 0o750
    assert (folder / "run.json").stat().st_mode & 0o777 == 0o640


def test_the_stamp_is_the_local_time_in_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        assert files.stamp_text(STARTED) == "Nov15_12-13-20"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_two_runs_of_a_second_have_folders_of_their_own(tmp_path: Path) -> None:
    assert begun(tmp_path).folder != begun(tmp_path).folder


def test_a_run_goes_on_in_the_folder_of_its_rank(tmp_path: Path) -> None:
    older, newer = begun(tmp_path, 1), begun(tmp_path, 1, STARTED + 60)
    begun(tmp_path, 0, STARTED + 70)
    begun(tmp_path, 1, STARTED + 3600)
    span = (files.stamp_text(STARTED), files.stamp_text(STARTED + 60))
    resumed = begun(tmp_path, 1, STARTED + 9000, append_to=span)
    assert resumed.folder == newer.folder
    assert begun(tmp_path, 1, STARTED + 9000, append_to=(span[0], span[0])).folder == older.folder
    about = json.loads(Path(newer.folder, "run.json").read_text())
    assert about["started_seconds"] == STARTED + 60
    assert [entry["started_seconds"] for entry in about["resumed"]] == [STARTED + 9000]


def test_a_rank_without_a_folder_to_go_on_in_gets_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path, 0)
    span = (files.stamp_text(STARTED - 5), files.stamp_text(STARTED + 5))
    run = begun(tmp_path, 1, STARTED + 60, append_to=span)
    assert "-rank1-" in run.folder
    said = capsys.readouterr().out
    assert "[WARNING]" in said
    assert mentions(said, "append-output-finds-nothing")


def test_one_timestamp_is_too_few_to_append(tmp_path: Path) -> None:
    with raising(InvalidInputError, "append-output-wrong", count=1):
        begun(tmp_path, append_to=("Nov24_00-37-06",))


def test_a_range_may_go_over_new_year() -> None:
    begin_at, end_at = files.stamp_of("Dec31_23-00-00"), files.stamp_of("Jan01_01-00-00")
    assert files.is_within(files.stamp_of("Jan01_00-30-00"), begin_at, end_at)
    assert files.is_within(files.stamp_of("Dec31_23-00-00"), begin_at, end_at)
    assert not files.is_within(files.stamp_of("Jun01_00-00-00"), begin_at, end_at)


def test_runs_are_found_by_rank_and_age_also_those_of_other_tools(tmp_path: Path) -> None:
    begun(tmp_path, 1)
    second, first = begun(tmp_path, 0, STARTED + 100), begun(tmp_path, 0, STARTED)
    foreign = tmp_path / "Nov24_00-37-06-rank2-7bd17023"
    foreign.mkdir()
    (foreign / "run.json").write_text("[[[")
    (tmp_path / "anomaly_detected").mkdir()
    found = files.find_runs(tmp_path)
    assert [run.rank for run in found] == [0, 0, 1, 2]
    assert [str(run.path) for run in found[:2]] == [first.folder, second.folder]
    assert found[3].about == {}
    assert [run.path for run in files.find_runs(first.folder)] == [Path(first.folder)]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with raising(PathError, "no-monitor-folder", kind="does not exist"):
        files.find_runs(tmp_path / "nothing")


def test_the_config_may_hold_what_json_cannot(tmp_path: Path) -> None:
    run = files.begin(run_of(tmp_path, config={"where": tmp_path, "number": float("nan")}))
    assert json.loads(Path(run.folder, "run.json").read_text())["config"]["where"] == str(tmp_path)
