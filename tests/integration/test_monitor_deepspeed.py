"""The monitor with the real DeepSpeed, where it is installed, on two gloo ranks: ZeRO 0 to 3, two parameter groups."""

from __future__ import annotations

import importlib.util
import json
import math
from functools import partial
from pathlib import Path

import pytest
from monitored_ranks import launch, rows_of, squares_in

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs DeepSpeed"),
]
PARAMETERS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


CASES = ["0-fp32", "0-bf16", "1-fp32", "1-bf16", "1-fp16", "2-bf16", "2-fp16", "3-fp32", "3-bf16", "3-fp16"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what all cases have written."""
    folder = tmp_path_factory.mktemp("ranks")
    for case in CASES:
        (folder / case).mkdir()
    launch("monitor_deepspeed.py", folder, CASES)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_parts_of_both_ranks_are_the_whole(ended: Path, case: str) -> None:
    stage, kind = case.split("-")
    squares = partial(squares_in, ended / case)
    mean = json.loads((ended / case / "mean.json").read_text())
    times = 2 if stage == "0" else 1  # each rank has the whole there
    for name, square in squares("grad_reduced", 0).items():
        assert math.sqrt(square / times) == pytest.approx(mean[name], rel=1e-5 if kind == "fp32" else 2e-2)
    for quantity, steps in (("grad_reduced", (0, 1, 2)), ("param_updated", (0, 1, 2)), ("exp_avg", (1, 2))):
        for step in steps:
            assert sorted(squares(quantity, step)) == sorted(PARAMETERS), (quantity, step)
        assert squares(quantity, 3) == {}
    for name, square in squares("exp_avg", 1).items():
        assert math.sqrt(square / times) == pytest.approx(0.1 * mean[name], rel=1e-5 if kind == "fp32" else 2e-2)
    assert sorted(squares("grad_unreduced", 2)) == sorted(PARAMETERS)
    for step in range(3):
        # Three modules, the model and its wrapper, input and output, in two micro steps, in both ranks.
        assert len(rows_of(ended / case, "actv", step)) == 5 * 2 * 2 * 2
