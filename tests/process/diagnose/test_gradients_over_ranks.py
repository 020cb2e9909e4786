"""Gradients that a wrapper averages over ranks, where no call is recorded: they are those of all backward passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msprobe.diagnose.runs import compare_runs

ROOT = Path(__file__).parents[3]
WAYS = "reference", "healthy", "synchronised", "undivided", "dropped"
BY_HAND = "by_hand-reference", "by_hand-healthy", "by_hand-undivided"
STAGED = "staged-reference", "staged-healthy", "staged-scaled"
EXCHANGED = "exchanged-reference", "exchanged-synchronised", "exchanged-each", "exchanged-dropped"
SHARDED = "sharded-reference", "sharded-healthy", "sharded-unclipped"


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two ranks of each way."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [
        sys.executable,
        "-m",
        "process.diagnose.two_ranks",
        str(folder),
        request.param,
        *WAYS,
        *SHARDED,
        *EXCHANGED,
        *BY_HAND,
        *STAGED,
    ]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, cwd=ROOT, timeout=300, env={**os.environ, "PYTHONPATH": paths})
    return folder


@pytest.mark.parametrize("way", ["healthy", "synchronised"])
def test_what_comes_to_the_same_agrees(runs: Path, way: str) -> None:
    verdict = compare_runs(runs / way, runs / "reference")
    assert verdict.status == "agree", verdict.findings


@pytest.mark.parametrize("is_swapped", [False, True], ids=["candidate", "reference"])
@pytest.mark.parametrize("way", ["undivided", "dropped"])
def test_gradients_that_one_side_puts_together_otherwise(runs: Path, way: str, is_swapped: bool) -> None:
    """Clipping hides a factor of all gradients, and an optimizer that divides by their size."""
    sides = runs / way, runs / "reference"
    verdict = compare_runs(*(sides[::-1] if is_swapped else sides))
    first = verdict.findings[0]
    assert (verdict.status, first.kind) == ("diverged", "parameter_gradient"), verdict.findings
    assert first.entry == "Torch._foreach_norm.0.forward", first


def test_shards_of_gradients_that_are_as_far_apart_as_these_agree(runs: Path) -> None:
    verdict = compare_runs(runs / "sharded-healthy", runs / "sharded-reference")
    assert verdict.status == "agree", verdict.findings


def test_shards_of_gradients_that_one_side_changes_are_named(runs: Path) -> None:
    """No call was recorded that clips, and none that shares the gradients out."""
    verdict = compare_runs(runs / "sharded-unclipped", runs / "sharded-reference")
    first = verdict.findings[0]
    assert (verdict.status, first.kind, first.entry) == ("diverged", "gradient", "Optimizer.AdamW.0.forward")


@pytest.mark.parametrize("way", ["synchronised", "each"])
def test_shards_that_are_exchanged_after_each_pass_agree(runs: Path, way: str) -> None:
    verdict = compare_runs(runs / f"exchanged-{way}", runs / "exchanged-reference")
    assert verdict.status == "agree", verdict.findings


def test_an_exchange_that_is_dropped_is_named_where_the_sum_is_taken(runs: Path) -> None:
    verdict = compare_runs(runs / "exchanged-dropped", runs / "exchanged-reference")
    assert verdict.status == "diverged"


def test_of_one_rank_alone_nothing_is_said(runs: Path) -> None:
    sides = (runs / way / "step0" / "rank0" for way in ("undivided", "reference"))
    assert compare_runs(*sides).status == "agree"


@pytest.mark.parametrize("kind", ["by_hand", "staged"])
def test_ranks_that_are_as_far_apart_as_devices_agree(runs: Path, kind: str) -> None:
    verdict = compare_runs(runs / f"{kind}-healthy", runs / f"{kind}-reference")
    assert verdict.status == "agree", verdict.findings


def test_what_one_side_alone_scales_comes_before_what_builds_up(runs: Path) -> None:
    verdict = compare_runs(runs / "by_hand-undivided", runs / "by_hand-reference")
    first = verdict.findings[0]
    assert (verdict.status, first.entry) == ("diverged", "Tensor.__itruediv__.0.forward"), verdict.findings


def test_stages_with_parameters_of_one_name_are_no_replicas(runs: Path) -> None:
    verdict = compare_runs(runs / "staged-scaled", runs / "staged-reference")
    first = verdict.findings[0]
    assert (first.entry, first.rank) == ("Tensor.__truediv__.0.forward", 1), verdict.findings
