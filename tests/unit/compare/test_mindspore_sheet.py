"""A dump of MindSpore against one of PyTorch, from the command line to the sheet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import raising
from support.hand_made import TOY, call, tensor, write_part

from msprobe.cli import main
from msprobe.compare.problems import ComparisonError, InvalidArgumentError
from msprobe.config.yaml_source import read_yaml
from msprobe.errors import InvalidInputError
from msprobe.mindspore.compare.ms_compare import ms_compare

calamine = pytest.importorskip("python_calamine")

PATHS = {"npu_json_path": str(TOY / "target" / "dump.json"), "bench_json_path": str(TOY / "bench" / "dump.json")}


def sheet(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("compare_result_*.xlsx")
    header, *rows = calamine.CalamineWorkbook.from_path(str(path)).get_sheet_by_name("Sheet").to_python()
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def matched(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["NPU Name"]: row["Bench Name"] for row in rows if row["Bench Name"] != "N/A"}


def compare_json(folder: Path, npu: Path = TOY / "target/dump.json", bench: Path = TOY / "bench/dump.json") -> str:
    path = folder / "compare.json"
    path.write_text(json.dumps({"npu_path": str(npu), "bench_path": str(bench)}))
    return str(path)


# The published mindstudio-probe 8.1.1 matches as many rows or fewer.
@pytest.mark.parametrize(
    ("words", "least"),
    [
        ([], 18),
        (["-am"], 28),
        (["-am", str(TOY / "api_mapping.yaml")], 30),
        (["-cm"], 30),
        (["-cm", str(TOY / "cell_mapping.yaml")], 45),
        (["-dm", str(TOY / "data_mapping.yaml")], 23),
        (["-lm", str(TOY / "layer_mapping.yaml")], 61),
        (["-lm"], 53),
    ],
)
def test_rows_of_the_toy_model_find_their_partners(tmp_path: Path, words: list[str], least: int) -> None:
    assert main(["-f", "mindspore", "compare", "-i", compare_json(tmp_path), "-o", str(tmp_path / "o"), *words]) == 0
    rows = sheet(tmp_path / "o")
    assert len(rows) == 123
    assert len(matched(rows)) >= least
    assert bool(list((tmp_path / "o").glob("data_mapping_*.yaml"))) == ("-lm" in words)


def test_layers_find_calls_that_agree(tmp_path: Path) -> None:
    # By its number, Mint.mul.0 would answer to Torch.mul.0, which is another product and differs by half.
    ms_compare(PATHS, tmp_path, layer_mapping=str(TOY / "layer_mapping.yaml"))
    rows = {row["NPU Name"]: row for row in sheet(tmp_path)}
    product = rows["Mint.mul.0.forward.output.0"]
    assert product["Bench Name"] == "Torch.mul.1.forward.output.0"
    assert float(product["NormRelativeErr"].rstrip("%")) < 0.2
    assert rows["Mint.mul.0.backward.input.0"]["Bench Name"] == "Torch.mul.1.backward.input.0"


def test_the_mapping_that_layers_come_to_is_written_in_the_order_of_the_dump(tmp_path: Path) -> None:
    ms_compare(PATHS, tmp_path, layer_mapping=True)
    (path,) = tmp_path.glob("data_mapping_*.yaml")
    content = read_yaml(path).document.value
    rows = sheet(tmp_path)
    assert list(content) == [row["NPU Name"] for row in rows]
    assert {name: other for name, other in content.items() if other != "N/A"} == matched(rows)


def test_a_renamed_tensor_is_paired_whatever_its_shape_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    mine = {"Mint.a.0.forward": call(tensor(2, dtype="Float32"), tensor(3, dtype="Float32"), out=tensor(4))}
    theirs = {"Torch.b.0.forward": call(tensor(5)), "Mint.a.0.forward": call(out=tensor(4))}
    write_part(tmp_path / "a", mine, framework="mindspore")
    write_part(tmp_path / "b", theirs, framework="pytorch")
    mapping = tmp_path / "m.yaml"
    mapping.write_text(
        "Mint.a.0.forward.input.0: Torch.b.0.forward.input.0\nMint.a.0.forward.input.1: Torch.b.0.forward.nowhere\n"
    )
    file = compare_json(tmp_path, tmp_path / "a/dump.json", tmp_path / "b/dump.json")
    assert main(["-f", "mindspore", "compare", "-i", file, "-o", str(tmp_path / "o"), "-dm", str(mapping)]) == 0
    assert [row["Bench Name"] for row in sheet(tmp_path / "o")] == [
        "Torch.b.0.forward.input.0",
        "N/A",
        "Mint.a.0.forward.output.0",
    ]


def test_values_are_read_in_the_format_of_each_side(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    values = np.array([1.0, 2.0], np.float32)
    for side, framework, ending, dtype in (
        ("a", "mindspore", "npy", "Float32"),
        ("b", "pytorch", "pt", "torch.float32"),
    ):
        name = f"Torch.mul.0.forward.input.0.{ending}"
        data = {"Torch.mul.0.forward": {"input_args": [tensor(2, dtype=dtype, data_name=name)]}}
        write_part(tmp_path / side, data, task="tensor", framework=framework)
        (tmp_path / side / "dump_tensor_data").mkdir()
        if ending == "npy":
            np.save(tmp_path / side / "dump_tensor_data" / name, values * 2)
        else:
            torch.save(torch.from_numpy(values), tmp_path / side / "dump_tensor_data" / name)
    ms_compare(
        {f"{word}_json_path": tmp_path / side / "dump.json" for word, side in (("npu", "a"), ("bench", "b"))}, tmp_path
    )
    (row,) = sheet(tmp_path)
    assert (row["Cosine"], row["MaxAbsErr"], row["MaxRelativeErr"]) == (1, 2, 1)
    assert row["Data_name"] == "['Torch.mul.0.forward.input.0.npy', 'Torch.mul.0.forward.input.0.pt']"


def test_pytorch_names_on_mindspore_tensors_need_no_mapping(tmp_path: Path) -> None:
    for side, framework, dtype in (("a", "mindtorch", "BFloat16"), ("b", "pytorch", "torch.bfloat16")):
        data = {"Torch.mul.0.forward": call(tensor(2, dtype=dtype), out=tensor(2, dtype=dtype))}
        write_part(tmp_path / side, data, framework=framework)
    file = compare_json(tmp_path, tmp_path / "a/dump.json", tmp_path / "b/dump.json")
    assert main(["-f", "mindspore", "compare", "-i", file, "-o", str(tmp_path / "o")]) == 0
    rows = sheet(tmp_path / "o")
    assert len(matched(rows)) == len(rows) == 2
    assert {row["Err_message"] for row in rows} == {""}


@pytest.mark.parametrize("flag", ["-am", "-cm", "-dm", "-lm"])
def test_a_broken_mapping_is_one_line_and_nothing_is_written(
    tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.yaml").write_text("a: [\n")
    words = ["-i", compare_json(tmp_path), "-o", str(tmp_path / "o"), flag, str(tmp_path / "m.yaml")]
    assert main(["-f", "mindspore", "compare", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("msprobe: m.yaml:2:1: broken YAML")
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stack_mode": 1}, "stack_mode = 1 must be True or False"),
        ({"fuzzy_match": "yes", "suffix": "a/b"}, "fuzzy_match = 'yes' must be True or False; suffix must be a word"),
        ({"input_param": {}}, r'field "npu_json_path" .* found None; field "bench_json_path"'),
        ({"input_param": {**PATHS, "is_print_compare_log": "no"}}, "is_print_compare_log = 'no'"),
    ],
)
def test_wrong_arguments_are_reported_all_at_once(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    arguments = {"input_param": PATHS, "output_path": tmp_path / "o", **change}
    with pytest.raises(InvalidArgumentError, match=told) as caught:
        ms_compare(**arguments)
    assert caught.value.code == 11
    assert not (tmp_path / "o").exists()


def test_wrong_types_are_type_errors(tmp_path: Path) -> None:
    for arguments in (([], tmp_path), (PATHS, 3)):
        with pytest.raises(TypeError):
            ms_compare(*arguments)  # type: ignore[arg-type]
    with raising(InvalidInputError, "mapping-argument-wrong", argument="api_mapping"):
        ms_compare(PATHS, tmp_path / "o", api_mapping=3)
    assert issubclass(ComparisonError, InvalidInputError)
