"""The comparison that users of mindstudio-probe 8.1.1 and 26.2 know, through the command and the functions."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.edge_cases import BASE, write_pair
from support.sheets import Table, read_table, read_workbook

from msprobe.cli import main
from msprobe.compare import problems
from msprobe.errors import MsprobeError, PathError
from msprobe.messages import said
from msprobe.pytorch import compare, compare_distributed

EXPECTED = Path(__file__).resolve().parent.parent / "data" / "compare_edge"

HEAD = "NPU Name|Bench Name|NPU Dtype|Bench Dtype|NPU Tensor Shape|Bench Tensor Shape"
STATISTICS = "NPU max|NPU min|NPU mean|NPU l2norm|Bench max|Bench min|Bench mean|Bench l2norm"
DIFFERENCES = "Max diff|Min diff|Mean diff|L2norm diff|MaxRelativeErr|MinRelativeErr|MeanRelativeErr|NormRelativeErr"
MEASURES = "Cosine|EucDist|MaxAbsErr|MaxRelativeErr|One Thousandth Err Ratio|Five Thousandths Err Ratio"
GRAD = "NPU Requires_grad|Bench Requires_grad"
COLUMNS = {
    ("8.1.1", "tensor"): f"{HEAD}|{MEASURES}|{STATISTICS}|Accuracy Reached or Not|Err_message|NPU_Stack_Info|Data_name",
    ("8.1.1", "statistics"): f"{HEAD}|{DIFFERENCES}|{STATISTICS}|Result|Err_message|NPU_Stack_Info",
    ("8.1.1", "md5"): f"{HEAD}|NPU MD5|BENCH MD5|Result|NPU_Stack_Info",
    ("26.2", "tensor"): (
        f"{HEAD}|{GRAD}|{MEASURES}|{STATISTICS}|Requires_grad Consistent|Result|Err_message|NPU_Stack_Info|Data_name"
    ),
    ("26.2", "statistics"): (
        f"{HEAD}|{GRAD}|{DIFFERENCES}|{STATISTICS}|Requires_grad Consistent|Result|Err_message|NPU_Stack_Info"
    ),
    ("26.2", "md5"): (f"{HEAD}|{GRAD}|NPU MD5|BENCH MD5|Requires_grad Consistent|Result|Err_message|NPU_Stack_Info"),
}

Pair = tuple[Path, Path]
Edge = Callable[[str], Pair]


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Edge:
    """The edge cases, written once a session for each task."""
    folder = tmp_path_factory.mktemp("edge")
    known: dict[str, Pair] = {}

    def pair(task: str) -> Pair:
        if task not in known:
            known[task] = write_pair(folder, task)  # type: ignore[arg-type]
        return known[task]

    return pair


def compare_json(folder: Path, npu: Path | str, bench: Path | str, **more: Any) -> Path:
    """Write a compare.json."""
    path = folder / "compare.json"
    path.write_text(json.dumps({"npu_path": str(npu), "bench_path": str(bench), **more}))
    return path


def run(folder: Path, npu: Path | str, bench: Path | str, *flags: str, status: int = 0, **more: Any) -> Path:
    """Compare by a compare.json; the folder of the results."""
    output = folder / "out"
    path = compare_json(folder, npu, bench, **more)
    assert main(["-f", "pytorch", "compare", "-i", str(path), "-o", str(output), *flags]) == status
    return output


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def sheet(output: Path) -> Table:
    return read_table(only(output, "*compare_result_*.xlsx"))


def advice(output: Path) -> dict[str, str]:
    """The three lines of the advisor."""
    text = only(output, "advisor_*.txt").read_text()
    match = re.fullmatch(r"Line: (.*)\nSuspect Nodes: (.*)\nExpert Advice: (.*)\n", text, re.DOTALL)
    assert match, text
    return dict(zip(("line", "node", "advice"), match.groups(), strict=True))


def tensor(high: float, low: float = 1.0, mean: float = 2.0, norm: float = 5.0, **more: Any) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [3, 4],
        "Max": high,
        "Min": low,
        "Mean": mean,
        "Norm": norm,
        "requires_grad": False,
        **more,
    }


def write_dump(folder: Path, data: Any, task: str | None = "statistics", name: str = "dump.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    header = {} if task is None else {"task": task}
    (folder / name).write_text(json.dumps({**header, "level": "L1", "framework": "pytorch", "data": data}, indent=1))
    return folder / name


def forward(given: Any, made: Any, **kwargs: Any) -> dict[str, Any]:
    return {"input_args": [given], "input_kwargs": kwargs, "output": [made]}


# Row 1


@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_a_dump_agrees_with_itself(edge: Edge, task: str, tmp_path: Path) -> None:
    _, reference = edge(task)
    output = run(tmp_path, reference, reference)
    table = sheet(output)
    assert not any(table.colours)
    assert advice(output)["line"] == advice(output)["node"] == "NA"
    for row in table.rows:
        assert row["Bench Name"] == row["NPU Name"]
        if task == "statistics":
            assert row["Result"] == ""
            assert {row[name] for name in DIFFERENCES.split("|")} <= {0.0, "0.0%", "N/A", "Nan"}
        elif task == "md5":
            assert row["Result"] == "pass" or row["NPU MD5"] == "N/A"
        else:
            assert row["Accuracy Reached or Not"] in ("Yes", "None")
            assert row["Cosine"] in (1.0, "unsupported")


# Row 2


@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_columns_are_those_of_8_1_1(edge: Edge, task: str, stack: bool, tmp_path: Path) -> None:
    pair = edge(task)
    if not stack:
        pair = without_stack(pair[0], tmp_path / "a"), without_stack(pair[1], tmp_path / "b")
    wanted = COLUMNS["8.1.1", task].split("|")
    assert sheet(run(tmp_path, *pair)).header == (wanted if stack else [w for w in wanted if w != "NPU_Stack_Info"])


@pytest.mark.parametrize("file_format", ["csv", "xlsx"])
@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_columns_are_those_of_26_2(edge: Edge, task: str, file_format: str, tmp_path: Path) -> None:
    npu, bench = edge(task)
    flags = ["--xlsx"] if file_format == "xlsx" else []
    assert main(["compare", "-tp", str(npu), "-gp", str(bench), "-o", str(tmp_path), *flags]) == 0
    assert read_table(only(tmp_path, f"compare_result_*.{file_format}")).header == COLUMNS["26.2", task].split("|")
    assert not list(tmp_path.glob("advisor*"))


def without_stack(dump: Path, folder: Path) -> Path:
    shutil.copytree(dump.parent, folder)
    (folder / "stack.json").unlink()
    return folder / "dump.json"


def test_results_can_be_read_by_their_group_only(edge: Edge, tmp_path: Path) -> None:
    output = run(tmp_path, *edge("statistics"))
    assert stat.S_IMODE(output.stat().st_mode) == 0o750
    assert {stat.S_IMODE(path.stat().st_mode) for path in output.iterdir()} == {0o640}


def test_compare_only_writes_no_advice(edge: Edge, tmp_path: Path) -> None:
    assert [path.suffix for path in run(tmp_path, *edge("md5"), "-c").iterdir()] == [".xlsx"]


@pytest.mark.parametrize(
    ("given", "flags", "column"),
    [("stack.json", ["-s"], True), ("stack.json", [], False), (None, [], True), (None, ["-s"], True)],
)
def test_stack_path_is_shown_if_stack_mode_asks_for_it(
    edge: Edge, given: str | None, flags: list[str], column: bool, tmp_path: Path
) -> None:
    npu, bench = edge("statistics")
    more = {} if given is None else {"stack_path": str(npu.parent / given)}
    table = sheet(run(tmp_path, npu, bench, *flags, **more))
    assert ("NPU_Stack_Info" in table.header) == column
    if column:
        assert str(table.rows[0]["NPU_Stack_Info"]).startswith("['File /a/b.py, line 1")
        assert table.rows[1]["NPU_Stack_Info"] == "N/A"


# Row 3


def test_the_functions_take_what_older_scripts_give(
    edge: Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npu, bench = edge("statistics")
    monkeypatch.chdir(tmp_path)
    given = {
        "npu_json_path": str(npu),
        "bench_json_path": str(bench),
        "stack_json_path": str(npu.parent / "stack.json"),
        "is_print_compare_log": True,
    }
    compare(given, output_path="./output", stack_mode=True)
    assert "NPU_Stack_Info" in sheet(tmp_path / "output").header
    assert advice(tmp_path / "output")["line"] != "NA"


def test_compare_takes_positional_arguments_and_a_suffix(edge: Edge, tmp_path: Path) -> None:
    npu, bench = edge("md5")
    compare({"npu_json_path": npu, "bench_json_path": bench}, tmp_path, False, False, True, suffix="x", unheard="of")
    assert re.fullmatch(r"compare_result_x_\d{14}\.xlsx", only(tmp_path, "*").name)


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        ({"stack_mode": 1}, problems.InvalidArgumentError, 11),
        ({"fuzzy_match": "yes"}, problems.InvalidArgumentError, 11),
        ({"auto_analyze": None}, problems.InvalidArgumentError, 11),
        ({"output_path": 5}, TypeError, 22),
        ({"data_mapping": 5}, TypeError, 22),
        ({"suffix": 5}, problems.InvalidArgumentError, 11),
    ],
)
def test_wrong_arguments_are_named(
    edge: Edge, arguments: dict[str, Any], error: type[Exception], code: int, tmp_path: Path
) -> None:
    npu, bench = edge("md5")
    call = {"output_path": tmp_path / "out", **arguments}
    with pytest.raises(error, match=next(iter(arguments))) as raised:
        compare({"npu_json_path": npu, "bench_json_path": bench}, **call)
    assert getattr(raised.value, "code", None) == code
    assert not (tmp_path / "out").exists()


# Row 3b

# What ours tells better than 8.1.1, by the last part of the operator's name (section 5 of the specification).
BETTER = {
    "partner": {"shape", "fp64_fp32", "int32_int64", "none_vs_t", "t_vs_none", "size_arg"},
    "nan in the target": {"nan_npu", "zerod_nan", "inf_npu"},
    "infinities of another sign": {"inf_sign"},
    "whole numbers": {"int_big"},
    "half precision": {"fp16_zero"},
}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_edge_cases_are_as_8_1_1_has_them(edge: Edge, task: str, tmp_path: Path) -> None:
    table = sheet(run(tmp_path, *edge(task)))
    with (EXPECTED / f"expected_{task}.csv").open(newline="") as file:
        expected = list(csv.DictReader(file))
    better = set.union(*BETTER.values())
    assert [row["NPU Name"] for row in table.rows] == [row["NPU Name"] for row in expected]
    for row, colour, wanted in zip(table.rows, table.colours, expected, strict=True):
        operator = str(row["NPU Name"]).split(".")[1]
        if operator == "size_arg" or (operator in better and ".output" in str(row["NPU Name"])):
            continue
        assert colour == wanted.pop("row colour"), row["NPU Name"]
        for column, value in wanted.items():
            assert same(row[column], value), (row["NPU Name"], column, row[column], value)


def same(found: float | str, wanted: str) -> bool:
    """Equal, numbers within 1e-12 of their size."""
    if isinstance(found, str) and not found.endswith("%"):
        return found == wanted
    if isinstance(found, str) != wanted.endswith("%"):
        return False
    try:
        a, b = (float(str(value).rstrip("%")) for value in (found, wanted))
    except ValueError:
        return str(found) == wanted
    return str(found) == wanted or abs(a - b) <= 1e-11 * max(abs(a), abs(b), 1e-2)


def test_partners_of_another_shape_or_type_are_shown(edge: Edge, tmp_path: Path) -> None:
    table = sheet(run(tmp_path, *edge("statistics")))
    row = table.row("Torch.shape.0.forward.output.0")
    assert (row["Bench Tensor Shape"], row["Result"]) == ("[4, 3]", "Warning")
    assert "[3, 4] and [4, 3]" in str(row["Err_message"])
    row = table.row("Torch.int32_int64.0.forward.output.0")
    assert (row["Bench Dtype"], row["Max diff"], row["Result"]) == ("torch.int64", 0.0, "")
    assert "torch.int32 and torch.int64" in str(row["Err_message"])


def test_new_nan_fails_and_is_red(edge: Edge, tmp_path: Path) -> None:
    for task, column, word in (
        ("statistics", "Result", "Warning"),
        ("tensor", "Accuracy Reached or Not", "No"),
    ):
        (tmp_path / task).mkdir()
        table = sheet(run(tmp_path / task, *edge(task)))
        for operator in ("nan_npu", "zerod_nan", "inf_npu"):
            name = f"Torch.{operator}.0.forward.output.0"
            assert table.row(name)[column] == word
            assert table.colour(name) == "red"


# Rows 4 to 13


def output_row(edge: Edge, task: str, operator: str, tmp_path: Path) -> tuple[dict[str, Any], str]:
    table = sheet(run(tmp_path, *edge(task)))
    name = f"Torch.{operator}.0.forward.output.0"
    return table.row(name), table.colour(name)


TENSOR_ROWS = {
    "shape": ("shape unmatched",) * 6 + ("Unmatched",),
    "int_big": (1.0, 1.0, 1.0, None, 1.0, 1.0, "Yes"),
}


@pytest.mark.parametrize("operator", TENSOR_ROWS)
def test_tensor_measures(edge: Edge, operator: str, tmp_path: Path) -> None:
    row, _ = output_row(edge, "tensor", operator, tmp_path)
    found = [row[name] for name in [*MEASURES.split("|"), "Accuracy Reached or Not"]]
    for measure, wanted in zip(found, TENSOR_ROWS[operator], strict=True):
        assert wanted is None or measure == wanted, found


def test_a_single_value_gets_one_short_note(edge: Edge, tmp_path: Path) -> None:
    row, _ = output_row(edge, "tensor", "zerod", tmp_path)
    assert len(str(row["Err_message"])) < 100


@pytest.mark.parametrize("operator", ["tiny", "big"])
def test_a_broken_file_is_reported_in_its_row(edge: Edge, operator: str, tmp_path: Path) -> None:
    table = sheet(run(tmp_path, *edge("tensor")))
    row = table.row(f"Torch.{operator}.0.forward.input.0")
    assert {row[name] for name in MEASURES.split("|")} == {"unsupported"}
    name = f"Torch.{operator}.0.forward.input.0.pt"
    assert mentions(str(row["Err_message"]), "data-file-unreadable", name=name, side=said("side-bench"))


# Row 14


def test_arguments_are_compared_as_numbers_or_not_at_all(edge: Edge, tmp_path: Path) -> None:
    table = sheet(run(tmp_path, *edge("statistics")))
    row = table.row("Torch.int_arg.0.forward.input.dim")
    assert (row["Max diff"], row["MaxRelativeErr"]) == (-1.0, "50.0%")
    for operator in ("str_arg.0.forward.input.mode", "bool_arg.0.forward.input.flag", "dev_arg.0.forward.input.device"):
        row = table.row(f"Torch.{operator}")
        assert {row[name] for name in DIFFERENCES.split("|")} == {"N/A"}
        assert "differ" in str(row["Err_message"])


# Row 15


@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_fuzzy_matching_pairs_calls_of_other_numbers(edge: Edge, task: str, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain, table = sheet(run(tmp_path / "plain", *edge(task))), sheet(run(tmp_path, *edge(task), "-f"))
    partners = {row["NPU Name"]: row["Bench Name"] for row in table.rows}
    assert partners["Torch.call.1.forward.output.0"] == "Torch.call.5.forward.output.0"
    assert partners["Torch.call.2.forward.input.0"] == "Torch.call.6.forward.input.0"
    column = {"tensor": "Accuracy Reached or Not", "statistics": "Result", "md5": "Result"}[task]
    good = {"tensor": "Yes", "statistics": "", "md5": "pass"}[task]
    assert {row[column] for row in table.rows if str(row["NPU Name"]).startswith("Torch.call")} == {good}
    others = [row for row in plain.rows if not str(row["NPU Name"]).startswith("Torch.call")]
    assert others == [row for row in table.rows if not str(row["NPU Name"]).startswith("Torch.call")]


# Row 16


def test_a_data_mapping_pairs_by_name_alone(edge: Edge, tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text(
        "Torch.same.0.forward.input.0: Torch.shape.0.forward.output.0\n"
        "Torch.same.0.forward.output.0: Torch.unheard.0.forward.output.0\n"
    )
    table = sheet(run(tmp_path, *edge("statistics"), "-dm", str(mapping)))
    partners = {row["NPU Name"]: row["Bench Name"] for row in table.rows}
    assert partners["Torch.same.0.forward.input.0"] == "Torch.shape.0.forward.output.0"
    assert partners["Torch.same.0.forward.output.0"] == "N/A"
    assert partners["Torch.tiny.0.forward.output.0"] == "Torch.tiny.0.forward.output.0"


# Rows 18 and 19


@pytest.fixture
def steps(tmp_path: Path) -> Pair:
    """Two step folders of two ranks; rank 1 of the candidate is off by half."""
    for side, factor in (("npu", 1.5), ("bench", 1.0)):
        for rank in (0, 1):
            made = tensor(4.0 * (factor if rank else 1.0))
            write_dump(tmp_path / side / f"rank{rank}", {"Torch.f.0.forward": forward(tensor(3.0), made)})
    return tmp_path / "npu", tmp_path / "bench"


def test_ranks_have_a_result_each(steps: Pair, tmp_path: Path) -> None:
    output = run(tmp_path, *steps)
    assert read_table(only(output, "compare_result_rank0_*.xlsx")).rows[1]["Max diff"] == 0.0
    assert read_table(only(output, "compare_result_rank1_*.xlsx")).rows[1]["Max diff"] == 2.0
    assert "rank1" in only(output, "advisor_rank1_*.txt").name
    compare_distributed(str(steps[0]), str(steps[1]), str(tmp_path / "other"))
    assert len(list((tmp_path / "other").glob("compare_result_rank*"))) == 2


def fails(folder: Path, npu: Path, bench: Path, capsys: pytest.CaptureFixture[str], *flags: str, **more: Any) -> str:
    """The one line of a comparison that must fail with status 1, having written nothing."""
    capsys.readouterr()
    assert not list(run(folder, npu, bench, *flags, status=2, **more).glob("*"))
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("msprobe: ")
    return said.err


def test_the_newer_form_compares_the_ranks_both_have(steps: Pair, tmp_path: Path) -> None:
    shutil.copytree(steps[0] / "rank1", steps[0] / "rank2")
    (steps[1] / "notes.txt").write_text("foreign")
    assert main(["compare", "-tp", str(steps[0]), "-gp", str(steps[1]), "-o", str(tmp_path / "out")]) == 2
    assert len(list((tmp_path / "out").glob("compare_result_rank*.csv"))) == 2


@pytest.mark.parametrize("junk", ["junk", "rank00", "rank1x"])
def test_a_foreign_folder_is_named(steps: Pair, junk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (steps[0] / junk).mkdir()
    assert junk in fails(tmp_path, *steps, capsys)


def test_a_missing_step_folder_is_named(steps: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "step9" in fails(tmp_path, steps[0] / "step9", steps[1], capsys)


def test_an_empty_step_folder_is_named(steps: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    assert "none" in fails(tmp_path, tmp_path / "none", tmp_path / "none", capsys)


def test_a_rank_without_data_is_passed_over(steps: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (steps[0] / "rank0" / "dump.json").write_text('{"task": "statistics"}')
    output = run(tmp_path, *steps, status=2)
    assert [path.name.split("_")[2] for path in output.glob("compare_result*")] == ["rank1"]
    assert "rank0 is not compared" in capsys.readouterr().out


# Row 21


def test_saved_variables_are_compared(tmp_path: Path) -> None:
    data = {
        "dd.0.debug": {"k": tensor(1.0), "l": [tensor(2.0), {"type": "int", "value": 3}]},
        "x_grad.0.debug": tensor(9.0),
        "x.0.debug": tensor(1e30, 1.0),
    }
    other = json.loads(json.dumps(data))
    other["x_grad.0.debug"]["Max"] = 1.0
    pair = (write_dump(tmp_path / side, what, name="debug.json") for side, what in (("a", data), ("b", other)))
    output = run(tmp_path, *pair)
    table = read_table(only(output, "debug_compare_result_*.xlsx"))
    assert [row["NPU Name"] for row in table.rows] == [
        "dd.0.debug.k", "dd.0.debug.l.0", "dd.0.debug.l.1", "x_grad.0.debug", "x.0.debug",
    ]  # fmt: skip
    assert not any(table.colours)
    assert advice(output)["node"] == "x_grad.0.debug"


# Row 22


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (("tensor", "statistics"), ("'tensor'", "'statistics'")),
        (("structure", "structure"), ("'structure'",)),
        (("overflow_check", "overflow_check"), ("'overflow_check'",)),
        ((None, "statistics"), ('"task"',)),
    ],
)
def test_tasks_must_be_the_same_and_comparable(
    tasks: tuple[str | None, str], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"Torch.f.0.forward": forward(tensor(1.0), tensor(1.0))}
    npu, bench = (write_dump(tmp_path / side, data, task) for side, task in zip("ab", tasks, strict=True))
    said = fails(tmp_path, npu, bench, capsys)
    assert all(word in said for word in words)
    with pytest.raises(problems.TaskMismatchError) as raised:
        compare({"npu_json_path": npu, "bench_json_path": bench}, tmp_path / "out")
    assert raised.value.code == 20


def test_digests_are_not_compared_with_statistics(
    edge: Edge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fails(tmp_path, edge("md5")[0], edge("statistics")[1], capsys)
    assert "md5" in said
    assert "statistics" in said


# Row 23


@pytest.mark.parametrize(
    ("content", "word", "code"),
    [
        ({"bench_path": "b"}, "npu_path", 1),
        ({"npu_path": "a"}, "bench_path", 1),
        ({"npu_path": "", "bench_path": ""}, "npu_path", 1),
        ({"npu_path": 5, "bench_path": "b"}, "npu_path", 1),
        ({"npu_path": "{dump}", "bench_path": "/nowhere/dump.json"}, "/nowhere/dump.json", 0),
        ({"npu_path": "{dump}", "bench_path": "{folder}"}, "folder", 17),
        ({"npu_path": "{dump}", "bench_path": "{wrong}"}, "other.json", 1),
        ({"npu_path": "{dump}", "bench_path": "{dump}", "is_print_compare_log": 1}, "is_print_compare_log", 11),
        ({"npu_path": "{dump}", "bench_path": "{dump}", "rank_id": [0]}, "rank_id", 11),
        ({"npu_path": "{dump}", "bench_path": "{dump}", "common": True}, "common", 11),
        ({"npu_path": "{dump}", "bench_path": "{dump}", "stack_path": "/nowhere/stack.json"}, "stack_path", 3),
        (["npu_path"], "object", 11),
        ("{broken", "broken JSON", 2),
    ],
)
def test_bad_compare_files_are_one_line(
    content: Any, word: str, code: int, edge: Edge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = edge("statistics")[0]
    (tmp_path / "other.json").write_text("{}")
    text = content if isinstance(content, str) else json.dumps(content)
    for name, path in (("dump", dump), ("folder", dump.parent), ("wrong", tmp_path / "other.json")):
        text = text.replace(f"{{{name}}}", str(path))
    path = tmp_path / "compare.json"
    path.write_text(text)
    command = ["-f", "pytorch", "compare", "-i", str(path), "-o", str(tmp_path / "out"), "-s"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert word in said
    assert said.startswith("msprobe: ")
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()
    with pytest.raises(MsprobeError) as raised:
        main([*command, "--debug"])
    assert raised.value.code == code


def test_all_mistakes_of_a_compare_file_are_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "compare.json"
    path.write_text('{"npu_path": "",\n "is_print_compare_log": "no"}')
    assert main(["-f", "pytorch", "compare", "-i", str(path), "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert all(field in said for field in ("npu_path", "bench_path", "is_print_compare_log"))
    assert "compare.json:2:2" in said


def test_comments_in_compare_json_are_allowed(edge: Edge, tmp_path: Path) -> None:
    npu, bench = edge("md5")
    path = tmp_path / "compare.json"
    path.write_text(f'{{ // the two runs\n"npu_path": "{npu}", # suspected\n"bench_path": "{bench}" /* trusted */ }}')
    assert main(["-f", "pytorch", "compare", "-i", str(path), "-o", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("data", [{}, None, [], "text"])
def test_dumps_without_data(data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_dump(tmp_path / "a", {"Torch.f.0.forward": forward(tensor(1.0), tensor(1.0))})
    bad = write_dump(tmp_path / "b", data)
    if data == {}:
        # Nothing to compare is no mistake of the user's.
        assert not [one.name for one in run(tmp_path, good, bad, status=2).iterdir() if "coverage" not in one.name]
        assert "data" in capsys.readouterr().out
    else:
        assert '"data"' in fails(tmp_path, good, bad, capsys)
        with pytest.raises(problems.DamagedDataError) as raised:
            compare({"npu_json_path": bad, "bench_json_path": good}, tmp_path / "out")
        assert raised.value.code == 10


def test_values_nested_too_deeply_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value: Any = tensor(1.0)
    for _ in range(12):
        value = [value]
    deep = write_dump(tmp_path / "a", {"Torch.f.0.forward": forward(value, tensor(1.0))})
    assert "nested" in fails(tmp_path, deep, deep, capsys)
    with pytest.raises(problems.TooDeepError) as raised:
        compare({"npu_json_path": deep, "bench_json_path": deep}, tmp_path / "out")
    assert raised.value.code == 24


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        ({"Max": "much"}, ("max", "much")),
        ({"shape": "wide"}, ("shape", "wide")),
        ({"shape": [2, "x"]}, ("shape",)),
    ],
)
def test_damaged_tensors_are_named(
    leaf: dict[str, Any], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = write_dump(tmp_path / "a", {"Torch.f.0.forward": forward(tensor(1.0, **leaf), tensor(1.0))})
    said = fails(tmp_path, bad, bad, capsys)
    assert all(word in said for word in ("Torch.f.0.forward", "input.0", *words))


def test_an_output_that_is_a_file_is_refused(edge: Edge, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PathError, match="file"):
        npu, bench = edge("md5")
        compare({"npu_json_path": npu, "bench_json_path": bench}, tmp_path / "file" / "out")


# Row 24


@pytest.mark.parametrize("flag", ["-cm", "-am", "-lm"])
def test_mappings_between_frameworks_need_two(
    edge: Edge, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "MindSpore" in fails(tmp_path, *edge("md5"), capsys, flag)


# Row 25


# Section 5


def test_what_one_side_alone_has_is_on_a_sheet_of_its_own(edge: Edge, tmp_path: Path) -> None:
    output = run(tmp_path, *edge("statistics"))
    unmatched = read_workbook(only(output, "compare_result_*.xlsx"))["Unmatched"]
    found = {(row["Side"], row["API"]) for row in unmatched.rows}
    assert ("Bench", "Torch.onlybench.0.forward") in found
    assert ("NPU", "Torch.onlynpu.0.forward") in found
    assert "Torch.onlybench.0.forward" in advice(output)["advice"]


def test_dumps_of_different_programs_are_not_called_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npu = write_dump(tmp_path / "a", {"Torch.f.0.forward": forward(tensor(1.0), tensor(1.0))})
    bench = write_dump(tmp_path / "b", {"Torch.g.0.forward": forward(tensor(1.0), tensor(1.0))})
    run(tmp_path, npu, bench, status=2)
    said = capsys.readouterr().out
    assert "0 of 2 rows" in said
    assert mentions(said, "no-row-has-partner")


def test_float8_and_complex_values_are_compared(tmp_path: Path) -> None:
    pairs = {
        "f8": (BASE.to(torch.float8_e4m3fn), (BASE * 2).to(torch.float8_e4m3fn)),
        "cplx": (BASE + 1j * BASE, BASE - 1j * BASE),
    }
    for side, place in (("a", 0), ("b", 1)):
        values = tmp_path / side / "dump_tensor_data"
        values.mkdir(parents=True)
        data = {}
        for name, pair in pairs.items():
            value = pair[place]
            torch.save(value, values / f"Torch.{name}.0.forward.output.0.pt")
            leaf = tensor(1.0, dtype=str(value.dtype), data_name=f"Torch.{name}.0.forward.output.0.pt")
            data[f"Torch.{name}.0.forward"] = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
        write_dump(tmp_path / side, data, "tensor")
    table = sheet(run(tmp_path, tmp_path / "a" / "dump.json", tmp_path / "b" / "dump.json"))
    assert table.row("Torch.f8.0.forward.output.0")["MaxAbsErr"] == 12.0
    row = table.row("Torch.cplx.0.forward.output.0")
    assert (row["MaxAbsErr"], row["Cosine"], row["Accuracy Reached or Not"]) == (24.0, 0.0, "No")


def test_a_second_comparison_within_a_second_keeps_the_first(
    edge: Edge, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msprobe.report.comparing.time.time", lambda: 1.7e9)
    for _ in range(2):
        output = run(tmp_path, *edge("statistics"))
    assert len(list(output.glob("compare_result*.xlsx"))) == 2
    assert len(list(output.glob("advisor*.txt"))) == 2
    lines = [line for line in capsys.readouterr().out.splitlines() if mentions(line, "rows-compared")]
    assert len(lines) == 2
    assert mentions(lines[0], "did-not-pass")
    assert len(re.findall(r"\d+", lines[0])) >= 5
