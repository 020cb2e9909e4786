"""Files of the monitor, against the published package: theirs to the byte by our writer, ours read by their tools."""

from __future__ import annotations

import ast
import csv
import json
import math
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dumps import HERE
from process.monitor.test_sinks import scalars_in
from reference_env import clean_environment, command_of, make, python_of
from unit.monitor.runs import begun, metrics, row, write_run

from msprobe.monitor.alerts import AlertSink, read_alert_settings
from msprobe.monitor.alerts.analysis import first_alerts, read_alerts
from msprobe.monitor.convert.csv_to_database import csv_to_database
from msprobe.monitor.convert.csv_to_tensorboard import csv2tensorboard_by_step
from msprobe.monitor.csv_text import RowText, header
from msprobe.monitor.measurements import Row, StepMetrics
from msprobe.monitor.sinks.csv import CsvSink

OPS = ["min", "max", "mean", "norm", "nans", "zeros"]
ALL = {
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "ops": OPS,
}


def monitored(version: str, base: Path, steps: int, micro_steps: int, **config: Any) -> Path:
    """The output folder of a training under the published monitor."""
    make(version)
    words = [str(python_of(version)), str(HERE / "monitor_run.py"), str(base), json.dumps({"targets": {}, **config})]
    subprocess.run([*words, str(steps), str(micro_steps)], check=True, env=clean_environment(), capture_output=True)
    return base


def asked(version: str, program: str) -> None:
    """Run a line of Python with the published package."""
    make(version)
    done = subprocess.run(
        [str(python_of(version)), "-c", program], env=clean_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def cell(text: str) -> float | int:
    return float("nan") if text == "nan" else int(text) if text.lstrip("-").isdigit() else float(text)


def written_again(path: Path, digits: int) -> str:
    """The text of a csv file, read with the standard library and written by us."""
    head, *lines = list(csv.reader(path.read_text().splitlines()))
    micro = "micro_step" in head
    first = 4 if micro else 3
    text = RowText(digits, micro)
    made = header(head[first:-2], micro)
    for line in lines:
        shape = None if line[-2] == "nan" else tuple(ast.literal_eval(line[-2]))
        dtype = None if line[-1] == "nan" else line[-1]
        values = tuple(cell(word) for word in line[first:-2])
        made += text.lines(
            int(line[2]), [Row(int(line[0]), line[1], int(line[3]) if micro else None, values, shape, dtype)]
        )
    return made


@pytest.mark.parametrize("digits", [6, 12])
def test_their_files_are_ours_to_the_byte(version: str, tmp_path: Path, digits: int) -> None:
    base = monitored(version, tmp_path / "runs", 3, 2, **ALL, ndigits=digits)
    files = [path for path in base.glob("*/*.csv") if path.name != "stack_info.csv"]
    assert len(files) >= 20
    for path in files:
        assert written_again(path, digits) == path.read_bytes().decode()


def test_both_write_the_same_event_files(tmp_path: Path) -> None:
    base = monitored("8.1.1", tmp_path / "runs", 4, 3, **ALL)
    asked(
        "8.1.1",
        "from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step\n"
        f"csv2tensorboard_by_step({str(base)!r}, output_dirpath={str(tmp_path / 'theirs')!r})",
    )
    csv2tensorboard_by_step(base, output_dirpath=tmp_path / "ours")
    kinds = sorted(path.name for path in (tmp_path / "theirs/rank0").iterdir())
    assert sorted(path.name for path in (tmp_path / "ours/rank0").iterdir()) == kinds
    for kind in kinds:
        theirs, ours = (scalars_in(tmp_path / whose / "rank0" / kind) for whose in ("theirs", "ours"))
        assert ours.keys() == theirs.keys()
        for tag, values in ours.items():
            assert str(values) == str(theirs[tag]), tag


def tables_of(path: Path) -> dict[str, set[Any]]:
    """What the tables say, without their running numbers."""
    data = (
        "SELECT rank, step, target_name, vpp_stage, micro_step, metric_name, {} FROM trend_data"
        " JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id)"
    )
    tags = (
        "SELECT tag_name, category, metric_name, target_name, micro_step FROM tag_target_mapping"
        " JOIN monitoring_tags USING (tag_id) JOIN monitoring_metrics USING (metric_id)"
        " JOIN monitoring_targets USING (target_id)"
    )
    with sqlite3.connect(path) as base:
        columns = [name for _, name, *_ in base.execute("PRAGMA table_info(trend_data)")][4:]
        known = [name for _, name, *_ in base.execute("PRAGMA table_info(global_stats)")]
        numbers = dict(zip(known, base.execute("SELECT * FROM global_stats").fetchone(), strict=True))
        return {
            "columns": set(columns),
            "data": set(base.execute(data.format(", ".join(sorted(columns))))),
            "tags": set(base.execute(tags)),
            "extremes": {(name, numbers[name]) for name in ("min_step", "max_step", "max_rank")},
            "statistics": {(name, frozenset(numbers[name].split(","))) for name in known[3:]},
        }


@pytest.mark.parametrize("micro_step", [True, False])
def test_both_write_the_same_database(tmp_path: Path, micro_step: bool) -> None:
    base = monitored("26.2.0", tmp_path / "runs", 3, 2, **ALL)
    words = [str(command_of("26.2.0")), "data2db", "--data", str(base), "--db", str(tmp_path / "theirs")]
    words += ["--micro_step", str(micro_step).lower()]
    subprocess.run(words, check=True, env=clean_environment(), capture_output=True)
    ours = csv_to_database(base, tmp_path / "ours", micro_step=micro_step).path
    theirs = tmp_path / "theirs/monitor_data.trend.db"
    assert tables_of(ours) == tables_of(theirs)


def our_steps() -> list[StepMetrics]:
    return [
        metrics(
            step,
            {
                "actv": [row("fc1.input", 1.5 + step, micro=micro) for micro in range(2)],
                "grad_reduced": [row("fc1.weight", 2.5 * (100 if step == 3 else 1)), row("fc1.bias", math.nan)],
            },
        )
        for step in range(5)
    ]


def test_their_tools_read_our_files(tmp_path: Path) -> None:
    write_run(begun(tmp_path / "runs", steps_per_file=2), our_steps())
    asked(
        "8.1.1",
        "from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step\n"
        f"csv2tensorboard_by_step({str(tmp_path / 'runs')!r}, output_dirpath={str(tmp_path / 'tb')!r})",
    )
    assert scalars_in(tmp_path / "tb/rank0/actv")["vp0:fc1.input:micro1/norm"] == [(s, 1.5 + s) for s in range(5)]
    words = [str(command_of("26.2.0")), "data2db", "--data", str(tmp_path / "runs"), "--db", str(tmp_path / "theirs")]
    subprocess.run(words, check=True, env=clean_environment(), capture_output=True)
    ours = csv_to_database(tmp_path / "runs", tmp_path / "ours").path
    assert tables_of(ours) == tables_of(tmp_path / "theirs/monitor_data.trend.db")


def test_changed_operators_are_read_by_their_tools(tmp_path: Path) -> None:
    steps = [
        metrics(step, {"grad_reduced": [row("w", *([float(step)] * (1 + step // 2)))]}, OPS[: 1 + step // 2])
        for step in range(4)
    ]
    write_run(begun(tmp_path / "runs", steps_per_file=4), steps)
    asked(
        "8.1.1",
        "from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step\n"
        f"csv2tensorboard_by_step({str(tmp_path / 'runs')!r}, output_dirpath={str(tmp_path / 'tb')!r})",
    )
    found = scalars_in(tmp_path / "tb/rank0/grad_reduced")
    assert found["vp0:w/max"] == [(2, 2.0), (3, 3.0)]
    assert found["vp0:w/min"] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]


def test_alerts_are_read_by_both(tmp_path: Path) -> None:
    rules = [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}, {"rule_name": "AnomalyNan"}]
    theirs = monitored(
        "8.1.1", tmp_path / "runs", 6, 1, wg_distribution=True, ops=["norm"], alert={"rules": rules, "dump": True}
    )
    records = read_alerts(theirs / "anomaly_detected")
    spike = first_alerts(records, 8, [3])
    assert [record["tag_name"] for record in spike.values()][-1] == "0:fc2.bias/rank0/post_grad"
    nan = next(iter(first_alerts(records, 1, [4]).values()))
    assert nan["tag_name"].startswith("0:fc1.weight/")
    run = begun(tmp_path / "ours")
    write_run(run, our_steps(), AlertSink(read_alert_settings({"rules": rules, "dump": True})), CsvSink())
    folder = tmp_path / "ours/anomaly_detected"
    words = [str(python_of("8.1.1")), "-m", "msprobe.core.monitor.anomaly_processor", "-d", str(folder), "-k", "3"]
    subprocess.run(words, check=True, env=clean_environment(), capture_output=True)
    found = json.loads((folder / "anomaly_analyse.json").read_text())
    # It makes keys anew, without the statistic.
    assert list(found.values()) == list(first_alerts(read_alerts(folder), 3).values())
