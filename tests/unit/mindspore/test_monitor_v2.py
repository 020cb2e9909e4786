"""``TrainerMonitorV2`` of 26.2.0 on a training of MindSpore."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from unit.mindspore.test_monitor import PARAMETERS, Training  # noqa: E402

from msprobe.core.monitor_v2.trainer import TrainerMonitorV2  # noqa: E402


def test_a_training_is_measured_and_stays_the_same_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    enabled = {name: {"enabled": True} for name in ("module", "weight_grad", "optimizer", "param")}
    folder = tmp_path / "a" / "b"
    path.write_text(json.dumps({"framework": "ms", "output_dir": str(folder), "monitors": enabled}))
    monitor = TrainerMonitorV2(path)

    def attach(net: Any, optimizer: Any) -> None:
        monitor.start(model=net, optimizer=optimizer)

    watched = Training().run(attach)
    monitor.stop()
    plain = Training().run(lambda net, optimizer: None)
    assert all(np.array_equal(a, b) for a, b in zip(watched, plain, strict=True))
    assert {one.name for one in folder.rglob("*.csv")} == {f"{one}_step{k}-{k}.csv" for one in enabled for k in (0, 1)}
    with open(folder / "rank_0" / "weight_grad_step0-0.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["vpp_stage"] for row in rows} == {"0"}
    assert sorted(row["module_name"] for row in rows if row["scope"] == "reduced") == sorted(PARAMETERS)
    assert sorted(row["module_name"] for row in rows if row["scope"] == "unreduced") == sorted(PARAMETERS)
