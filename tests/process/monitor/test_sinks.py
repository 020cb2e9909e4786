"""Places other than csv files: TensorBoard, Weights & Biases, a database, memory, a function."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import raising
from unit.monitor.runs import begun, gradients, metrics, row, write_run

from msprobe import log
from msprobe.errors import NotAvailableError, PathError
from msprobe.foreign.database import open_database
from msprobe.monitor import trend_reading
from msprobe.monitor.files import find_runs
from msprobe.monitor.measurements import Row, StepMetrics
from msprobe.monitor.series import series_of, tables_of
from msprobe.monitor.sinks.csv import CsvSink
from msprobe.monitor.sinks.memory import CallbackSink, MemorySink
from msprobe.monitor.sinks.sqlite import SqliteSink
from msprobe.monitor.sinks.tensorboard import TensorBoardSink
from msprobe.monitor.sinks.wandb import WandbSink
from msprobe.monitor.trend_database import FILE_NAME, tags_of
from msprobe.monitor.trend_reading import dtypes_of, read_trend
from msprobe.monitor.writer import MonitorWriter


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


STEPS = "SELECT DISTINCT step FROM trend_data"
STATS = "SELECT min_step, max_step, max_rank, actv, scalars FROM global_stats"
NUMBERS = 'SELECT norm, mean, "od""d" FROM trend_data ORDER BY step'


def activations(step: int) -> StepMetrics:
    rows = [row("fc1.input", 2.5 + step, None, micro=0), row("fc1.input", 4.5 + step, math.nan, micro=1)]
    return metrics(step, {"actv": rows, "grad_reduced": [row("w", 1.5, 2.0)]}, ("norm", "min"), scalars={"loss": 0.25})


def scalars_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """All scalars of the event files in a folder, as TensorBoard itself reads them."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(one.step, one.value) for one in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_tensorboard_reads_each_number_under_its_tag(tmp_path: Path) -> None:
    folder = write_run(begun(tmp_path), map(activations, range(3)), TensorBoardSink())
    found = scalars_in(folder)
    assert found["0:fc1.input:0/rank0/actv_norm"] == [(0, 2.5), (1, 3.5), (2, 4.5)]
    assert found["0:w/rank0/post_grad_min"] == [(0, 2.0), (1, 2.0), (2, 2.0)]
    assert found["rank0/loss"] == [(0, 0.25)] * 1 + [(1, 0.25), (2, 0.25)]
    assert math.isnan(found["0:fc1.input:1/rank0/actv_min"][0][1])
    assert "0:fc1.input:0/rank0/actv_min" not in found
    assert next(folder.glob("events*")).stat().st_mode & 0o777 == 0o640


def test_tensorboard_reads_what_was_flushed(tmp_path: Path) -> None:
    run = begun(tmp_path)
    writer = MonitorWriter(run, [TensorBoardSink()])
    writer.put(gradients(0))
    writer.flush()
    assert len(scalars_in(Path(run.folder))) == 4
    writer.close()


@pytest.mark.parametrize(("sink", "module"), [(TensorBoardSink, "tensorboard"), (WandbSink, "wandb")])
def test_a_missing_package_is_named_with_the_way_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sink: Any, module: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotAvailableError, match=rf"pip install 'msprobe-debugger\[{module}\]'"):
        sink().open(begun(tmp_path))
    writer = MonitorWriter(begun(tmp_path), [sink()])
    writer.put(gradients(0))
    writer.close()
    assert "pip install" in capsys.readouterr().out


OFFLINE = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from unit.monitor.runs import begun, gradients
from msprobe.monitor.sinks.wandb import WandbSink
from msprobe.monitor.trend_reading import dtypes_of, read_trend
from msprobe.monitor.writer import MonitorWriter
writer = MonitorWriter(begun(Path(sys.argv[1])), [WandbSink()])
for step in range(3):
    writer.put(gradients(step, scalars={"loss": 0.5}))
writer.close()
print("dropped", writer.load.dropped_sinks)
"""


def test_wandb_keeps_a_run_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    words = [sys.executable, "-c", OFFLINE, str(tmp_path), str(Path(__file__).parents[2])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert "dropped 0" in done.stdout, done.stdout + done.stderr
    kept = next(tmp_path.glob("*rank0*/wandb/offline-run-*/*.wandb"))
    data = kept.read_bytes()
    assert b"0:fc1.weight/rank0/post_grad_norm" in data
    assert b"rank0/loss" in data


def test_the_database_of_a_run_answers_sql_while_it_goes_on(tmp_path: Path) -> None:
    run = begun(tmp_path)
    writer = MonitorWriter(run, [SqliteSink()])
    for step in range(3):
        writer.put(activations(step))
    writer.flush()
    question = (
        "SELECT step, micro_step, norm, min FROM trend_data JOIN monitoring_targets USING (target_id)"
        " JOIN monitoring_metrics USING (metric_id) WHERE metric_name = ? AND target_name = ? ORDER BY step, micro_step"
    )
    with sqlite3.connect(Path(run.folder, FILE_NAME)) as base:
        assert base.execute(question, ("actv", "fc1.input")).fetchall() == [
            (step, micro, 2.5 + 2 * micro + step, None) for step in range(3) for micro in range(2)
        ]
        assert base.execute(STATS).fetchall() == [(0, 2, 0, "norm,min", "value")]
    writer.put(activations(3))
    writer.close()
    write_run(run, [activations(4)], SqliteSink())
    with sqlite3.connect(Path(run.folder, FILE_NAME)) as base:
        assert base.execute(STEPS).fetchall() == [(0,), (1,), (2,), (3,), (4,)]
        assert base.execute("SELECT max_step FROM global_stats").fetchall() == [(4,)]
        assert base.execute("PRAGMA foreign_key_check").fetchall() == []
    assert Path(run.folder, FILE_NAME).stat().st_mode & 0o777 == 0o640


def test_a_database_takes_new_operators_and_extreme_numbers(tmp_path: Path) -> None:
    steps = [
        metrics(0, {"grad_reduced": [row("w", math.inf)]}, ("norm",)),
        metrics(1, {"grad_reduced": [row("w", -math.inf, math.nan, -2e12)]}, ("norm", "mean", 'od"d')),
    ]
    folder = write_run(begun(tmp_path), steps, SqliteSink())
    with sqlite3.connect(folder / FILE_NAME) as base:
        assert base.execute(NUMBERS).fetchall() == [
            (1e9 + 1, None, None),
            (-1e9 - 1, None, -1e9),
        ]


def test_micro_steps_can_be_steps(tmp_path: Path) -> None:
    folder = write_run(begun(tmp_path), map(activations, range(3)), SqliteSink(renumber=True))
    with sqlite3.connect(folder / FILE_NAME) as base:
        assert base.execute(STEPS).fetchall() == [(step,) for step in range(6)]


def test_names_are_tagged_by_module_and_layer() -> None:
    assert tags_of("module.layers.3.attn.weight") == [
        ("module", "module"),
        ("layers", "module"),
        ("attn", "module"),
        ("weight", "module"),
        ("layers.3", "layer"),
    ]
    assert tags_of(".input") == [("", "module"), ("input", "module")]


def test_memory_keeps_the_last_step(tmp_path: Path) -> None:
    sink = MemorySink()
    assert sink.last is None
    write_run(begun(tmp_path), map(activations, range(3)), sink)
    assert sink.last is not None
    assert sink.last.step == 2
    assert sink.last.rows["actv"][0].values == (4.5, None)


def test_a_function_is_called_with_each_step(tmp_path: Path) -> None:
    calls: list[Any] = []
    write_run(begun(tmp_path), map(gradients, range(2)), CallbackSink(lambda step, rows: calls.append((step, rows))))
    assert [step for step, _ in calls] == [0, 1]
    assert isinstance(calls[0][1]["grad_reduced"][0], Row)


def test_a_database_reads_back_as_the_csv_files_do(tmp_path: Path) -> None:
    def steps() -> list[StepMetrics]:
        made = [activations(step) for step in range(4)]
        grads = {"grad_reduced": [row("fc1.weight", math.nan), row("fc1.bias", math.inf), row("fc2.weight", 2.0)]}
        made.append(metrics(4, grads, ("norm",), scalars={"loss": 0.5}))
        nothing = Row(0, "fc1.weight", None, (None,), None, None)
        made.append(metrics(5, {"grad_reduced": [nothing, row("fc2.weight", 3.0)]}, ("norm",)))
        made.append(
            metrics(
                6,
                {"attention_hook": [Row(0, "a.attention", 0, (1.5, 0.5), None, None)]},
                ("norm",),
                columns={"attention_hook": ("entropy", "softmax_max")},
            )
        )
        return made

    write_run(begun(tmp_path / "csv"), steps(), CsvSink())
    folder = write_run(begun(tmp_path / "base"), steps(), SqliteSink())
    ours, theirs = (tables_of(find_runs(tmp_path / name)) for name in ("csv", "base"))
    assert ours.keys() == theirs.keys()
    for quantity, expected in ours.items():
        one, other = ({series.op: series for series in series_of(found)} for found in (expected, theirs[quantity]))
        assert one.keys() == other.keys()
        for op, series in one.items():
            there = other[op]
            assert (series.labels, series.steps.tolist()) == (there.labels, there.steps.tolist())
            assert (series.present == there.present).all(), (quantity, op)
            assert np.array_equal(series.values, there.values, equal_nan=True), (quantity, op)
    assert set(theirs["grad_reduced"].dtypes) == {"torch.float32"}
    assert dtypes_of(find_runs(folder)[0]) == {"torch.float32", "float64"}


def test_a_database_is_read_in_parts_and_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trend_reading, "_ROWS_AT_ONCE", 3)
    folder = write_run(begun(tmp_path), [gradients(step) for step in range(10)], SqliteSink())
    (run,) = find_runs(folder)
    whole, end = read_trend(run, "grad_reduced"), read_trend(run, "grad_reduced", last_steps=2)
    assert whole is not None
    assert end is not None
    assert (len(whole), sorted(set(end.steps.tolist()))) == (40, [8, 9])
    assert read_trend(run, "actv") is None


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    folder = write_run(begun(tmp_path), [gradients(0)], SqliteSink())
    (folder / FILE_NAME).write_bytes(b"no database at all")
    with raising(PathError, "trend-database-unreadable"):
        tables_of(find_runs(folder))


def test_a_database_whose_writer_was_killed_in_a_transaction_is_read(tmp_path: Path) -> None:
    """The transaction is taken back in a copy: the file and its journal stay as they are."""
    import os
    import signal
    import sqlite3

    path = tmp_path / "x.db"
    child = os.fork()
    if child == 0:
        try:
            base = sqlite3.connect(path)
            base.execute("PRAGMA cache_size = 1")
            base.execute("CREATE TABLE t (a)")
            base.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 100)
            base.commit()
            base.executemany("INSERT INTO t VALUES (?)", [("y" * 500,)] * 3000)
            base.execute("UPDATE t SET a = 'z'")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert set(before) == {"x.db", "x.db-journal"}
    with open_database(path, is_live=True) as base:
        assert list(base.rows(["COUNT(*)", "MAX(substr(a, 1, 1))"], "t")) == [(100, "x")]
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
