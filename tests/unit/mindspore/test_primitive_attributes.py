"""What primitives were told when they were made is in their records, and another value is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, batch, record  # noqa: E402

from msprobe.diagnose.runs import compare_runs  # noqa: E402

__all__ = ["record"]


class Model(nn.Cell):
    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, stride=2, pad_mode="pad", padding=1)
        self.norm = nn.LayerNorm((4,), epsilon=epsilon)
        self.product = ops.MatMul(transpose_b=True)
        self.drop = ops.Dropout(keep_prob=1.0)

    def construct(self, x: Any) -> Any:
        h = self.norm(self.conv(x).reshape(-1, 4))
        return self.drop(self.product(h, h))[0].sum()


def run(record: Recorder, folder: Path, epsilon: float) -> Any:
    ms.set_seed(3)
    np.random.seed(3)
    model = Model(epsilon)
    with record(level="mix", dump_path=str(folder)).recording(model):
        model(batch(0, (1, 1, 8, 8)))
    record.end()
    return json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"]


def test_the_attributes_of_a_primitive_are_in_its_record(record: Recorder, tmp_path: Path) -> None:
    data = run(record, tmp_path / "one", 1e-5)

    def told(entry: str) -> dict[str, Any]:
        def value(leaf: Any) -> Any:
            return [one["value"] for one in leaf] if isinstance(leaf, list) else leaf["value"]

        return {key: value(leaf) for key, leaf in data[entry]["attributes"].items()}

    assert told("Primitive.layer_norm.LayerNorm.0.forward")["epsilon"] == 1e-5
    assert told("Primitive.layer_norm.LayerNorm.0.forward")["begin_norm_axis"] in (1, -1)
    assert told("Primitive.product.MatMul.0.forward") == {"transpose_a": False, "transpose_b": True}
    assert told("Primitive.drop.Dropout.0.forward") == {"keep_prob": 1.0}
    conv = told("Primitive.conv2d.Conv2D.0.forward")
    assert (conv["stride"], conv["pad"], conv["pad_mode"]) == ([1, 1, 2, 2], [1, 1, 1, 1], "pad")
    # Keys of other recorders stay what they are.
    assert data["Primitive.product.MatMul.0.forward"]["input_kwargs"] == {}


def test_another_epsilon_is_reported_as_the_cause(record: Recorder, tmp_path: Path) -> None:
    run(record, tmp_path / "one", 1e-5)
    run(record, tmp_path / "same", 1e-5)
    run(record, tmp_path / "other", 1e-2)
    assert compare_runs(tmp_path / "one", tmp_path / "same").findings == ()
    first = compare_runs(tmp_path / "other", tmp_path / "one").findings[0]
    assert first.kind == "argument"
    assert "epsilon" in first.message
    assert "0.01" in first.message
    assert "1e-05" in first.message


def test_a_dump_without_attributes_is_no_difference(record: Recorder, tmp_path: Path) -> None:
    run(record, tmp_path / "one", 1e-5)
    run(record, tmp_path / "older", 1e-5)
    file = tmp_path / "older" / "step0" / "rank" / "dump.json"
    found = json.loads(file.read_text())
    for entry in found["data"].values():
        entry.pop("attributes", None)
    file.write_text(json.dumps(found))
    assert compare_runs(tmp_path / "one", tmp_path / "older").findings == ()
    assert compare_runs(tmp_path / "older", tmp_path / "one").findings == ()
