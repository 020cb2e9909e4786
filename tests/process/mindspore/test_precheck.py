"""run_ut on MindSpore dumps: real worker processes."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions
from support.command_line import call

from msprobe.messages import said

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
    words = ("-api_info", write(tmp_path, data), "-o", tmp_path, "-d", 0, "--standard", "26.2")
    done = call("-f", "mindspore", "run_ut", *words)
    assert done.returncode == 0
    assert mentions(done.stdout, "options-unused-for-mindspore", options="-d, --standard")
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
    found = call("run_ut", "-api_info", write(tmp_path, data, "x"), "-o", tmp_path)
    assert found.returncode == 0
    assert rows(tmp_path, "result")[1][1] == "error"
    assert float(rows(tmp_path, "details")[1][5]) == pytest.approx(0.01, rel=1e-3)
    wider = call("run_ut", "-api_info", tmp_path / "dump.json", "-o", tmp_path / "wider", "--ms-atol", 0.02)
    assert wider.returncode == 0
    assert rows(tmp_path / "wider", "result")[1][1] == "pass"


def test_a_fault_is_found_and_what_mindspore_does_not_know_is_refused(tmp_path: Path) -> None:
    """All of these were accepted in silence, and nothing was done about them."""
    dump = write(tmp_path, {"Mint.sin.0.forward": forward(tensor()), "Tensor.__mul__.0.forward": forward(tensor())})
    found = call("run_ut", "-api_info", dump, "-o", tmp_path, "--candidate", "inject:nan@5")
    assert [row[1] for row in rows(tmp_path, "result")[1:]] == ["error"]
    assert "without a row: Tensor.__mul__." in found.stdout
    for words, expected in (
        (("--candidate", "cpu+threads=1", "--repeat", "3"), "--candidate 'cpu+threads=1' (allowed: auto, cpu"),
        (("--candidate", "cpu+threads=1", "--repeat", "3"), "; --repeat."),
        (("--candidate", "inject:swap"), "inject:swap"),
        (("-save_error_data", "--control", "cpu"), "--control; -save_error_data"),
    ):
        refused = call("run_ut", "-api_info", dump, "-o", tmp_path / "none", *words)
        assert refused.returncode == 2
        assert expected in refused.stderr
    for device in ("cpu+threads=1", "inject:scale=1e-2"):
        refused = call("op_generate", "--dump", dump, "--api", "Mint.sin.0", "-o", tmp_path, "--device", device)
        assert (refused.returncode, mentions(refused.stderr, "op-device-for-mindspore", device=device)) == (2, 1)


def test_a_check_goes_on_where_it_was_cut_and_a_failing_api_has_its_row(tmp_path: Path) -> None:
    data = {f"Mint.{name}.0.forward": forward(tensor()) for name in ("sin", "nosuch", "cos", "abs")}
    dump = write(tmp_path, data)
    assert call("multi_run_ut", "-api_info", dump, "-o", tmp_path, "-n", 1).returncode == 0
    (result,), (details,) = (list(tmp_path.glob(f"*_{kind}_*.csv")) for kind in ("result", "details"))
    whole = result.read_bytes(), details.read_bytes()
    assert [row[1] for row in rows(tmp_path, "result")[1:]] == ["pass", "SKIP", "pass", "pass"]
    result.write_bytes(b"".join(whole[0].splitlines(keepends=True)[:3]))
    assert call("run_ut", "-api_info", dump, "-o", tmp_path, "-csv_path", result).returncode == 0
    assert (result.read_bytes(), details.read_bytes()) == whole


def test_overflow_of_the_record_and_of_the_cpu(tmp_path: Path) -> None:
    large, fine = tensor(Max=200.0, Min=100.0), tensor(Max=2.0)
    infinite = tensor(Max=float("inf"), Min=float("inf"))
    data = {
        "Mint.exp.0.forward": forward(large, output=[infinite]),
        "Mint.exp.1.forward": forward(fine, output=[infinite]),
        "Mint.exp.2.forward": forward(fine, output=[fine]),
        "Mint.exp.3.forward": forward(fine, output=[{**fine, "Max": None}]),
    }
    shown = call("run_overflow_check", "-api_info", write(tmp_path, data)).stdout
    assert mentions(shown, "overflow-is-normal", key="Mint.exp.0")
    assert mentions(shown, "overflow-is-abnormal", key="Mint.exp.1")
    assert mentions(shown, "overflow-is-normal", key="Mint.exp.2")
    assert mentions(shown, "overflow-not-checked", key="Mint.exp.3", why=said("results-without-extremes"))
    counts = re.findall(r"\b\d\b(?: \([\w.]+\))?", next(line for line in shown.splitlines() if "(Mint.exp.1)" in line))
    assert counts == ["4", "1 (Mint.exp.1)", "1 (Mint.exp.0)", "1"]


def test_a_script_reproduces_a_call_and_says_a_verdict(tmp_path: Path) -> None:
    data = {
        "Mint.matmul.0.forward": forward(tensor(), tensor(shape=[4, 2])),
        "Mint.matmul.0.backward": {"input": [tensor(shape=[3, 2])], "output": []},
    }
    words = ("--dump", write(tmp_path, data), "--api", "Mint.matmul.0", "--propagation", "backward")
    made = call("-f", "mindspore", "op_generate", *words, "-o", tmp_path)
    assert made.returncode == 0
    assert "--minimize" not in made.stdout
    for fault, status in (("0", "pass"), ("0.5", "error")):
        command = [sys.executable, tmp_path / "Mint.matmul.0.backward.py", "--inject", fault]
        found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert f"Verdict: {status}" in found.stdout, found.stderr
        assert found.returncode == int(status == "error")
    (first, *_) = sorted((tmp_path / "op_result_output").glob("*_details_*.csv"))
    assert first.read_text("utf-8-sig").splitlines()[1].startswith("Mint.matmul.0.backward.output.0,Float64,Float32,")
    minimized = call("op_generate", *words, "-o", tmp_path, "--minimize")
    assert minimized.returncode == 2
    assert "PyTorch only" in minimized.stderr


def test_a_script_on_a_device_that_there_is_not_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from msprobe.precheck.mindspore import standalone

    monkeypatch.setattr(sys, "argv", ["script.py", "--device", "nosuch:0"])
    with pytest.raises(SystemExit) as ending:
        standalone.main({"api": "Mint.matmul.0", "propagation": "forward"}, "script.py")
    assert ending.value.code == 2
    assert "error: --device nosuch:0: " in capsys.readouterr().err
