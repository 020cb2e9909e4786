"""Tensors that are multiplied before they are compared."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, raising
from support.hand_made import tensor, write_part

from msprobe.cli import main
from msprobe.compare.multiplications import GOLDEN, TARGET, read_multiplications
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LEFT, RIGHT = np.array([[0, 1], [1, 0]], np.float32), np.diag([1, 2, 3]).astype(np.float32)


@pytest.fixture
def matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two matrices."""
    np.save(tmp_path / "left.npy", LEFT)
    np.save(tmp_path / "right.npy", RIGHT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "m.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "side", "expected"),
    [
        ("right_matmul: {target_tensor_map: {right.npy: [x.npy]}}", TARGET, X @ RIGHT),
        ("right_matmul: {target_tensor_map: {right.npy: [x.npy]}}", GOLDEN, X),
        ("right_matmul: {golden_tensor_map: {right.npy: [x]}}", GOLDEN, X @ RIGHT),
        ("left_matmul: {target_tensor_map: {left.npy: [y.npy, x.npy]}}", TARGET, LEFT @ X),
        (
            "left_right_matmul:\n left_target_tensor_map: {left.npy: [x]}\n right_target_tensor_map: {right.npy: [x]}",
            TARGET,
            LEFT @ X @ RIGHT,
        ),
        ("left_right_matmul: {right_golden_tensor_map: {right.npy: [x.npy]}}", GOLDEN, X @ RIGHT),
        ("right_matmul: {target_tensor_map: {right.npy: [other.npy]}}", TARGET, X),
    ],
)
def test_tensors_are_multiplied_on_the_side_that_is_named(matrices: Path, text: str, side: int, expected: Any) -> None:
    found = read_multiplications(written(matrices, text)).apply(side, "x.npy", X)
    assert found.tolist() == expected.tolist()


def test_shapes_that_do_not_fit_are_reported(matrices: Path) -> None:
    found = read_multiplications(written(matrices, "left_matmul: {target_tensor_map: {right.npy: [x.npy]}}"))
    with raising(
        InvalidInputError,
        "multiplication-shapes",
        tensor="x.npy",
        path="right.npy",
        left_shape="[3, 3]",
        right_shape="[2, 3]",
    ):
        found.apply(TARGET, "x.npy", X)


def test_names_that_no_tensor_has_are_known(matrices: Path) -> None:
    found = read_multiplications(written(matrices, "left_matmul: {target_tensor_map: {right.npy: [x, z.npy, y.npy]}}"))
    assert found.unknown(TARGET, {"x.npy", "y.npy"}) == ["z.npy"]
    assert found.unknown(GOLDEN, set()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["the configuration must be an object with right_matmul"]),
        ("- a", ["the configuration must be an object"]),
        ("right_matmul: x", ['m.yaml:1: field "right_matmul": must be an object with target_tensor_map']),
        ("right_matmul: {target_tensor_map: [x]}", ['"right_matmul.target_tensor_map": must be an object']),
        ("right_matmul: {target_tensor_map: {right.npy: x}}", ["must be a list of data names"]),
        ("right_matmul: {target_tensor_map: {m.yaml: [x]}}", ["must be a .pt or .npy file"]),
        (
            "right_matmul: {target_tensor_map: {right.npy: [x, x], none.npy: [y]}}",
            [said("has-matrix-already", "x", "right"), said("value-file-missing")],
        ),
    ],
)
def test_all_mistakes_are_reported(matrices: Path, text: str, told: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_multiplications(written(matrices, text))
    for part in told:
        assert part in caught.value.message


def test_a_missing_matrix_alone_is_an_error_of_a_path(matrices: Path) -> None:
    with pytest.raises(PathError, match="does not exist"):
        read_multiplications(written(matrices, "right_matmul: {target_tensor_map: {none.npy: [x]}}"))


def test_what_is_not_known_is_warned_about(matrices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_multiplications(written(matrices, "right_matmol: {}\nleft_matmul: {target_tensor_mop: {}}"))
    told = capsys.readouterr().out
    assert (
        mentions(told, "did-you-mean", name="right_matmul")
        == mentions(told, "did-you-mean", name="target_tensor_map")
        == 1
    )


def test_the_command_multiplies_before_it_compares(matrices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "Torch.a.0.forward.input.0.npy"
    for side, values in (("a", X), ("b", LEFT @ X)):
        data = {"Torch.a.0.forward": {"input_args": [tensor(2, 3, data_name=name)]}}
        write_part(matrices / side, data, task="tensor")
        (matrices / side / "dump_tensor_data").mkdir()
        np.save(matrices / side / "dump_tensor_data" / name, values)
    text = f"left_matmul: {{target_tensor_map: {{left.npy: [{name}, other.npy]}}}}"
    paths = ["-tp", str(matrices / "a/dump.json"), "-gp", str(matrices / "b/dump.json"), "-o", str(matrices / "o")]
    assert main(["compare", *paths, "--config", str(written(matrices, text))]) == 0
    (sheet,) = (matrices / "o").iterdir()
    with open(sheet, newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["Cosine"], row["MaxAbsErr"]) == ("1.0", "0.0")
    assert mentions(capsys.readouterr().out, "multiplied-data-missing", side="target", names="other.npy", count=1)
    assert main(["compare", *paths[:-1], str(matrices / "p"), "--config", str(written(matrices, "a: ["))]) == 2
    assert not (matrices / "p").exists()
