"""Cells of a compiled graph against the same cells of the dynamic graph, both of MindSpore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.core import compare_runs


def tensor(top: float) -> dict[str, Any]:
    return {
        "type": "mindspore.Tensor",
        "dtype": "Float32",
        "shape": [4],
        "Max": top,
        "Min": -top,
        "Mean": top / 4,
        "Norm": 2 * top,
    }


def dump(folder: Path, average: float, gamma: float, static: bool) -> Path:
    """One pass of a batch norm. A static graph shows its averages before it, and no line of the program."""
    name = "Cell.bn.BatchNorm2d.forward.0"
    record = {
        "input_args": [tensor(2.0)],
        "input_kwargs": {},
        "output": [tensor(1.0)],
        "parameters": {"gamma": tensor(gamma), "moving_mean": tensor(average)},
    }
    rank = folder / "step0" / "rank"
    rank.mkdir(parents=True)
    head = {"task": "statistics", "level": "L0", "framework": "mindspore", "dump_data_dir": None}
    (rank / "dump.json").write_text(json.dumps({**head, "data": {name: record}}))
    (rank / "construct.json").write_text(json.dumps({name: None}))
    stacks = {} if static else {"0": [[name], ["File train.py, line 3, in construct, \n self.bn(x)"]]}
    (rank / "stack.json").write_text(json.dumps(stacks))
    return folder


@pytest.mark.parametrize("static_first", [True, False])
def test_averages_before_and_behind_a_pass_are_no_difference(tmp_path: Path, static_first: bool) -> None:
    static = dump(tmp_path / "static", 0.0, 1.0, True)
    dynamic = dump(tmp_path / "dynamic", 0.5, 1.0, False)
    pair = (static, dynamic) if static_first else (dynamic, static)
    assert compare_runs(*pair).status == "agree"


def test_other_parameters_still_count(tmp_path: Path) -> None:
    verdict = compare_runs(dump(tmp_path / "static", 0.0, 1.5, True), dump(tmp_path / "dynamic", 0.5, 1.0, False))
    (finding,) = verdict.findings
    assert finding.kind == "initial_weights"
    assert 'parameter "bn.gamma"' in finding.message


def test_averages_of_two_dynamic_graphs_still_count(tmp_path: Path) -> None:
    verdict = compare_runs(dump(tmp_path / "one", 0.1, 1.0, False), dump(tmp_path / "other", 0.5, 1.0, False))
    assert verdict.status == "diverged"
