"""The results of several ranks in one workbook."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising
from support.row_by_row import for_each

from msprobe.cli import main
from msprobe.compare.merge_results import (
    MergeConfig,
    MergeError,
    find_results,
    merge_results,
    read_merge_config,
)
from msprobe.errors import InvalidInputError, PathError
from msprobe.report.merged_sheet import merge_result
from msprobe.report.workbook import Sheet, write_workbook

calamine = pytest.importorskip("python_calamine")

HEAD = ["NPU Name", "Bench Name"]
VALUES = ["NPU max", "Bench max"]
STATISTICS = [*HEAD, "Max diff", "MaxRelativeErr", *VALUES, "Result"]
TENSOR = [*HEAD, "Cosine", "EucDist", *VALUES, "Accuracy Reached or Not"]


def xlsx(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    write_workbook(
        path, [Sheet("Sheet", header, [list(map(list, zip(*rows, strict=True)))] if rows else [], len(rows))]
    )


def comma(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def row(name: str, metric: object = 1.0, here: object = 3.0, there: object = 2.0) -> list[Any]:
    return [name, name, metric, "50.0%", here, there, ""]


def yaml(folder: Path, text: str = "api: [Torch]\n") -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def sheets(path: Path) -> dict[str, list[list[Any]]]:
    book = calamine.CalamineWorkbook.from_path(str(path))
    return {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}


def test_a_sheet_for_each_metric_with_a_column_for_each_rank_by_number(tmp_path: Path) -> None:
    for rank in (0, 2, 10):
        xlsx(
            tmp_path / f"compare_result_rank{rank}_20200101000000.xlsx",
            STATISTICS,
            [row("Torch.add.0.forward.input.0", float(rank))],
        )
    found = sheets(merge_result(tmp_path, tmp_path / "out", yaml(tmp_path)))
    assert list(found) == ["Max diff", "MaxRelativeErr"]
    assert found["Max diff"] == [
        ["NPU Name", "rank0", "rank2", "rank10"],
        ["Torch.add.0.forward.input.0", 0.0, 2.0, 10.0],
    ]


def test_the_file_is_whole_and_for_its_group_only(tmp_path: Path) -> None:
    xlsx(tmp_path / "compare_result_rank0_1.xlsx", STATISTICS, [row("Torch.add.0.forward.input.0")])
    path = merge_result(tmp_path, tmp_path / "out", yaml(tmp_path))
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path / "out")) == [path.with_suffix(".json").name, path.name]
    assert path.with_suffix(".json").stat().st_mode & 0o777 == 0o640
    assert path.name.startswith("multi_ranks_compare_merge_2")


def test_tensors_of_one_rank_only_leave_a_cell_empty_in_order_of_appearance(tmp_path: Path) -> None:
    xlsx(tmp_path / "compare_result_rank0_1.xlsx", STATISTICS, [row("Torch.b.0.forward.x"), row("Torch.a.0.forward.x")])
    xlsx(tmp_path / "compare_result_rank1_1.xlsx", STATISTICS, [row("Torch.c.0.forward.x"), row("Torch.a.0.forward.x")])
    merged = merge_results(MergeConfig(("Torch",), ("Max diff",)), find_results(tmp_path))[0]
    assert merged.names == ("Torch.b.0.forward.x", "Torch.a.0.forward.x", "Torch.c.0.forward.x")
    assert merged.columns == ((1.0, 1.0, None), (None, 1.0, 1.0))


def test_rows_stand_in_the_order_of_the_apis_asked_for(tmp_path: Path) -> None:
    names = ("Torch.a.0.forward.x", "Tensor.b.0.forward.x", "Torch.a.1.forward.x")
    xlsx(tmp_path / "compare_result_rank0_1.xlsx", STATISTICS, [row(name) for name in names])
    merged = merge_results(MergeConfig(("Tensor", "Torch")), find_results(tmp_path))[0]
    assert merged.names == ("Tensor.b.0.forward.x", "Torch.a.0.forward.x", "Torch.a.1.forward.x")


@pytest.mark.parametrize("word", ["N/A", "unsupported", "Nan"])
@pytest.mark.parametrize("write", [xlsx, comma])
def test_where_there_is_no_metric_the_values_are_shown(tmp_path: Path, word: str, write: Any) -> None:
    rows = [row("Torch.a.0.forward.x", word, "[0, 1]", "N/A"), row("Torch.b.0.forward.x", word, 2.0, 1.5)]
    write(tmp_path / f"compare_result_rank0_1.{'xlsx' if write is xlsx else 'csv'}", STATISTICS, rows)
    merged = merge_results(MergeConfig(("Torch",), ("Max diff",)), find_results(tmp_path))[0]
    assert merged.columns == (("NPU:[0, 1]  Bench:N/A", "NPU:2  Bench:1.5"),)


@pytest.mark.parametrize(
    "name",
    [
        "compare_result_rank7_20200101000000.xlsx",
        "compare_result_rank7-rank7_20200101000000.xlsx",
        "compare_result_rank7_20200101000000.csv",
    ],
)
def test_results_are_known_by_all_names_they_had(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    for foreign in ("advisor_rank7_1.txt", "compare_result_1.xlsx", "debug_compare_result_rank7_1.xlsx", "x.csv"):
        (tmp_path / foreign).touch()
    assert [(result.label, result.path.name) for result in find_results(tmp_path)] == [("rank7", name)]


def test_a_folder_without_a_number_is_a_rank_too(tmp_path: Path) -> None:
    (tmp_path / "compare_result_rank_1.csv").touch()
    assert [result.label for result in find_results(tmp_path)] == ["rank"]


def test_of_two_results_of_a_rank_the_newer_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for time in (20200101000000, 20210101000000):
        (tmp_path / f"compare_result_rank0_{time}.csv").touch()
    (result,) = find_results(tmp_path)
    assert result.path.name == "compare_result_rank0_20210101000000.csv"
    assert "rank0 has several results" in capsys.readouterr().out


@for_each(
    ("api", "wanted"),
    [
        ("Torch", True),
        ("Torch.add", True),
        ("Torch.add.1", True),
        ("Torch.add.1.forward", True),
        ("Torch.ad", False),  # mindstudio-probe takes any part of a name
        ("add", False),
        ("Torch.add.10", False),
        ("T", False),
    ],
)
def test_an_api_is_the_beginning_of_a_name_in_whole_words(api: str, wanted: bool) -> None:
    assert MergeConfig((api,)).place("Torch.add.1.forward.input.0") == (0 if wanted else None)


def test_names_that_were_made_safe_are_still_found(tmp_path: Path) -> None:
    xlsx(tmp_path / "compare_result_rank0_1.xlsx", STATISTICS, [row("=cmd|x.0.forward.input.0")])
    assert merge_results(MergeConfig(("=cmd|x",)), find_results(tmp_path))[0].names == ("=cmd|x.0.forward.input.0",)


def test_a_sheet_in_parts_is_one_table(tmp_path: Path) -> None:
    path = tmp_path / "compare_result_rank0_1.xlsx"
    parts = [Sheet(f"part_{n}", STATISTICS, [[[cell] for cell in row(f"Torch.a.{n}.forward.x")]], 1) for n in (0, 1)]
    write_workbook(path, parts)
    found = merge_results(MergeConfig(("Torch",)), find_results(tmp_path))[0]
    assert found.names == ("Torch.a.0.forward.x", "Torch.a.1.forward.x")


def test_a_name_that_stands_twice_is_two_rows(tmp_path: Path) -> None:
    rows = [row("Torch.a.0.forward.x", 1.0), row("Torch.a.0.forward.x", 2.0)]
    xlsx(tmp_path / "compare_result_rank0_1.xlsx", STATISTICS, rows)
    xlsx(tmp_path / "compare_result_rank1_1.xlsx", STATISTICS, rows[:1])
    assert merge_results(MergeConfig(("Torch",)), find_results(tmp_path))[0].columns == ((1.0, 2.0), (1.0, None))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the configuration is empty"),
        ("- Torch\n", "the configuration must be an object"),
        ("compare_index: [Max diff]\n", 'field "api": is missing'),
        ("api: Torch.add\n", 'config.yaml:1: field "api": must be a list of names, found "Torch.add"'),
        ("api: []\n", 'field "api": must be a list of names, found nothing'),
        ("api:\n", 'field "api": must be a list of names, found nothing'),
        ("api: [[a], {b: c}]\n", 'field "api[1]": must be a name'),
        ("api: [a]\ncompare_index: Max diff\n", 'field "compare_index": must be a list of names'),
        ("api: [a]\ncompare_index: [Max dif]\n", '"Max dif" is not a metric; did you mean "Max diff"?'),
        ("api: x\ncompare_index: [nonsense]\n", 'field "api": must be a list'),
        ("api: x\ncompare_index: [nonsense]\n", "is not a metric; the metrics are Max diff, "),
        ("api: [", "config.yaml:2:1: broken YAML"),
    ],
)
def test_a_configuration_with_mistakes_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(MergeError) as caught:
        read_merge_config(yaml(tmp_path, text))
    assert caught.value.code == 33
    assert told in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "text", ["api: [Torch]\n", "api: [Torch]\ncompare_index:\n", "api: [Torch]\ncompare_index: []\n"]
)
def test_no_metrics_means_all(tmp_path: Path, text: str) -> None:
    assert read_merge_config(yaml(tmp_path, text)) == MergeConfig(("Torch",))


@pytest.mark.parametrize(
    ("headers", "config", "message"),
    [
        ([STATISTICS, TENSOR], MergeConfig(("Torch",)), "results-of-two-kinds"),
        ([[*HEAD, "NPU MD5", "BENCH MD5"]], MergeConfig(("Torch",)), "result-of-digests"),
        ([HEAD], MergeConfig(("Torch",)), "no-result-of-compare"),
        (
            [TENSOR],
            MergeConfig(("Torch",), ("Max diff", "Cosine")),
            "metric-not-in-result",
        ),
        ([["x", *STATISTICS[2:]]], MergeConfig(("Torch",)), "result-lacks-column"),
        ([STATISTICS], MergeConfig(("Tensor", "x.y")), "results-without-apis"),
    ],
)
def test_results_that_cannot_be_merged_are_refused(
    tmp_path: Path, headers: list[list[str]], config: MergeConfig, message: str
) -> None:
    for rank, header in enumerate(headers):
        cells = ["Torch.a.0.forward.x", *range(len(header) - 1)]
        xlsx(tmp_path / f"compare_result_rank{rank}_1.xlsx", header, [cells])
    with raising(MergeError, message) as caught:
        merge_results(config, find_results(tmp_path))
    assert str(tmp_path) in caught.value.message
    assert caught.value.code == 33


@pytest.mark.parametrize("name", ["compare_result_rank0_1.xlsx", "compare_result_rank0_1.csv"])
def test_a_file_that_is_no_sheet_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe nothing \x00")
    with pytest.raises(InvalidInputError, match=name):
        merge_results(MergeConfig(("Torch",)), find_results(tmp_path))


def test_a_folder_without_results_and_no_folder_are_reported(tmp_path: Path) -> None:
    with raising(MergeError, "no-results-of-ranks"):
        find_results(tmp_path)
    with raising(PathError, "results-folder-missing"):
        find_results(tmp_path / "none")


def test_the_command_writes_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xlsx(tmp_path / "compare_result_rank0_1.xlsx", STATISTICS, [row("Torch.add.0.forward.input.0")])
    words = ["-i", str(tmp_path), "-o", str(tmp_path / "out"), "-config", str(yaml(tmp_path))]
    assert main(["-f", "pytorch", "merge_result", *words]) == 0
    (written,) = (tmp_path / "out").glob("*.xlsx")
    assert str(written) in capsys.readouterr().out


def test_the_command_writes_nothing_and_ends_with_2_when_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--input_dir", str(tmp_path), "--output_dir", str(tmp_path / "out"), "--config-path"]
    assert main(["merge_result", *words, str(yaml(tmp_path, "api: Torch"))]) == 2
    told = capsys.readouterr().err
    assert told.startswith("msprobe: config.yaml:1: field")
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("left_out", ["-i", "-o", "-config"])
def test_all_three_arguments_are_needed(left_out: str) -> None:
    words = {"-i": "a", "-o": "b", "-config": "c"}
    del words[left_out]
    with pytest.raises(SystemExit) as caught:
        main(["merge_result", *(word for pair in words.items() for word in pair)])
    assert caught.value.code == 2
