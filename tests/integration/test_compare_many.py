"""``msprobe compare`` of many ranks at once, and with a second healthy run: the same words and files as without."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.command_line import call
from torch import nn
from unit.diagnose.training import Plan, train

from msprobe.cli import main
from msprobe.core import compare_runs
from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.pytorch import PrecisionDebugger, compare_distributed
from msprobe.report.verdict_file import verdict_bytes

# As in tests/process/test_engine.py: Ray has a process of its own.
ON_RAY = "MSPROBE_TEST_ON_RAY"
NO_RAY = importlib.util.find_spec("ray") is None
WITHOUT_RAY = pytest.mark.skipif(ON_RAY not in os.environ, reason="run by test_all_this_holds_on_ray")
AT_ONCE = [("local", 2), pytest.param("ray", 2, marks=WITHOUT_RAY)]


@pytest.fixture(scope="module", autouse=True)
def _end_ray() -> Iterator[None]:
    yield
    if "ray" in sys.modules:
        import ray

        ray.shutdown()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two trainings of four ranks and three steps; two ranks of the candidate have mistakes of their own."""
    folder = tmp_path_factory.mktemp("ranks")
    healthy = Plan(steps=3)
    scaled = Plan(steps=3, results={"blocks.1.linear": lambda array: array * np.float32(1.01)})
    other = Plan(steps=3, arguments={"blocks.1.mul": {1: 0.25}})
    return train(folder / "one", healthy, scaled, healthy, other), train(folder / "other", *[healthy] * 4)


@pytest.mark.parametrize(("engine", "jobs"), AT_ONCE)
def test_the_verdict_is_that_of_one_rank_after_the_other(
    ranks: tuple[Path, Path], engine: Any, jobs: int, tmp_path: Path
) -> None:
    told: list[str] = []
    expected = compare_runs(*ranks)
    found = compare_runs(*ranks, told.append, jobs=jobs, engine=engine)
    assert expected.status == "diverged"
    assert len(expected.findings) > 1
    assert verdict_bytes(found) == verdict_bytes(expected)
    assert told == [said("job-of-jobs", f"step 0, rank {rank}", rank + 1, 12) for rank in range(4)]


@pytest.mark.parametrize(("engine", "jobs"), AT_ONCE)
def test_steps_that_agree_are_all_compared(ranks: tuple[Path, Path], engine: Any, jobs: int, tmp_path: Path) -> None:
    again = train(tmp_path / "again", *[Plan(steps=3)] * 4)
    expected = compare_runs(again, ranks[1])
    assert expected.status == "agree"
    assert expected.summary["steps_compared"] == 3
    assert verdict_bytes(compare_runs(again, ranks[1], jobs=jobs, engine=engine)) == verdict_bytes(expected)


@pytest.mark.parametrize(("engine", "jobs"), AT_ONCE)
def test_the_command_writes_the_same_files(
    ranks: tuple[Path, Path], engine: str, jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", *map(str, ranks), "--csv", "--html", "--all-steps"]
    assert main([*words, "-o", str(tmp_path / "serial")]) == 1
    serial = capsys.readouterr().out
    assert main([*words, "-o", str(tmp_path / "many"), "--jobs", str(jobs), "--engine", engine]) == 1
    assert capsys.readouterr().out.replace("many", "serial") == serial
    files = sorted(path.name for path in (tmp_path / "serial").iterdir())
    assert sum(name.endswith(".csv") for name in files) == 12
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == files
    for name in files:
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "serial" / name).read_bytes()


def test_an_error_of_one_rank_is_one_line(ranks: tuple[Path, Path], tmp_path: Path) -> None:
    broken = train(tmp_path / "broken", *[Plan(steps=1)] * 4)
    (file,) = broken.glob("step0/rank2/dump.json")
    file.write_text("{")
    with pytest.raises(MsprobeError) as serial:
        compare_runs(broken, ranks[1])
    with pytest.raises(MsprobeError) as many:
        compare_runs(broken, ranks[1], jobs=2)
    assert (type(many.value), many.value.message) == (type(serial.value), serial.value.message)
    # The command goes on with the ranks that can be read.
    done = call("compare", broken, ranks[1], "--jobs", "2")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(f"AGREE{said('share-read')}: ")
    assert said("cannot-be-read", "candidate: step 0, rank 2", "") in " ".join(done.stdout.split())
    assert "1 step, 3 ranks" in done.stdout


def test_ranks_of_the_sheet(ranks: tuple[Path, Path], tmp_path: Path) -> None:
    one, other = (folder / "step0" for folder in ranks)
    compare_distributed(one, other, tmp_path / "serial")
    compare_distributed(one, other, tmp_path / "many", jobs=2)
    for ending in ("xlsx", "txt"):
        files = [sorted((tmp_path / folder).glob(f"*.{ending}")) for folder in ("serial", "many")]
        assert len(files[0]) == len(files[1]) == 4
        for left, right in zip(*files, strict=True):
            assert left.name.rpartition("_")[0] == right.name.rpartition("_")[0]
            if ending == "txt":
                assert left.read_bytes() == right.read_bytes()


def test_options_may_stand_between_the_dumps(ranks: tuple[Path, Path], tmp_path: Path) -> None:
    done = call("compare", ranks[0], "--html", ranks[1], "-o", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["verdict.html", "verdict.json"]


# --- a second healthy run -------------------------------------------------------------------------------------------


def record(folder: Path, off: float) -> Path:
    """Record two steps of a small network; its inputs are off by that much, relatively."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="mix")
    for _ in range(2):
        x = torch.randn(16, 8, generator=generator)
        x = x * (1 + off * torch.randn(x.shape, generator=torch.Generator().manual_seed(2)))
        with debugger.recording(model):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()
    PrecisionDebugger.reset()
    return folder


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trainings")
    sizes = {"reference": 0.0, "near": 3e-4, "healthy": 3e-4 * 1.2, "far": 3e-2}
    return {name: record(folder / name, off) for name, off in sizes.items()}


def test_no_more_than_a_healthy_run_differs_by_agrees(trainings: dict[str, Path]) -> None:
    alone = call("compare", trainings["near"], trainings["reference"])
    assert not alone.stdout.startswith("AGREE"), "without the healthy run it does not"
    assert alone.returncode == 1
    with_noise = call("compare", trainings["near"], trainings["reference"], "--noise", trainings["healthy"])
    assert with_noise.returncode == 0, with_noise.stdout
    assert with_noise.stdout.startswith("AGREE")


def test_more_than_that_does_not(trainings: dict[str, Path]) -> None:
    done = call("compare", trainings["far"], trainings["reference"], "--noise", trainings["healthy"])
    assert done.returncode == 1
    assert done.stdout.startswith("DIVERGED at step 0")


def test_noise_counts_for_each_rank(tmp_path: Path) -> None:
    def off(factor: float) -> Plan:
        return Plan(results={"blocks.1.linear": lambda array: array * np.float32(factor)})

    one = train(tmp_path / "one", off(1.0001), off(1.0001))
    other = train(tmp_path / "other", Plan(), Plan())
    noise = train(tmp_path / "noise", Plan(noise=1e-4), Plan())
    assert compare_runs(one, other).findings[0].rank == 0
    for jobs in (1, 2):
        assert compare_runs(one, other, noise=noise, jobs=jobs).findings[0].rank == 1


@pytest.mark.parametrize(
    ("noise", "told"),
    [
        ("{folder}/nowhere", "does not exist"),
        ("{folder}", "holds no dump"),
        ("{folder}/config.json", "must be named dump.json"),
        ("{reference}", "is compared itself"),
        ("{folder}/later", "no step and rank in common with the reference"),
    ],
)
def test_a_noise_dump_that_is_none(trainings: dict[str, Path], tmp_path: Path, noise: str, told: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    if noise.endswith("later"):
        train(tmp_path / "later", Plan(first_step=7))
    path = noise.format(folder=tmp_path, reference=trainings["reference"])
    done = call("compare", trainings["near"], trainings["reference"], "--noise", path, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert told in line
    assert path in line
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(NO_RAY, reason="ray has no wheel for this Python or is not installed")
@pytest.mark.skipif(ON_RAY in os.environ, reason="these are the tests on Ray")
@pytest.mark.slow  # starting Ray takes long; test_engine.py does it each time
def test_all_this_holds_on_ray() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "ray", __file__]
    done = subprocess.run(words, env=os.environ | {ON_RAY: "1"}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
