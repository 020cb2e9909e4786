"""The sheet of a training in MindSpore and the same one in PyTorch pairs what the verdict pairs."""

from __future__ import annotations

import csv
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.hand_made import call, tensor, write_part

from msprobe.cli import main

ARCHIVE = Path(__file__).parents[2] / "data" / "mindspore_and_pytorch.tar.xz"
NETWORKS = ("conv", "lstm", "half", "gru", "norms", "styles", "wrapped")
PAIRS = [
    *(f"{way}/{{}}_healthy" for way in ("mix", "L0", "L1", "md5", "tensor")),
    *(f"twins_{level}/{{}}_{name}" for level in ("mix", "L1") for name in NETWORKS),
]
Sheet = list[dict[str, str]]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    return folder


def sheet(folder: Path, *words: str | Path) -> Sheet:
    """The sheet of the first step, as a command line writes it."""
    assert main(["compare", *map(str, words), "-o", str(folder)]) in (0, 1)
    first = min(folder.glob("compare_result_*.csv"))
    with first.open(newline="") as file:
        return list(csv.DictReader(file))


def of_dumps(folder: Path, candidate: Path, reference: Path, *words: str | Path) -> Sheet:
    return sheet(folder, candidate, reference, "--csv", "--all-steps", *words)


def paired(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    return {row["NPU Name"]: row["Bench Name"] for row in rows if row["Bench Name"] != "N/A"}


def is_plain(dtype: str) -> bool:
    return dtype.startswith("<class ")


@pytest.mark.parametrize("pair", PAIRS)
def test_rows_answer_to_rows_that_hold_the_same(dumps: Path, tmp_path: Path, pair: str) -> None:
    mine, theirs = (dumps / pair.format(framework) for framework in ("mindspore", "pytorch"))
    rows = of_dumps(tmp_path / "a", mine, theirs)
    found = paired(rows)
    assert len(found) > 10
    for row in rows:
        if row["NPU Name"] not in found:
            continue
        # A number answers to a number, a tensor to a tensor.
        assert is_plain(row["NPU Dtype"]) == is_plain(row["Bench Dtype"]), row
        if ".forward" in row["NPU Name"] and "NPU l2norm" in row and row["NPU l2norm"][:1].isdigit():
            norms = float(row["NPU l2norm"]), float(row["Bench l2norm"])
            assert norms[0] == pytest.approx(norms[1], rel=5e-3), row
    swapped = paired(of_dumps(tmp_path / "b", theirs, mine))
    assert swapped == {theirs: mine for mine, theirs in found.items()}


def test_calls_of_other_names_and_arguments_in_another_order_are_side_by_side(dumps: Path, tmp_path: Path) -> None:
    found = paired(of_dumps(tmp_path, dumps / "L1" / "mindspore_healthy", dumps / "L1" / "pytorch_healthy"))
    for mine, theirs in (
        ("Primitive.gather.Gather.0.forward.input.0", "Functional.embedding.0.forward.input.1"),
        ("Primitive.gather.Gather.0.forward.input.1", "Functional.embedding.0.forward.input.0"),
        ("Primitive.matmul.MatMul.0.forward.input.1", "Functional.linear.0.forward.input.1"),
        ("Primitive.bias_add.BiasAdd.0.forward.input.1", "Functional.linear.0.forward.input.2"),
        ("Primitive.bias_add.BiasAdd.0.forward.output.0", "Functional.linear.0.forward.output.0"),
        ("Primitive.layer_norm.LayerNorm.0.forward.input.1", "Functional.layer_norm.0.forward.input.2"),
        ("Functional.softmax.0.forward.input.axis", "Functional.softmax.0.forward.input.dim"),
        ("Tensor.swapaxes.0.backward.input.0", "Tensor.transpose.0.backward.input.0"),
    ):
        assert found.get(mine) == theirs
    # What the other framework has no row of is alone: the product without its bias, the shape that is asked for.
    assert "Primitive.matmul.MatMul.0.forward.output.0" not in found
    assert not any(name.startswith("Primitive.get_shp") for name in found)


def test_parameters_and_their_gradients_are_side_by_side_whatever_they_are_called(dumps: Path, tmp_path: Path) -> None:
    found = paired(of_dumps(tmp_path, dumps / "mix" / "mindspore_healthy", dumps / "mix" / "pytorch_healthy"))
    norm, other = "Cell.blocks.0.norm1.LayerNorm", "Module.blocks.0.norm1.LayerNorm"
    assert found[f"{norm}.forward.0.parameters.gamma"] == f"{other}.forward.0.parameters.weight"
    assert found[f"{norm}.parameters_grad.beta"] == f"{other}.parameters_grad.bias"
    assert (
        found["Cell.words.Embedding.parameters_grad.embedding_table"] == "Module.words.Embedding.parameters_grad.weight"
    )


def test_another_shape_of_the_same_elements_is_no_warning(dumps: Path, tmp_path: Path) -> None:
    rows = of_dumps(tmp_path, dumps / "L1" / "mindspore_healthy", dumps / "L1" / "pytorch_healthy")
    row = next(row for row in rows if row["NPU Name"] == "Primitive.matmul.MatMul.0.forward.input.0")
    assert (row["NPU Tensor Shape"], row["Bench Tensor Shape"]) == ("[32, 16]", "[4, 8, 16]")
    assert (row["Result"], row["NormRelativeErr"]) == ("", "0.0%")


def test_values_of_another_shape_are_measured(tmp_path: Path) -> None:
    import numpy as np

    from msprobe.compare.values_of_pair import PairMeasures

    values = np.arange(6, dtype=np.float32)
    assert PairMeasures(views=True).of(values.reshape(2, 3), values).cosine == 1.0
    assert PairMeasures().of(values.reshape(2, 3), values).cosine == "shape unmatched"


def test_the_known_form_pairs_so_too_unless_a_mapping_is_given(dumps: Path, tmp_path: Path) -> None:
    mine, theirs = (
        dumps / "mix" / f"{framework}_healthy" / "step0" / "rank" / "dump.json"
        for framework in ("mindspore", "pytorch")
    )
    file = tmp_path / "compare.json"
    file.write_text(json.dumps({"npu_path": str(mine), "bench_path": str(theirs), "is_print_compare_log": False}))
    short = paired(of_dumps(tmp_path / "short", mine.parents[2], theirs.parents[2]))

    def by_file(name: str, *words: str) -> dict[str, str]:
        assert main(["-f", "mindspore", "compare", "-i", str(file), "-o", str(tmp_path / name), "--csv", *words]) == 0
        (path,) = (tmp_path / name).glob("compare_result_*.csv")
        with path.open(newline="") as rows:
            return paired(list(csv.DictReader(rows)))

    assert by_file("plain") == short
    assert paired(sheet_of_newer(tmp_path / "newer", mine, theirs)) == short
    # The words of mindstudio-probe mean what they mean there: names are renamed by the table, and nothing else.
    named = by_file("named", "-am")
    assert named["Functional.matmul.0.forward.input.0"] == "Torch.matmul.0.forward.input.0"
    assert "Cell.words.Embedding.forward.0.input.0" not in named


def sheet_of_newer(folder: Path, mine: Path, theirs: Path) -> Sheet:
    assert main(["compare", "-tp", str(mine), "-gp", str(theirs), "-o", str(folder)]) == 0
    (path,) = folder.glob("compare_result_*.csv")
    with path.open(newline="") as rows:
        return list(csv.DictReader(rows))


def test_a_cell_mapping_serves_the_pairs_of_the_verdict(dumps: Path, tmp_path: Path) -> None:
    mine, theirs = dumps / "mix" / "mindspore_healthy", dumps / "mix" / "pytorch_healthy"
    moved = shutil.copytree(mine, tmp_path / "moved")
    for file in moved.rglob("*.json"):
        file.write_text(file.read_text().replace("Cell.blocks.1.", "Cell.late."))
    cells = tmp_path / "cells.yaml"
    cells.write_text("late: blocks.1\nlate.Block: blocks.1.Block\n")
    expected = {name.replace("Cell.blocks.1.", "Cell.late."): other for name, other in whole(dumps, tmp_path).items()}
    assert paired(of_dumps(tmp_path / "a", moved, theirs, "-cm", cells)) == expected
    assert paired(of_dumps(tmp_path / "b", theirs, moved, "-cm", cells)) == {o: name for name, o in expected.items()}


def whole(dumps: Path, folder: Path) -> dict[str, str]:
    pair = dumps / "mix" / "mindspore_healthy", dumps / "mix" / "pytorch_healthy"
    return paired(of_dumps(folder / "whole", *pair))


def test_a_pair_by_hand_is_the_last_word(dumps: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.yaml"
    product, bias = "Primitive.matmul.MatMul.0.forward.output.0", "Tensor.__add__.0.forward.input.0"
    file.write_text(f"{product}: Functional.linear.0.forward.output.0\n{bias}: N/A\n")
    pair = dumps / "mix" / "mindspore_healthy", dumps / "mix" / "pytorch_healthy"
    found = paired(of_dumps(tmp_path / "a", *pair, "-dm", file))
    expected = whole(dumps, tmp_path)
    assert bias in expected
    del expected[bias]
    assert found == {**expected, product: "Functional.linear.0.forward.output.0"}


def test_a_scalar_has_no_tensor_for_a_partner(tmp_path: Path) -> None:
    number: dict[str, Any] = {"type": "int", "value": 2}
    pair: dict[str, Path] = {}
    for side, framework, dtype, inputs in (
        ("mine", "mindspore", "Float32", ("tensor", "number")),
        ("theirs", "pytorch", "torch.float32", ("number", "tensor")),
    ):
        given = [tensor(2, dtype=dtype) if word == "tensor" else number for word in inputs]
        data = {"Torch.mul.0.forward": call(*given, out=tensor(2, dtype=dtype))}
        write_part(tmp_path / side / "step0" / "rank", data, framework=framework)
        pair[side] = tmp_path / side
    for words in ((), ("-am",)):
        rows = of_dumps(tmp_path / f"o{len(words)}", pair["mine"], pair["theirs"], *words)
        found = {row["NPU Name"]: row["Bench Name"] for row in rows}
        assert found["Torch.mul.0.forward.input.1"] in ("N/A", "Torch.mul.0.forward.input.0")
        assert found["Torch.mul.0.forward.input.0"] in ("N/A", "Torch.mul.0.forward.input.1")
        assert found["Torch.mul.0.forward.output.0"] == "Torch.mul.0.forward.output.0"
