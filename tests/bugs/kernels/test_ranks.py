"""Collectives on several ranks: what one gives is explained by all that its ranks put in, or it is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from msprobe.diagnose.runs import compare_runs

ROOT = Path(__file__).parents[3]
DEVICES = {
    "reference": "",
    "healthy": "halves",
    "scaled": "wide+encoder-allreduce-scale-0.05",
    "cast": "wide+encoder-allreduce-cast-3",
    "kernel": "wide+encoder-bmm-head-0.1",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two ranks on each device."""
    folder = tmp_path_factory.mktemp("ranks")
    wanted = [f"{name}={device}" for name, device in DEVICES.items()]
    command = [sys.executable, "-m", "tests.bugs.kernels.ranks", str(folder), "encoder", "bfloat16", *wanted]
    subprocess.run(command, check=True, cwd=ROOT, timeout=180, capture_output=True)
    return folder


@pytest.mark.parametrize(
    ("device", "jobs", "first"),
    [
        ("healthy", 2, None),
        ("scaled", 1, "Distributed.all_reduce.0.forward"),
        ("cast", 2, "Distributed.all_reduce.0.forward"),
        ("kernel", 1, "Tensor.__matmul__.0.forward"),
    ],
)
def test_a_wrong_collective_is_named_first(runs: Path, device: str, jobs: int, first: str | None) -> None:
    verdict = compare_runs(runs / device, runs / "reference", jobs=jobs)
    assert verdict.status == ("agree" if first is None else "diverged")
    assert [one.entry for one in verdict.findings[:1]] == ([] if first is None else [first])


def test_a_rank_that_is_missing_leaves_the_collective_open(runs: Path) -> None:
    alone = compare_runs(runs / "healthy" / "step0" / "rank0", runs / "reference" / "step0" / "rank0")
    assert alone.status == "agree"
