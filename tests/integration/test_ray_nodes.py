"""Two local nodes of Ray, of which one is lost in the middle: its jobs are done again, and the answer is the same."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hand_made import write_part

HERE = Path(__file__).resolve().parent
BENCH = HERE.parents[1] / "bench/scale/run.py"
_RANKS = 12
_CALLS = 1500


def leaf(value: float) -> dict[str, Any]:
    statistics = {"Max": value, "Min": -value, "Mean": value / 2, "Norm": 2 * value}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 4], **statistics}


def write_dump(folder: Path, bad_rank: int | None) -> None:
    """One call of a rank makes a NaN, which an all_reduce takes to the others."""
    for rank in range(_RANKS):
        data: dict[str, Any] = {}
        value = 1.0 + rank / 100
        for number in range(_CALLS):
            made = float("nan") if rank == bad_rank and number == _CALLS - 10 else value + number / 1000
            data[f"Torch.add.{number}.forward"] = {
                "input_args": [leaf(value)],
                "input_kwargs": {},
                "output": [leaf(made)],
            }
            value = made
        end = float("nan") if bad_rank is not None else 3.0
        data["Distributed.all_reduce.0.forward"] = {
            "input_args": [leaf(value)],
            "input_kwargs": {},
            "output": [leaf(end)],
        }
        write_part(folder / "step0" / f"rank{rank}", data)


@pytest.mark.slow  # a cluster takes ten seconds to start, and each loss of a node some more to be noticed
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray has no wheel for this Python")
def test_a_node_that_is_lost_costs_its_jobs_alone(tmp_path: Path) -> None:
    write_dump(tmp_path / "bad", 5)
    write_dump(tmp_path / "healthy", None)
    random = np.random.default_rng(0)
    weights = {f"layer.{number}": random.standard_normal((64, 64), np.float32) for number in range(600)}
    np.savez(tmp_path / "one.npz", **weights)
    np.savez(tmp_path / "two.npz", **weights | {"layer.77": weights["layer.77"] + 1})
    command = [sys.executable, str(HERE / "ray_nodes.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert {name: one["same"] for name, one in told.items()} == dict.fromkeys(told, True)
    assert any(one["begun"] for one in told.values()), "no node was lost while it worked"


@pytest.mark.slow  # a cluster takes ten seconds to start
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray has no wheel for this Python")
def test_the_bench_of_many_ranks_is_right_on_a_cluster(tmp_path: Path) -> None:
    sizes = ["--ranks", "8", "--records", "100", "--commands", "compare,check", "--folder", str(tmp_path)]
    command = [sys.executable, str(BENCH), *sizes, "--jobs", "2", "--engine", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines()[1:]}
    assert lines == {"compare": "right", "check": "right"}, done.stdout
