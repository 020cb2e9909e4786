"""What is said of alerts: all runs and ranks, and no all-clear from what is missing."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import call
from unit.monitor.runs import STARTED, begun, gradients, write_run

from msprobe import log
from msprobe.monitor import files
from msprobe.monitor.alerts import AlertSink, read_alert_settings
from msprobe.monitor.alerts.attempts import Attempt
from msprobe.monitor.alerts.journal import JOURNAL, read_journal
from msprobe.monitor.alerts.reading import read_all_alerts
from msprobe.monitor.files import find_runs
from msprobe.monitor.measurements import StepMetrics
from msprobe.monitor.sinks.csv import CsvSink

NAN = math.nan
RULES = {"rules": [{"rule_name": "AnomalyNan"}, {"rule_name": "LossSpike"}]}


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def judged(base: Path, bad: dict[int, float], rank: int = 0, at: int = 0, monitor: int = 0, dump: bool = True) -> Path:
    """A run whose rules have looked at ten steps, of which some have this as their first gradient."""
    run = begun(base, rank, STARTED + at, monitor=monitor, config={"alert": RULES})
    files.describe(run.folder, first_step=0, monitor=monitor)
    steps = [gradients(step, bad.get(step, 1.0), 1.0, 1.0, 1.0) for step in range(10)]
    return write_run(run, steps, CsvSink(), AlertSink(read_alert_settings({**RULES, "dump": dump})))


def test_alerts_are_on_the_disk_when_the_step_was_judged(tmp_path: Path) -> None:
    run = begun(tmp_path)
    sink = AlertSink(read_alert_settings({**RULES, "dump": True}))
    sink.open(run)
    sink.write(gradients(0, NAN, 1, 1, 1))
    journal = read_journal(run.folder)
    assert journal is not None
    assert [one["step"] for one in journal.alerts] == [0]
    assert not journal.is_ended
    assert json.loads((tmp_path / "anomaly_detected/rank0/anomaly.json").read_text())
    sink.close()
    ended = read_journal(run.folder)
    assert ended is not None
    assert (ended.is_ended, ended.last_step) == (True, 0)


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_is_passed_over_and_a_damaged_one_is_counted(tmp_path: Path, cut: int) -> None:
    folder = judged(tmp_path, {3: NAN})
    path = folder / JOURNAL
    path.write_bytes(path.read_bytes()[:-cut])
    journal = read_journal(folder)
    assert journal is not None
    assert (len(journal.alerts), journal.damaged) == (1, 0)
    path.write_bytes(path.read_bytes().replace(b'"kind": "alert"', b'"kind": "al\x00rt', 1))
    journal = read_journal(folder)
    assert journal is not None
    assert journal.damaged == 1


def test_both_of_two_monitors_and_all_ranks_are_read(tmp_path: Path) -> None:
    judged(tmp_path, {4: NAN}, monitor=0)
    judged(tmp_path, {6: NAN}, at=1, monitor=1)
    judged(tmp_path, {2: NAN}, rank=1)
    found = read_all_alerts(tmp_path)
    assert [(one["rank"], one["step"]) for one in found.records.values()] == [(1, 2), (0, 4), (0, 6)]
    assert found.is_whole
    done = call("monitor", "analyse", tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("Alert on rank 1 at step 2: norm of grad_reduced fc1.weight: nan (limit: finite)")
    assert "msprobe check" in done.stdout.splitlines()[0]


def _no_journal(base: Path) -> None:
    for path in base.rglob(JOURNAL):
        path.unlink()
    shutil.rmtree(base / "anomaly_detected", ignore_errors=True)


def _no_journal_of_a_rank(base: Path) -> None:
    (find_runs(base)[1].path / JOURNAL).unlink()


def _damaged_journal(base: Path) -> None:
    path = find_runs(base)[1].path / JOURNAL
    path.write_text(path.read_text().replace('{"kind": "rules"', '{"kind" "rules"') + '{"kind": "end"}\n')


def _empty_journal(base: Path) -> None:
    (find_runs(base)[0].path / JOURNAL).write_text("")


def _a_run_without_rules(base: Path) -> None:
    write_run(begun(base, 2, config={"ops": ["norm"]}), [gradients(0)], CsvSink())


def _nothing_at_all(base: Path) -> None:
    for run in find_runs(base):
        shutil.rmtree(run.path)


@pytest.mark.parametrize(
    "lose",
    [_no_journal, _no_journal_of_a_rank, _damaged_journal, _empty_journal, _a_run_without_rules, _nothing_at_all],
)
def test_what_is_missing_is_no_all_clear(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    for rank in (0, 1):
        judged(tmp_path, {}, rank)
    whole = call("monitor", "analyse", tmp_path)
    assert (whole.returncode, whole.stdout.count("Not read")) == (0, 0)
    assert "up to step 9, by AnomalyNan, LossSpike" in whole.stdout
    lose(tmp_path)
    done = call("monitor", "analyse", tmp_path)
    assert done.returncode == 2
    assert "Not read:" in done.stdout


def test_a_folder_of_another_tool_is_read_by_its_files(tmp_path: Path) -> None:
    judged(tmp_path, {3: NAN})
    for run in find_runs(tmp_path):
        shutil.rmtree(run.path)
    for folder in (tmp_path, tmp_path / "anomaly_detected"):
        found = read_all_alerts(folder)
        assert [one["step"] for one in found.records.values()] == [3]
        assert found.is_whole


def test_the_folder_of_one_run_is_that_run(tmp_path: Path) -> None:
    healthy = judged(tmp_path, {})
    bad = judged(tmp_path, {5: NAN}, at=3)
    assert call("monitor", "analyse", healthy).returncode == 0
    assert call("monitor", "analyse", bad).returncode == 1


# ---------------------------------------------------------------- what became no step


def attempts_of(tmp_path: Path, *attempts: Attempt, rules: list[str] | None = None) -> list[tuple[str, str]]:
    run = begun(tmp_path)
    names = rules or ["AnomalyNan", "LossSpike", "GradNormSpike"]
    sink = AlertSink(read_alert_settings({"rules": [{"rule_name": name} for name in names]}))
    sink.open(run)
    sink.write(gradients(0))
    for one in attempts:
        sink.attempt(one, one.make())
    sink.close()
    journal = read_journal(run.folder)
    assert journal is not None
    return [(str(one["rule"]), str(one["what"])) for one in journal.alerts]


def attempt(why: str, in_a_row: int = 1, has_stepped: bool = True, **made: float) -> Attempt:
    """With gradients that are not finite, and these numbers of the step."""
    gradient = made.pop("gradient", math.inf)
    metrics: StepMetrics = gradients(1, gradient, 1, 1, 1, scalars=made)
    return Attempt(1, why, lambda: metrics, in_a_row, has_stepped)  # type: ignore[arg-type]


SPIKED = ("AnomalyNan", "grad_reduced fc1.weight")
SKIPS = ("SkippedSteps", "skipped_steps")
LOSS = ("AnomalyNan", "loss")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (attempt("skipped"), []),
        (attempt("skipped", 9), []),
        (attempt("skipped", 10), [SPIKED, SKIPS]),
        (attempt("skipped", 11), []),
        (attempt("skipped", 100), [SPIKED, SKIPS]),
        (attempt("skipped", 10, has_stepped=False), []),
        (attempt("skipped", 30, has_stepped=False), [SPIKED, SKIPS]),
        (attempt("skipped", loss=NAN), [LOSS]),
        (attempt("skipped", loss=2.0), []),
        (attempt("unfinished"), [SPIKED]),
        (attempt("unfinished", gradient=1.0, loss=1.0), []),
        (attempt("unfinished", gradient=1.0, loss=math.inf), [LOSS]),
        (attempt("noted", loss=NAN), [LOSS]),
        (attempt("noted", lr=NAN), [("AnomalyNan", "lr")]),
    ],
)
def test_what_became_no_step_is_judged(tmp_path: Path, one: Attempt, expected: list[tuple[str, str]]) -> None:
    assert sorted(attempts_of(tmp_path, one)) == sorted(expected)


def test_rules_that_are_not_asked_for_are_not_used_on_attempts(tmp_path: Path) -> None:
    assert attempts_of(tmp_path, attempt("unfinished", loss=NAN), rules=["FrozenWeights"]) == []
    assert attempts_of(tmp_path, attempt("unfinished", loss=NAN), rules=["LossSpike"]) == [("LossSpike", "loss")]


def test_a_number_that_was_noted_is_raised_once(tmp_path: Path) -> None:
    run = begun(tmp_path)
    sink = AlertSink(read_alert_settings(RULES))
    sink.open(run)
    noted = attempt("noted", loss=NAN)
    sink.attempt(noted, StepMetrics(1, (), {}, scalars={"loss": NAN}))
    sink.write(gradients(1, 1, 1, 1, 1, scalars={"lr": 0.1, "loss": NAN}))
    sink.write(gradients(2, 1, 1, 1, 1, scalars={"lr": 0.1, "loss": NAN}))
    sink.close()
    journal = read_journal(run.folder)
    assert journal is not None
    assert [one["step"] for one in journal.alerts] == [1, 2]


@pytest.mark.parametrize(("factor", "expected"), [(1.05, [4]), (0.9, [4]), (1.001, []), (1.0, [])])
def test_one_tensor_that_is_treated_otherwise_between_backward_and_step(
    tmp_path: Path, factor: float, expected: list[int]
) -> None:
    raised: list[int] = []
    settings = read_alert_settings({"rules": [{"rule_name": "UnevenGradients"}]})
    sink = AlertSink(settings, on_alert=[lambda alerts: raised.extend(one.step for one in alerts)])
    sink.open(begun(tmp_path))
    for step in range(12):
        rows = gradients(step).rows["grad_reduced"]
        reduced = [one._replace(values=(float(one.values[0] or 0) * 0.5 * (factor if at == 2 else 1.0),))
                   for at, one in enumerate(rows)]  # fmt: skip
        sink.write(StepMetrics(step, ("norm",), {"grad_unreduced": rows, "grad_reduced": reduced}))
    sink.close()
    assert raised == expected
