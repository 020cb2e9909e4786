"""csv files in the formats of other tools."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from process.monitor.test_sinks import scalars_in
from support.coded_texts import mentions, raising
from unit.monitor.runs import STARTED, begun, metrics, row, write_run

from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.monitor.convert.csv_to_database import csv_to_database
from msprobe.monitor.convert.csv_to_tensorboard import csv2tensorboard_by_step
from msprobe.monitor.files import find_runs, stamp_text
from msprobe.monitor.measurements import StepMetrics
from msprobe.monitor.trend_reading import read_quantity

MICRO = 3


def step_of(step: int, shift: float = 0.0) -> StepMetrics:
    """Acceptance check 4 in small: accumulation over three micro steps, activations and gradients."""
    activations = [
        row(name, step + micro / 10 + shift, -float(step), micro=micro)
        for name in ("fc1.input", "layers.3.output")
        for micro in range(MICRO)
    ]
    gradients = [row("fc1.weight", step + 0.5 + shift, -1.0)]
    return metrics(step, {"actv": activations, "grad_reduced": gradients}, ("norm", "min"))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Two ranks, two steps."""
    for rank in (0, 1):
        write_run(begun(tmp_path / "runs", rank), [step_of(0, rank), step_of(1, rank)])
    return tmp_path / "runs"


def test_tensorboard_gets_every_number(base: Path, tmp_path: Path) -> None:
    assert csv2tensorboard_by_step(base, output_dirpath=tmp_path / "out") == tmp_path / "out"
    found = scalars_in(tmp_path / "out/rank1/actv")
    assert found["vp0:fc1.input:micro0/norm"] == [(0, 1.0), (1, 2.0)]
    assert found["vp0:layers.3.output:micro2/min"] == [(0, 0.0), (1, -1.0)]
    assert scalars_in(tmp_path / "out/rank0/grad_reduced")["vp0:fc1.weight/norm"] == [(0, 0.5), (1, 1.5)]
    assert not (tmp_path / "out/rank0/exp_avg").exists()


def test_by_default_the_result_is_beside_the_runs(base: Path) -> None:
    output = csv2tensorboard_by_step(str(base), data_type_list=["grad_reduced"], process_num=2)
    assert output.parent == base
    assert output.name.endswith("-csv2tensorboard_by_step")
    assert sorted(path.name for path in output.glob("*/*")) == ["grad_reduced", "grad_reduced"]


def test_only_runs_between_the_two_times_are_converted(base: Path, tmp_path: Path) -> None:
    later = begun(base, 0, STARTED + 60)
    write_run(later, [step_of(7)])
    at = stamp_text(STARTED + 60)
    csv2tensorboard_by_step(base, at, at, output_dirpath=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rank0"]
    assert scalars_in(tmp_path / "out/rank0/grad_reduced")["vp0:fc1.weight/norm"] == [(7, 7.5)]
    with raising(InvalidInputError, "no-monitor-runs-between", time_start="Jan01_00-00-00", time_end="Jan01_00-00-01"):
        csv2tensorboard_by_step(base, "Jan01_00-00-00", "Jan01_00-00-01")


def test_runs_of_a_rank_are_merged_and_that_is_said(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(begun(base, 0, STARTED + 60), [step_of(1, 0.25), step_of(2)])
    csv2tensorboard_by_step(base, output_dirpath=tmp_path / "out")
    assert mentions(capsys.readouterr().out, "monitor-runs-merged", rank=0, count=2)
    found = scalars_in(tmp_path / "out/rank0/grad_reduced")["vp0:fc1.weight/norm"]
    assert found == [(0, 0.5), (1, 1.75), (2, 2.5)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"time_start": "xx"}, "illegal timestamp: time_start is 'xx'"),
        ({"time_end": 3}, "time_end is 3"),
        ({"process_num": 0}, r"process_num\(0\) is not a positive integer"),
        ({"process_num": True}, "not a positive integer"),
        ({"process_num": 129}, "129.* larger than 128"),
        ({"data_type_list": ["actv", "foo"]}, r"data type\(foo\) is not supported.*param_updated"),
        ({"data_type_list": ["actvs"]}, 'did you mean "actv"'),
        ({"data_type_list": "actv"}, "must be a list"),
        ({"time_start": "Dec01_00-00-00", "time_end": "Nov01_00-00-00"}, "later than"),
        ({"time_start": "xx", "process_num": 0}, r"xx.*process_num\(0\)"),
    ],
)
def test_a_bad_argument_is_named(base: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as problem:
        csv2tensorboard_by_step(base, **arguments)
    assert isinstance(problem.value, MsprobeError)
    assert isinstance(problem.value, RuntimeError)
    assert len(list(base.iterdir())) == 2, "nothing was written"


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with raising(PathError, "no-monitor-folder", kind="does not exist"):
        csv2tensorboard_by_step(tmp_path / "nothing")


def test_the_import_name_of_scripts() -> None:
    from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step as known

    assert known is csv2tensorboard_by_step


QUESTION = (
    "SELECT rank, step, micro_step, norm, min FROM trend_data JOIN monitoring_targets USING (target_id)"
    " JOIN monitoring_metrics USING (metric_id) WHERE metric_name = ? AND target_name = ?"
    " ORDER BY rank, step, micro_step"
)


def asked(path: Path, question: str, *values: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        return database.execute(question, values).fetchall()


def test_the_database_numbers_micro_steps_as_steps(base: Path, tmp_path: Path) -> None:
    written = csv_to_database(base, tmp_path / "db")
    assert written.path == tmp_path / "db/monitor_data.trend.db"
    assert (written.ranks, written.steps, written.rows) == (2, 2, 2 * 2 * 7)
    found = asked(written.path, QUESTION, "actv", "fc1.input")
    assert found == [
        (rank, step * MICRO + micro, 0, step + micro / 10 + rank, -float(step))
        for rank in (0, 1)
        for step in (0, 1)
        for micro in range(MICRO)
    ]
    assert asked(written.path, QUESTION, "grad_reduced", "fc1.weight") == [
        (rank, step * MICRO, 0, step + 0.5 + rank, -1.0) for rank in (0, 1) for step in (0, 1)
    ]
    assert asked(written.path, "SELECT * FROM global_stats") == [(0, 5, 1, "norm,min", "norm,min")]
    assert asked(written.path, "SELECT metric_name FROM monitoring_metrics") == [("actv",), ("grad_reduced",)]
    tags = asked(written.path, "SELECT tag_name, category FROM monitoring_tags WHERE metric_id = 1")
    assert set(tags) == {
        ("fc1", "module"), ("input", "module"), ("layers", "module"), ("output", "module"), ("layers.3", "layer"),
    }  # fmt: skip
    columns = [name for _, name, *_ in asked(written.path, "PRAGMA table_info(trend_data)")]
    assert columns == ["rank", "step", "target_id", "metric_id", "norm", "min"]


def test_the_database_keeps_micro_steps_when_asked(base: Path, tmp_path: Path) -> None:
    written = csv_to_database(base, tmp_path / "db", micro_step=False, process_num=2)
    found = asked(written.path, QUESTION, "actv", "fc1.input")
    assert [line[:3] for line in found] == [
        (rank, step, micro) for rank in (0, 1) for step in (0, 1) for micro in range(MICRO)
    ]


def test_the_numbers_are_those_of_the_files(base: Path, tmp_path: Path) -> None:
    written = csv_to_database(base, tmp_path / "db", micro_step=False)
    for rank in (0, 1):
        table = read_quantity([run for run in find_runs(base) if run.rank == rank], "actv")
        assert table is not None
        for (_, name, step, micro), values in zip(table.keys(), table.values.tolist(), strict=True):
            assert (rank, step, micro, *values) in asked(written.path, QUESTION, "actv", name)


def test_names_are_replaced_in_order(base: Path, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(json.dumps({"fc1": "linear", "linear.w": "linear.W"}))
    written = csv_to_database(base, tmp_path / "db", mapping=tmp_path / "map.json")
    names = {name for (name,) in asked(written.path, "SELECT target_name FROM monitoring_targets")}
    assert names == {"linear.input", "layers.3.output", "linear.Weight"}


def test_an_existing_database_is_replaced_and_kept_when_it_fails(base: Path, tmp_path: Path) -> None:
    written = csv_to_database(base, tmp_path / "db")
    written.path.write_bytes(b"old")
    (next(base.iterdir()) / "actv_5-5.csv").write_text("a,b\n")
    with raising(PathError, "monitor-csv-column-missing"):
        csv_to_database(base, tmp_path / "db")
    assert written.path.read_bytes() == b"old"
    (next(base.iterdir()) / "actv_5-5.csv").unlink()
    csv_to_database(base, tmp_path / "db")
    assert written.path.read_bytes().startswith(b"SQLite")
    assert [path.name for path in (tmp_path / "db").iterdir()] == ["monitor_data.trend.db"]


@pytest.mark.parametrize(
    ("text", "said"), [("[", "no readable JSON"), ("[]", "must be an object"), ('{"a": 1}', "'a' must be a text")]
)
def test_a_bad_mapping_is_named(base: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(InvalidInputError, match=said):
        csv_to_database(base, tmp_path / "db", mapping=tmp_path / "map.json")


def test_bad_arguments_of_the_database_are_named(base: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"process_num\(129\)"):
        csv_to_database(base, tmp_path / "db", process_num=129)
    with raising(InvalidInputError, "no-monitor-runs"):
        csv_to_database(tmp_path, tmp_path / "db")
