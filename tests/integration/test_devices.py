"""The recorder on an accelerator (a simulated one), beside the same on the CPU: every task and level, with and without
the C extension.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_training import LEVELS, TASKS
from support import forked

from msprobe.store.reader import open_dump

pytestmark = pytest.mark.usefixtures("simulated_device")

EXTENSION = {"with": "1", "without": "0"}
# How the device computes and where it lies: not the same on both.
_OF_A_DEVICE = ("device", "digest", "md5", "source", "dump_data_dir", "row")


def environment(extension: str) -> dict[str, str]:
    places = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "MSPROBE_NATIVE": EXTENSION[extension]}


class Runs:
    """The trainings of one device, with or without the extension."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, dict[str, Any]] = json.loads((folder / "found.json").read_text())

    def dump(self, task: str, level: str, step: int) -> dict[str, Any]:
        (file,) = (self.folder / f"{task}-{level}").glob(f"step{step}/rank*/dump.json")
        data: dict[str, Any] = json.loads(file.read_text())["data"]
        return data

    def files(self, task: str, level: str) -> set[str]:
        root = self.folder / f"{task}-{level}"
        return {str(file.relative_to(root)) for file in root.rglob("*.pt")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, simulated_device: None) -> dict[tuple[str, str], Runs]:
    """On the CPU with the extension only: test_native_and_python has that it records the same without it."""
    found = {}
    for device, extension in (("cpu", "with"), ("sim", "with"), ("sim", "without")):
        folder = tmp_path_factory.mktemp(f"{device}_{extension}")
        script = str(Path(__file__).with_name("device_training.py"))
        done = forked.run(script, device, str(folder), cwd=folder, env=environment(extension), timeout=280)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found[device, extension] = Runs(folder)
    return found


@pytest.fixture(params=[f"{task}-{level}" for task in TASKS for level in LEVELS])
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    task, level = str(request.param).rsplit("-", 1)
    return task, level


@pytest.fixture(params=EXTENSION)
def extension(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_dump_of_the_device_is_that_of_the_cpu(
    runs: dict[tuple[str, str], Runs], case: tuple[str, str], extension: str
) -> None:
    cpu, sim = runs["cpu", "with"], runs["sim", extension]
    for step in range(LEVELS[case[1]]):
        ours, theirs = sim.dump(*case, step), cpu.dump(*case, step)
        assert list(ours) == list(theirs)
        assert ours, "nothing was recorded"
        problems = list(differences(ours, theirs, ""))
        assert problems == []
    assert sim.files(*case) == cpu.files(*case)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_rows_of_the_device_are_those_of_the_cpu(runs: dict[tuple[str, str], Runs], task: str, extension: str) -> None:
    found = []
    for run in (runs["cpu", "with"], runs["sim", extension]):
        part = open_dump(run.folder / f"{task}-mix").part(0)
        tensors = part.tensors()
        found.append((tensors, part.rows.take(tensors.row)))
        part.close()
    (tensors, ours), (_, theirs) = found
    known = ours["squares"] == ours["squares"]
    assert (known == (theirs["squares"] == theirs["squares"])).all()
    # All but those of no elements and those that nobody had written.
    assert known.sum() > 0.9 * len(tensors)
    size = np.sqrt(ours["squares"][known]) + 1e-5
    for name in ("sum", "signed", "blocks"):
        apart = np.abs(ours[name][known] - theirs[name][known])
        assert (apart.reshape(len(size), -1).max(1) <= 2e-2 * size).all(), name
    assert (ours["left_out"][known] == theirs["left_out"][known]).all()


def test_the_weights_are_those_of_a_training_without_recorder(
    runs: dict[tuple[str, str], Runs], case: tuple[str, str], extension: str
) -> None:
    for (_, kind), run in runs.items():
        if kind == extension:
            assert run.found["-".join(case)]["weights"] == run.found[f"off-{case[1]}"]["weights"]


def test_nothing_waits_for_the_device_while_a_step_runs(
    runs: dict[tuple[str, str], Runs], case: tuple[str, str], extension: str
) -> None:
    found = runs["sim", extension].found
    assert found[f"off-{case[1]}"]["waits"] == 0
    assert found["-".join(case)]["where"] == {}


def differences(ours: Any, theirs: Any, place: str) -> Iterator[str]:
    """Where two records differ by more than how a device rounds."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in ours if key not in _OF_A_DEVICE]
        if keys != [key for key in theirs if key not in _OF_A_DEVICE]:
            yield f"{place}: {list(ours)} and {list(theirs)}"
            return
        for key in keys:
            yield from differences(ours[key], theirs[key], f"{place}/{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{place}/{number}")
    elif isinstance(ours, float) and isinstance(theirs, float):
        same_kind = math.isnan(ours) == math.isnan(theirs) and math.isinf(ours) == math.isinf(theirs)
        if not same_kind or (math.isfinite(ours) and abs(ours - theirs) > 2e-3 * abs(theirs) + 1e-5):
            yield f"{place}: {ours} and {theirs}"
    elif type(ours) is not type(theirs) or ours != theirs:
        yield f"{place}: {ours!r} and {theirs!r}"


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_ranks_on_the_device_are_recorded_as_on_the_cpu(tmp_path: Path, level: str) -> None:
    script = str(Path(__file__).with_name("device_ranks.py"))
    for device in ("cpu", "sim"):
        ranks = [
            forked.start(
                script, device, str(tmp_path), level, cwd=tmp_path, env={**environment("with"), "RANK": str(rank)}
            )
            for rank in range(2)
        ]
        forked.end_of_all(ranks, 200)
    for rank in range(2):
        ours, theirs = (
            json.loads((tmp_path / f"{device}_{level}/step0/rank{rank}/dump.json").read_text())["data"]
            for device in ("sim", "cpu")
        )
        assert list(ours) == list(theirs)
        assert level == "L0" or "Distributed.all_reduce.3.forward" in ours
        assert list(differences(ours, theirs, "")) == []


def test_the_pre_check_and_lockstep_judge_the_device(tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("device_judges.py"))
    done = forked.run(script, str(tmp_path), cwd=tmp_path, env=environment("with"), timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())

    assert {status for one in found["checked"].values() for status in one} <= {"pass", "SKIP"}
    assert all(one[0] == "error" for name, one in found["fault"].items() if name != "argmax")
    assert found["healthy"]["status"] == "agree"
    assert found["healthy"]["counts"]["paired"]
    assert (found["wrong"]["status"], found["wrong"]["kinds"]) == ("diverged", ["loss_scale"])
