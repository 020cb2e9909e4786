"""Dumps of MindSpore in a timeline: the element types are those of PyTorch, in other words."""

from __future__ import annotations

from pathlib import Path

from support.hand_made import call, tensor, write_part

from msprobe.diagnose.runs import compare_runs
from msprobe.diagnose.steps.timeline import Timeline


def test_element_types_have_one_name(tmp_path: Path) -> None:
    data = {
        "Cell.a.Dense.forward.0": {
            **call(tensor(2, dtype="Float32"), [tensor(3, dtype="Int64")], out=tensor(2, dtype="BFloat16")),
            "parameters": {"weight": tensor(2, dtype="Float16")},
        },
        "Functional.cast.0.forward": call({"type": "mindspore.dtype", "value": "Float16"}, out=tensor(1, dtype="Bool")),
    }
    first, second = Timeline(write_part(tmp_path, data, framework="mindspore"))
    assert first.record["input_args"][0]["dtype"] == "torch.float32"
    assert first.record["input_args"][1][0]["dtype"] == "torch.int64"
    assert first.record["output"][0]["dtype"] == "torch.bfloat16"
    assert first.record["parameters"]["weight"]["dtype"] == "torch.float16"
    assert second.record["input_args"] == [{"type": "mindspore.dtype", "value": "Float16"}]
    assert second.record["output"][0]["dtype"] == "torch.bool"


def test_equal_dumps_of_both_frameworks_agree(tmp_path: Path) -> None:
    for name, framework, dtype, kind in (
        ("one", "mindspore", "Float32", "Cell.a.Dense"),
        ("other", "pytorch", "torch.float32", "Module.a.Linear"),
    ):
        x, y = tensor(2, 2, dtype=dtype, value=0.5), tensor(2, 2, dtype=dtype, value=1.5)
        folder = tmp_path / name / "step0" / "rank"
        entry = f"{kind}.forward.0"
        write_part(folder, {entry: call(x, out=y)}, framework=framework, construct={entry: None})
    verdict = compare_runs(tmp_path / "one", tmp_path / "other")
    assert not any("float32" in note.lower() for note in verdict.notes)
    assert verdict.findings == ()
