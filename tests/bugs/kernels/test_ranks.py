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


SHARDED = {
    "reference": "",
    "healthy": "halves",
    "kernel": "wide+encoder-bmm-head-0.1",
    "backward": "fast+encoder-gelu_backward-scale-0.05",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two ranks on each device."""
    return _recorded(tmp_path_factory.mktemp("ranks"), "bfloat16", DEVICES)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a model that is sharded, with bfloat16 copies of its weights: two steps."""
    return _recorded(tmp_path_factory.mktemp("sharded"), "sharded", SHARDED)


def _recorded(folder: Path, precision: str, devices: dict[str, str]) -> Path:
    wanted = [f"{name}={device}" for name, device in devices.items()]
    command = [sys.executable, "-m", "tests.bugs.kernels.ranks", str(folder), "encoder", precision, *wanted]
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


@pytest.mark.parametrize(
    ("device", "first"),
    [
        ("healthy", None),
        ("kernel", "Tensor.__matmul__.0.forward"),
        ("backward", "Functional.gelu.1.backward"),
    ],
)
def test_a_wrong_kernel_is_named_first_in_a_sharded_training(sharded: Path, device: str, first: str | None) -> None:
    verdict = compare_runs(sharded / device, sharded / "reference")
    assert verdict.status == ("agree" if first is None else "diverged")
    found = [(one.entry, one.step) for one in verdict.findings[:1]]
    assert found == ([] if first is None else [(first, 0)])


def test_a_rank_that_is_missing_leaves_the_collective_open(runs: Path) -> None:
    alone = compare_runs(runs / "healthy" / "step0" / "rank0", runs / "reference" / "step0" / "rank0")
    assert alone.status == "agree"
