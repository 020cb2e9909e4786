"""Scripts of single calls as config_op.json asks for them, run in this process."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import call

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 3], "Max": 2.0, "Min": -2.0}
INPUT = {**TENSOR, "requires_grad": True}
LABELS = {**TENSOR, "dtype": "torch.int64", "shape": [4], "Max": 2, "Min": 0}
CALLS = {
    "Torch.softmax.0": ([INPUT, {"type": "int", "value": -1}], TENSOR),
    "Functional.linear.0": ([INPUT, INPUT], {**TENSOR, "shape": [4, 4]}),
    "Tensor.__add__.0": ([INPUT, INPUT], TENSOR),
    "Functional.cross_entropy.0": ([INPUT, LABELS], {**TENSOR, "shape": []}),
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    data: dict[str, Any] = {}
    for name, (args, result) in CALLS.items():
        data[f"{name}.forward"] = {"input_args": args, "input_kwargs": {}, "output": [result]}
        data[f"{name}.backward"] = {"input": [result], "output": []}
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "framework": "pytorch", "dump_data_dir": None, "data": data}))
    return path


def config(dump: Path, **fields: Any) -> Path:
    path = dump.with_name("config_op.json")
    extract = str(dump.parent / "extracted" / "call.json")
    common = {"dump_json_path": str(dump), "api_name": "Torch.softmax.0", "extract_api_path": extract}
    path.write_text(json.dumps({**common, **fields}))
    return path


def run(script: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [str(script), "--device", "cpu", *words])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(script), run_name="__main__")
    return int(str(ending.value.code))


@pytest.mark.parametrize("api", list(CALLS))
@pytest.mark.parametrize("propagation", ["forward", "backward"])
def test_a_script_has_the_labels_of_8_1_1_and_a_verdict(
    dump: Path, api: str, propagation: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(dump, api_name=api, propagation=propagation, iter_times=2)
    assert call("-f", "pytorch", "op_generate", "-i", path, "-o", dump.parent).returncode == 0
    script = dump.parent / f"{api}.{propagation}.py"
    assert run(script, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    for label in ("iter: 1:", "Compare result:", "Compare Standard", "Dtype of out_device", "Compare finished."):
        assert label in said
    assert "Verdict: pass" in said
    assert run(script, "--inject", "scale=0.1", monkeypatch=monkeypatch) == 1


def test_a_control_that_is_as_far_off_lets_an_error_pass(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--dump", dump, "--api", "Torch.softmax.0", "--control", "cpu", "-o", dump.parent)
    assert call("op_generate", *words).returncode == 0
    script = dump.parent / "Torch.softmax.0.forward.py"
    assert run(script, "--inject", "scale=0.1", monkeypatch=monkeypatch) == 1
    assert "Scaled error of the control" in capsys.readouterr().out
    # A control in which the same is wrong.
    script.write_text(
        script.read_text().replace('control = run(call, chosen, "",', "control = run(call, chosen, options.inject,")
    )
    assert run(script, "--inject", "scale=0.1", monkeypatch=monkeypatch) == 0
    assert "as far off" in capsys.readouterr().out


def test_an_extracted_call_is_enough(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("op_generate", "-i", config(dump), "-o", dump.parent).returncode == 0
    path = config(dump, dump_json_path="")
    dump.unlink()
    assert call("op_generate", "-i", path, "-o", dump.parent).returncode == 0
    assert run(dump.parent / "Torch.softmax.0.forward.py", monkeypatch=monkeypatch) == 0
    refused = call("op_generate", "-i", config(dump, dump_json_path="", data_mode="real_data"), "-o", dump.parent)
    assert refused.returncode == 1
    assert "has no values of tensors" in refused.stderr


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"propagation": "sideways"}, "allowed: forward or backward"),
        ({"iter_times": 1001}, "a whole number from 1 to 1000"),
        ({"api_name": "Torch.nosuch.0"}, "has no API 'Torch.nosuch.0'"),
        ({"api_name": "softmax"}, "as Functional.softmax.0"),
        ({"data_mode": "x", "random_seed": "a"}, "random_seed"),
        ({"data_mode": "real_data"}, "has no values of tensors"),
        ({"dump_json_path": "", "extract_api_path": "none.json"}, "none.json"),
    ],
)
def test_a_mistake_in_config_op_is_one_line(dump: Path, fields: dict[str, Any], said: str) -> None:
    found = call("op_generate", "-i", config(dump, **fields), "-o", dump.parent)
    assert found.returncode == 1
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
