"""Checkpoints of the real DeepSpeed, where it is installed, against the weights that its own script makes of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from monitored_ranks import launch

from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs DeepSpeed"),
]
STAGES = ["0", "1", "2", "3"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the checkpoints of all stages."""
    folder = tmp_path_factory.mktemp("ranks")
    launch("checkpoint_deepspeed.py", folder, STAGES)
    return folder


@pytest.mark.parametrize("stage", STAGES)
def test_slices_are_the_weights_that_deepspeed_makes_of_them(saved: Path, stage: str) -> None:
    found = compare_checkpoints(CheckpointRequest(str(saved / stage), str(saved / stage / "whole.pt")))
    assert len(found.second.weights) == 7
    assert {row.kind for row in found.rows} == {"equal"}, found.rows[:3]
    assert found.first.iteration == 3
    if stage != "0":
        moments = {name.removesuffix(".exp_avg_sq") for name in found.first.optimizer if name.endswith(".exp_avg_sq")}
        assert moments == {name for name in found.second.weights if "running" not in name}
