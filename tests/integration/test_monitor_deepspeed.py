"""The monitor with the real DeepSpeed, where it is installed, on two gloo ranks: ZeRO 0 to 3, two parameter groups."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs DeepSpeed"),
]
PARAMETERS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


@pytest.mark.parametrize(
    ("stage", "kind"), [(0, "fp32"), (1, "fp32"), (1, "bf16"), (2, "bf16"), (3, "fp32"), (3, "bf16")]
)
def test_parts_of_both_ranks_are_the_whole(tmp_path: Path, stage: int, kind: str) -> None:
    script = Path(__file__).parent / "monitor_deepspeed.py"
    path = os.pathsep.join(place for place in sys.path if place)
    ranks = []
    for rank in range(2):
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        environment.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_SIZE="2")
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000 + stage))
        words = [sys.executable, str(script), str(tmp_path), str(stage), kind]
        ranks.append(
            subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    said = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said[0][-3000:] + said[1][-3000:]

    def squares(quantity: str, step: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for file in (tmp_path / "out").glob(f"*-rank*/{quantity}_{step}-{step}.csv"):
            with file.open(newline="") as opened:
                for row in csv.DictReader(opened):
                    name = row["name"].removeprefix("module.")
                    found[name] = found.get(name, 0.0) + float(row["norm"]) ** 2
        return found

    mean = json.loads((tmp_path / "mean.json").read_text())
    times = 2 if stage == 0 else 1  # each rank has the whole there
    for name, square in squares("grad_reduced", 0).items():
        assert math.sqrt(square / times) == pytest.approx(mean[name], rel=2e-2 if kind == "bf16" else 1e-5)
    for quantity, steps in (("grad_reduced", (0, 1, 2)), ("param_updated", (0, 1, 2)), ("exp_avg", (1, 2))):
        for step in steps:
            assert sorted(squares(quantity, step)) == sorted(PARAMETERS), (quantity, step)
        assert squares(quantity, 3) == {}
    for name, square in squares("exp_avg", 1).items():
        assert math.sqrt(square / times) == pytest.approx(0.1 * mean[name], rel=2e-2 if kind == "bf16" else 1e-5)
    assert sorted(squares("grad_unreduced", 2)) == sorted(PARAMETERS)
