"""The monitor with the real Megatron core, where it is installed, on two gloo ranks."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pytest
from monitored_ranks import has_megatron, launch, rows_of, squares_in

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_megatron(), reason="needs Megatron's core"),
]
PARAMETERS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


CASES = [f"{kind}-{dtype}" for kind in ("plain", "distributed") for dtype in ("fp32", "bf16", "fp16")]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what all cases have written."""
    folder = tmp_path_factory.mktemp("ranks")
    for case in CASES:
        (folder / case).mkdir()
    launch("monitor_megatron.py", folder, CASES)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_the_mean_of_both_ranks_unscaled_and_not_clipped(ended: Path, case: str) -> None:
    kind, dtype = case.split("-")
    squares = partial(squares_in, ended / case)
    close = 1e-5 if dtype == "fp32" else 2e-2
    mean = json.loads((ended / case / "mean.json").read_text())
    times = 1 if kind == "distributed" else 2  # each rank has the whole in the plain one
    assert sorted(squares("grad_reduced", 0)) == sorted(PARAMETERS)
    for name, square in squares("grad_reduced", 0).items():
        assert math.sqrt(square / times) == pytest.approx(mean[name], rel=close)
    for quantity, steps in (("grad_reduced", (0, 1, 2)), ("param_updated", (0, 1, 2)), ("exp_avg", (1, 2))):
        for step in steps:
            assert sorted(squares(quantity, step)) == sorted(PARAMETERS), (quantity, step)
        assert squares(quantity, 3) == {}
    clipped = 0.03 / math.sqrt(sum(one * one for one in mean.values()))
    for name, square in squares("exp_avg", 1).items():
        assert math.sqrt(square / times) == pytest.approx(0.1 * clipped * mean[name], rel=2 * close)
    assert sorted(squares("grad_unreduced", 2)) == sorted(PARAMETERS)
    for step in range(3):
        # Three modules, the model and its wrapper, input and output, in two micro steps, in both ranks.
        assert len(rows_of(ended / case, "actv", step)) == 5 * 2 * 2 * 2
