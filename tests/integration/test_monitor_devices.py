"""The monitor on an accelerator (a simulated one), beside the same on the CPU, and steps that alerts have recorded."""

from __future__ import annotations

import csv
import math
import os
import sys
from pathlib import Path

import pytest
from support import forked

pytestmark = pytest.mark.usefixtures("simulated_device")

_Rows = dict[tuple[str, str, str], dict[str, str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, simulated_device: None) -> dict[str, Path]:
    places = os.pathsep.join(path for path in sys.path if path)
    found = {}
    for device in ("cpu", "sim"):
        found[device] = folder = tmp_path_factory.mktemp(device)
        script = str(Path(__file__).with_name("device_monitored.py"))
        environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
        done = forked.run(script, device, str(folder), cwd=folder, env=environment)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return found


def rows(folder: Path) -> _Rows:
    found: _Rows = {}
    for file in (folder / "out").glob("*/*.csv"):
        with file.open(newline="") as opened:
            for row in csv.DictReader(opened):
                found[file.name.rpartition("_")[0], row["step"], row["name"] + row.get("micro_step", "")] = row
    return found


def test_the_numbers_of_a_device_are_those_of_the_cpu(trained: dict[str, Path]) -> None:
    cpu, sim = rows(trained["cpu"]), rows(trained["sim"])
    assert len(cpu) > 100
    assert cpu.keys() == sim.keys()
    for key, row in cpu.items():
        for op in ("min", "max", "mean", "norm", "nans"):
            mine, theirs = (float(one[op]) if one[op] else math.nan for one in (row, sim[key]))
            assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6, nan_ok=True), (key, op)


def test_steps_of_alerts_are_recorded_on_both(trained: dict[str, Path]) -> None:
    for folder in trained.values():
        dumps = folder.glob("out/*/behind_alert/*/*/dump.json")
        assert sorted(dump.parent.parent.name for dump in dumps) == ["step3", "step4", "step5"]
