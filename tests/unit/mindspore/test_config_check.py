"""The configuration check inside a MindSpore training."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

mindspore = pytest.importorskip("mindspore")
from mindspore import Tensor, nn, ops  # noqa: E402

from msprobe.core.config_check import ConfigChecker  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = ops.randn, mindspore.set_seed, random.random
    yield
    ConfigChecker.remove_patches()
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    assert (ops.randn, mindspore.set_seed, random.random) == before


def read(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")}


def numbers(values: Any) -> dict[str, float]:
    wide = np.asarray(values, np.float32)
    return {
        "max": float(wide.max()), "min": float(wide.min()), "mean": float(wide.mean()),
        "norm": pytest.approx(float(np.linalg.norm(wide)), rel=1e-6),
    }  # fmt: skip


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 3)
        self.drop = nn.Dropout(p=0.25)

    def construct(self, x: Any, scale: Any = None) -> Any:
        return self.drop(self.dense(x))


def test_two_micro_steps_are_collected_and_then_nothing_is_left(tmp_path: Path) -> None:
    ConfigChecker.apply_patches("mindspore")
    mindspore.set_seed(3)
    random.random()
    ops.randn(2)
    model = Net().set_train()
    checker = ConfigChecker(model, None, str(tmp_path / "a.zip"), "mindspore", steps=2)
    x = Tensor(np.arange(8).reshape(2, 4), mindspore.float32)
    for _ in range(3):
        model(x)
    assert not checker.is_collecting
    found = read(tmp_path / "a.zip")
    assert set(found) == {
        *(f"dataset/step{step}/rank0/dataset.json" for step in (0, 1)),
        *(f"weights/step{step}/rank0/weight.json" for step in (0, 1)),
        *(f"digests/step{step}/rank0.json" for step in (0, 1)),
        *("random/rank0.json", "random_state/rank0.json"),
    }
    assert found["dataset/step0/rank0/dataset.json"]["args"] == {"0": numbers(x.asnumpy())}
    assert found["weights/step0/rank0/weight.json"] == {
        name: numbers(parameter.asnumpy()) for name, parameter in model.parameters_and_names()
    }
    assert set(found["random/rank0.json"]) >= {"mindspore.set_seed", "random.random", "mindspore.ops.randn"}
    state = found["random_state/rank0.json"]
    assert state["seeds"] == [["mindspore.set_seed", 3]]
    assert state["dropout"] == {"drop": {"p": 0.25, "training": True}}
    assert set(state["states"]) == {"0", "1"}


def test_the_same_numbers_come_out(tmp_path: Path) -> None:
    def trained(checks: bool) -> list[bytes]:
        if checks:
            ConfigChecker.apply_patches("mindspore")
        mindspore.set_seed(5)
        model = Net().set_train()
        if checks:
            ConfigChecker(model, None, str(tmp_path / "a.zip"), "mindspore")
        step = mindspore.value_and_grad(lambda x: model(x).sum(), None, model.trainable_params())
        found = []
        for _ in range(2):
            loss, gradients = step(ops.randn(2, 4))
            found += [loss.asnumpy().tobytes(), *(one.asnumpy().tobytes() for one in gradients)]
        return found

    assert trained(False) == trained(True)


def test_a_compiled_graph_is_refused_in_a_sentence_and_can_be_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    model = Net()
    checker = ConfigChecker(model, None, str(tmp_path / "a.zip"), "mindspore")
    assert mentions(capsys.readouterr().out, "config-check-of-graph")
    x = Tensor(np.ones((2, 4)), mindspore.bfloat16)
    checker.collect(x)
    assert read(tmp_path / "a.zip")["dataset/step0/rank0/dataset.json"]["args"] == {"0": numbers(np.ones((2, 4)))}


def test_functions_are_as_they_were_in_what_is_compiled(tmp_path: Path) -> None:
    ConfigChecker.apply_patches("mindspore")

    @mindspore.jit
    def noise(x: Any) -> Any:
        return x + ops.randn(2)

    assert noise(Tensor(np.zeros(2), mindspore.float32)).shape == (2,)
