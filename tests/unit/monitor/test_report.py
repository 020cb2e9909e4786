"""The page of a run, where two runs part, and the view in the terminal."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.coded_texts import mentions
from support.command_line import call
from unit.monitor.runs import PARAMETERS, begun, gradients, metrics, row, write_run

from msprobe import log
from msprobe.cli.commands import family
from msprobe.monitor.alerts import AlertSink, read_alert_settings
from msprobe.monitor.band import departures
from msprobe.monitor.csv_files import QuantityTable
from msprobe.monitor.files import find_runs
from msprobe.monitor.measurements import Row, StepMetrics
from msprobe.monitor.report.page import render
from msprobe.monitor.series import curves_of, tables_of
from msprobe.monitor.sinks.csv import CsvSink
from msprobe.monitor.sinks.sqlite import SqliteSink
from msprobe.monitor.watch import spark, view, watch


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def training(steps: int, noise: int, fault_at: int | None = None, factor: float = 3.0) -> list[StepMetrics]:
    """A training whose gradients wander alike for all `noise`; from `fault_at` on the bias of fc1 is too large."""
    alike, own = np.random.default_rng(0), np.random.default_rng(noise)
    made = []
    for step in range(steps):
        usual = np.exp(0.05 * alike.standard_normal(4)) * (1 + 1e-4 * own.standard_normal(4))
        if fault_at is not None and step >= fault_at:
            usual[1] *= factor
        rows = [row(name, float(norm)) for name, norm in zip(PARAMETERS, usual, strict=True)]
        weights = [row(name, 10.0 + step / 100) for name in PARAMETERS]
        after = [row(name, 10.01 + step / 100) for name in PARAMETERS]
        loss = {"loss": 3 * math.exp(-step / 50)}
        made.append(
            metrics(step, {"grad_reduced": rows, "param_origin": weights, "param_updated": after}, scalars=loss)
        )
    return made


def made(base: Path, **options: Any) -> Path:
    sink = AlertSink(
        read_alert_settings({"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 1}}], "dump": True})
    )
    write_run(begun(base, steps_per_file=20), training(60, **options), CsvSink(), sink)
    return base


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_curves_of_a_training(tmp_path: Path) -> None:
    made(tmp_path, noise=1)
    curves = {curve.name: curve for curve in curves_of(tables_of(find_runs(tmp_path)))}
    assert set(curves) == {"loss", "grad_norm", "update ratio, median", "update ratio, largest"}
    assert curves["loss"].values[:2] == pytest.approx([3.0, 3 * math.exp(-0.02)])
    assert curves["grad_norm"].values[0] == pytest.approx(2.0, rel=0.1)
    assert curves["update ratio, largest"].values[0] == pytest.approx(0.001)


def test_the_step_and_tensor_where_a_run_leaves_the_band_of_another(tmp_path: Path) -> None:
    tables = [tables_of(find_runs(made(tmp_path / str(noise), noise=noise))) for noise in (1, 2)]
    assert departures(tables[0], tables[1]) == []
    bad = tables_of(find_runs(made(tmp_path / "bad", noise=3, fault_at=37)))
    found = departures(tables[0], bad)
    assert [(one.step, one.quantity, one.label, one.op) for one in found] == [(37, "grad_reduced", "fc1.bias", "norm")]
    assert found[0].second == pytest.approx(3 * found[0].first, rel=0.01)
    assert (
        departures(tables[0], tables_of(find_runs(made(tmp_path / "nan", noise=3, fault_at=11, factor=math.nan))))[
            0
        ].step
        == 11
    )


def test_the_page_needs_nothing_else_and_says_what_stands_out(tmp_path: Path) -> None:
    healthy, bad = made(tmp_path / "a", noise=1), made(tmp_path / "b", noise=2, fault_at=37)
    done = call("monitor", "report", bad, healthy, "-o", tmp_path / "out.html")
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "out.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)\s*=", page.partition('id="data"')[0])
    data = data_of(tmp_path / "out.html")
    assert [run["path"] for run in data["runs"]] == [str(healthy), str(bad)]
    assert {one["step"] for one in data["departures"]} == {37}
    assert (data["first_bad"]["step"], data["first_bad"]["from_the_first"]) == (37, False)
    assert all("fc1.bias" in text for text in data["first_bad"]["what"][0].values())
    assert data["runs"][0]["alerts"] == []
    first = data["runs"][1]["alerts"][0]
    assert (first["step"], first["label"], first["quantity"], first["op"]) == (37, "fc1.bias", "grad_reduced", "norm")
    assert (tmp_path / "out.html").stat().st_mode & 0o777 == 0o640


def test_names_of_strangers_end_no_element(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>{{data}}"
    write_run(begun(tmp_path), [metrics(0, {"grad_reduced": [row(evil, math.nan)]})])
    assert call("monitor", "report", tmp_path, "-o", tmp_path / "out.html").returncode == 0
    assert "<script>alert" not in (tmp_path / "out.html").read_text()
    assert data_of(tmp_path / "out.html")["runs"][0]["ranks"][0]["maps"][0]["labels"] == [evil]
    assert render({"runs": [], "x": "{{style}}"}).count("color-scheme: light dark") == 1


def test_long_runs_are_binned_and_nothing_that_stands_out_is_lost(tmp_path: Path) -> None:
    steps = [metrics(step, {"grad_reduced": [row("w", 500.0 if step == 1234 else 1.0)]}) for step in range(3000)]
    write_run(begun(tmp_path, steps_per_file=5000), steps)
    call("monitor", "report", tmp_path, "-o", tmp_path / "out.html")
    import base64

    found = data_of(tmp_path / "out.html")["runs"][0]["ranks"][0]["maps"][0]
    values = np.frombuffer(base64.b64decode(found["values"]), "<f4")
    assert len(values) == len(found["steps"]) <= 600
    at = int(values.argmax())
    assert found["steps"][at] <= 1234 < found["steps"][at + 1]


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    done = call("monitor", "report", tmp_path, "-o", tmp_path / "out.html")
    assert done.returncode == 2
    assert mentions(done.stderr, "no-monitor-runs", folder=tmp_path)
    assert call("monitor", "report", tmp_path / "x").returncode == 2
    assert call("monitor", "report", made(tmp_path / "a", noise=1), "-o", tmp_path / "y/out.html").returncode == 2


def test_the_terminal_shows_the_last_step_and_what_stands_out(tmp_path: Path) -> None:
    made(tmp_path, noise=1, fault_at=58)
    done = call("monitor", "watch", tmp_path, "--once", "--top", 1)
    assert done.returncode == 0
    assert " 59 " in done.stdout
    assert "grad_reduced: norm" in done.stdout
    assert "fc1.bias" in done.stdout
    assert "fc2.weight" not in done.stdout
    assert "alerts, the last" in done.stdout


def test_a_tensor_that_is_not_there_is_shown_as_a_dash(tmp_path: Path) -> None:
    missing = [Row(0, "fc1.bias", None, (None,), None, None), row("fc1.weight", math.nan)]
    steps = [gradients(0), gradients(1), metrics(2, {"grad_reduced": [*missing, row("fc2.bias", 0.5)]})]
    for at, sink in enumerate((CsvSink(), SqliteSink())):
        write_run(begun(tmp_path / str(at)), steps, sink)
        shown = call("monitor", "watch", tmp_path / str(at), "--once").stdout
        lines = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith("fc")}
        assert lines["fc1.bias"][1] == "-"
        assert lines["fc1.weight"][1] == "nan"
        assert lines["fc2.bias"][1] == "0.5"


def test_runs_in_databases_are_reported_and_compared(tmp_path: Path) -> None:
    for name, options in (("a", {"noise": 1}), ("b", {"noise": 2, "fault_at": 37})):
        write_run(begun(tmp_path / name), training(60, **options), SqliteSink())  # type: ignore[arg-type]
    done = call("monitor", "diff", tmp_path / "b", tmp_path / "a")
    assert done.returncode == 1
    assert "first bad step: 37 (rank 0" in done.stdout
    assert call("monitor", "report", tmp_path / "b", tmp_path / "a", "-o", tmp_path / "x.html").returncode == 0
    assert "no csv files" not in done.stderr


def test_the_terminal_waits_for_a_run(tmp_path: Path) -> None:
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    watch(tmp_path, once=True, console=console)
    assert "No run in" in console.export_text()
    begun(tmp_path)
    console.print(view(tmp_path))
    assert "last step" in console.export_text()


def test_bad_arguments_of_the_view_are_wrong_usage(tmp_path: Path) -> None:
    assert call("monitor", "watch", tmp_path, "--every", "0").returncode == 2
    assert call("monitor", "watch", tmp_path, "--top", "0").returncode == 2
    assert call("monitor", "watch", tmp_path / "nothing", "--once").returncode == 2


def test_small_bars() -> None:
    assert spark([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert spark([1, math.nan, 1e6, math.inf]) == "▁!█!"
    assert spark([math.nan]) == "!"
    assert spark([]) == ""
    assert spark([1, math.nan, 8], present=[True, False, True]) == "▁ █"


# ---------------------------------------------------------------- the other commands


def test_the_command_analyses(tmp_path: Path) -> None:
    made(tmp_path / "bad", noise=1, fault_at=37)
    done = call("monitor", "analyse", tmp_path / "bad", "-k", 2)
    assert done.returncode == 1
    assert done.stdout.startswith("Alert on rank 0 at step 37: ")
    assert "Alert at step 37 on rank 0: norm of grad_reduced fc1.bias is 3." in done.stdout
    assert (tmp_path / "bad/anomaly_detected/anomaly_analyse.json").exists()
    healthy = call("monitor", "analyse", made(tmp_path / "good", noise=1))
    assert healthy.returncode == 0
    assert "up to step 59, by AnomalyTurbulence" in healthy.stdout
    assert call("monitor", "analyse", tmp_path / "nothing").returncode == 2
    assert call("monitor", "analyse", tmp_path / "bad", "-s", "[37]", "-o", tmp_path / "new/folder").returncode == 1
    assert (tmp_path / "new/folder/anomaly_analyse.json").exists()
    assert call("monitor", "analyse", tmp_path / "bad", "-s", "[3]").returncode == 0
    assert call("monitor", "analyse", tmp_path / "bad", "-s", "3").returncode == 2


@pytest.mark.parametrize("words", [("monitor", "to-db"), ("data2db",)])
def test_the_command_writes_a_database(tmp_path: Path, words: tuple[str, ...]) -> None:
    made(tmp_path / "a", noise=1)
    done = call(*words, "--data", tmp_path / "a", "--db", tmp_path / "db")
    assert done.returncode == 0
    assert "60 steps, 1 ranks" in done.stdout
    assert (tmp_path / "db/monitor_data.trend.db").exists()
    assert call(*words, "--data", tmp_path / "a", "--db", tmp_path / "db", "--format", "dump").returncode == 2
    assert call(*words, "--data", tmp_path / "a", "--db", tmp_path / "db", "--process_num", "0").returncode == 2


def test_the_command_writes_event_files(tmp_path: Path) -> None:
    made(tmp_path / "a", noise=1)
    done = call("monitor", "to-tensorboard", tmp_path / "a", "-o", tmp_path / "tb", "--types", "grad_reduced")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "tb/rank0").iterdir()] == ["grad_reduced"]
    bad = call("monitor", "to-tensorboard", tmp_path / "a", "--from", "xx")
    assert (bad.returncode, "illegal timestamp" in bad.stderr) == (2, True)


def test_a_part_that_is_missing_or_misspelt_is_reported() -> None:
    assert "analyse" in call("monitor").stdout
    assert call("monitor", "-h").returncode == 0
    for part in family("monitor"):
        assert f"usage: msprobe monitor {part}" in call("monitor", part, "-h").stdout
    misspelt = call("monitor", "reprot", "x")
    assert misspelt.returncode == 2
    assert mentions(misspelt.stderr, "did-you-mean-word", meant="report")


def test_what_rounding_makes_of_nearly_nothing_leaves_no_band(tmp_path: Path) -> None:
    def run(name: str, mean: float, norm: float) -> dict[str, QuantityTable]:
        folder = begun(tmp_path / name, config={"ops": ["mean", "norm"]})
        steps = [
            metrics(step, {"grad_reduced": [row("fc1.weight", mean if step == 9 else 1e-10, norm)]}, ("mean", "norm"))
            for step in range(20)
        ]
        return tables_of(find_runs(write_run(folder, steps)))

    good = run("good", 1e-10, 0.5)
    assert departures(good, run("noise", -3e-9, 0.5)) == []
    found = departures(good, run("shifted", 0.05, 0.5))
    assert [(one.step, one.op) for one in found] == [(9, "mean")]
