"""How far optimizers of two frameworks move a weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.diagnose.runs import compare_runs

NAMES = tuple("abcdefgh")


def described(array: np.ndarray, framework: str) -> dict[str, Any]:
    return {
        "type": "mindspore.Tensor" if framework == "mindspore" else "torch.Tensor",
        "dtype": "Float32" if framework == "mindspore" else "torch.float32",
        "shape": list(array.shape),
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean()),
        "Norm": float(np.linalg.norm(array)),
    }


def write(folder: Path, framework: str, moved: dict[str, float], rounding: float = 1e-7) -> Path:
    """Two steps of a model of linear layers, one after the other. ``moved``: how far the step between moves each
    weight, times 0.01; ``rounding``: the relative error of weights in the second step.
    """
    module, kind = ("Cell", "Dense") if framework == "mindspore" else ("Module", "Linear")
    draw = np.random.default_rng(1)
    weights = {name: draw.normal(size=(16, 16)) for name in NAMES}
    directions = {name: draw.normal(size=(16, 16)) for name in NAMES}
    gradients = {name: draw.normal(size=(16, 16)) for name in NAMES}
    for step in range(2):
        noise = np.random.default_rng(len(framework) + step)
        x = np.random.default_rng(9).normal(size=(4, 16))
        data: dict[str, Any] = {}
        for name in NAMES:
            weight = weights[name] + step * 0.01 * moved.get(name, 1.0) * directions[name]
            weight = weight * (1 + step * rounding * noise.normal(size=weight.shape))
            y = np.tanh(x @ weight.T)
            data[f"{module}.{name}.{kind}.forward.0"] = {
                "input_args": [described(x, framework)],
                "input_kwargs": {},
                "output": [described(y, framework)],
                "parameters": {"weight": described(weight, framework)},
            }
            data[f"{module}.{name}.{kind}.parameters_grad"] = {"weight": [described(gradients[name], framework)]}
            x = y
        part = folder / f"step{step}" / "rank"
        part.mkdir(parents=True)
        header = {"task": "statistics", "level": "L0", "framework": framework, "dump_data_dir": None}
        (part / "dump.json").write_text(json.dumps({**header, "data": data}))
        (part / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    return folder


def test_weights_that_rounding_moves_otherwise_agree(tmp_path: Path) -> None:
    one, other = write(tmp_path / "ms", "mindspore", {}), write(tmp_path / "pt", "pytorch", {})
    assert compare_runs(one, other).status == "agree"
    assert compare_runs(other, one).status == "agree"


@pytest.mark.parametrize("factor", [0.5, 2.0, 1.01])
def test_another_learning_rate_is_the_optimizer(tmp_path: Path, factor: float) -> None:
    mine = write(tmp_path / "ms", "mindspore", dict.fromkeys(NAMES, factor))
    verdict = compare_runs(mine, write(tmp_path / "pt", "pytorch", {}))
    assert verdict.status == "diverged"
    first = verdict.findings[0]
    assert (first.kind, first.step, first.where) == ("optimizer", 1, "a.weight")
    assert first.evidence["parameters"] == [f"{name}.weight" for name in NAMES]
    assert first.evidence["factor"] == pytest.approx(factor, rel=1e-3)


def test_one_weight_that_is_not_moved_is_named(tmp_path: Path) -> None:
    mine = write(tmp_path / "ms", "mindspore", {"e": 0.0})
    verdict = compare_runs(mine, write(tmp_path / "pt", "pytorch", {}))
    assert verdict.status == "diverged"
    first = verdict.findings[0]
    assert (first.kind, first.step, first.evidence["parameters"]) == ("optimizer", 1, ["e.weight"])


def test_a_few_weights_that_are_moved_a_little_otherwise_agree(tmp_path: Path) -> None:
    mine = write(tmp_path / "ms", "mindspore", {"e": 1.02})
    assert compare_runs(mine, write(tmp_path / "pt", "pytorch", {})).status == "agree"
