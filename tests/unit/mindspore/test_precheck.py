"""run_ut on MindSpore dumps: real worker processes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")


def tensor(dtype: str = "Float32", **more: Any) -> dict[str, Any]:
    return {"type": "mindspore.Tensor", "dtype": dtype, "shape": [3, 4], "Max": 2.0, "Min": -1.0, **more}


def rows(folder: Path, kind: str) -> list[list[str]]:
    (path,) = folder.glob(f"accuracy_checking_{kind}_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def write(folder: Path, data: dict[str, Any], values: str | None = None) -> Path:
    path = folder / "dump.json"
    header = {"task": "tensor" if values else "statistics", "level": "L1", "framework": "mindspore"}
    path.write_text(json.dumps({**header, "dump_data_dir": values, "data": data}))
    return path


def forward(*args: Any, output: Any = ()) -> dict[str, Any]:
    return {"input_args": list(args), "input_kwargs": {}, "output": list(output)}


def test_calls_of_several_types_pass_and_an_unknown_one_is_skipped(tmp_path: Path) -> None:
    data = {
        "Mint.add.0.forward": forward(tensor(), tensor()),
        "MintFunctional.relu.0.forward": forward(tensor("Float16")),
        "Mint.where.0.forward": forward(tensor("Bool", Max=True, Min=False), tensor(), tensor()),
        "Tensor.reshape.0.forward": forward(tensor("BFloat16"), {"type": "int", "value": 12}),
        "Mint.nosuch.0.forward": forward(tensor()),
        "Functional.add.0.forward": forward(tensor(), tensor()),
        "Mint.add.0.backward": {"input": [tensor()], "output": []},
    }
    assert call("-f", "mindspore", "run_ut", "-api_info", write(tmp_path, data), "-o", tmp_path).returncode == 0
    found = rows(tmp_path, "result")
    assert found[0] == ["API Name", "Forward Test Success", "Backward Test Success", "Message"]
    assert [row[:3] for row in found[1:]] == [
        ["Mint.add.0", "pass", "pass"],
        ["MintFunctional.relu.0", "pass", ""],
        ["Mint.where.0", "pass", ""],
        ["Tensor.reshape.0", "pass", ""],
        ["Mint.nosuch.0", "SKIP", ""],
    ]
    assert rows(tmp_path, "details")[0][4:7] == ["Cosine", "MaxAbsErr", "MaxRelativeErr"]


def test_a_recorded_result_that_is_off_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, array in (("a", value), ("b", value), ("c", 2 * value + 0.01)):
        np.save(folder / f"{name}.npy", array.astype(np.float32))
    data = {
        "Mint.add.0.forward": forward(
            tensor(data_name="a.npy"), tensor(data_name="b.npy"), output=[tensor(data_name="c.npy")]
        )
    }
    assert call("run_ut", "-api_info", write(tmp_path, data, "x"), "-o", tmp_path).returncode == 0
    assert rows(tmp_path, "result")[1][1] == "error"
    assert float(rows(tmp_path, "details")[1][5]) == pytest.approx(0.01, rel=1e-3)
