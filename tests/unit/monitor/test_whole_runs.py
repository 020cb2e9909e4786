"""Which folders are one run, which are runs of their own; and what of two folders is compared, and what not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.command_line import call
from unit.monitor.runs import STARTED, begun, gradients, metrics, row, write_run

from msprobe import log
from msprobe.messages import said
from msprobe.monitor import files
from msprobe.monitor.diff import diff
from msprobe.monitor.files import find_runs
from msprobe.monitor.report.data import read_run
from msprobe.monitor.sinks.csv import CsvSink
from msprobe.monitor.sinks.sqlite import SqliteSink
from msprobe.monitor.sketch import FILE_NAME, SketchSink
from msprobe.monitor.whole_runs import ranks_of_monitors, recorded_steps, whole_runs


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


def folder_of(base: Path, steps: range, at: int = 0, said: dict[str, Any] | None = None, rate: float = 0.1) -> Path:
    """A folder with these steps that began ``at`` seconds after the first; ``said``: further fields of run.json."""
    run = begun(base, started=STARTED + at)
    if said is not None:
        files.describe(run.folder, **said)
    made = [gradients(step, scalars={"lr": rate}) for step in steps]
    return write_run(run, made, CsvSink())


def ours(first_step: int, monitor: int = 0) -> dict[str, Any]:
    return {"first_step": first_step, "monitor": monitor}


# First steps that are trained, what run.json says, which of the folders are one run.
CASES: dict[str, tuple[list[tuple[range, dict[str, Any] | None]], list[list[int]]]] = {
    "one": ([(range(9), ours(0))], [[0]]),
    "resumed and said so": ([(range(57), ours(0)), (range(40, 90), ours(40))], [[0, 1]]),
    "resumed twice": ([(range(9), ours(0)), (range(5, 19), ours(5)), (range(15, 29), ours(15))], [[0, 1, 2]]),
    "started again": ([(range(57), ours(0)), (range(60), ours(0))], [[0], [1]]),
    "started again, then resumed": (
        [(range(9), ours(0)), (range(9), ours(0)), (range(5, 20), ours(5))],
        [[0], [1, 2]],
    ),
    "two monitors at once": ([(range(50), ours(0)), (range(50), ours(0, 1))], [[0], [1]]),
    "two monitors, resumed": (
        [(range(9), ours(0)), (range(9), ours(0, 1)), (range(5, 20), ours(5)), (range(5, 20), ours(5, 1))],
        [[0, 2], [1, 3]],
    ),
    "resumed with nothing before it": ([(range(40, 60), ours(40))], [[0]]),
    "other tools, one after the other": ([(range(20), None), (range(15, 40), None)], [[0, 1]]),
    "other tools, both from the first step": ([(range(20), None), (range(20), None)], [[0], [1]]),
    "other tools, one without steps": ([(range(20), None), (range(0), None)], [[0, 1]]),
    "ours behind one of another tool": ([(range(20), None), (range(20, 30), ours(20))], [[0, 1]]),
    "never attached": ([(range(20), ours(0)), (range(0), {})], [[0], [1]]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_folder_goes_on_with_another_only_where_it_says_so(tmp_path: Path, name: str) -> None:
    folders, expected = CASES[name]
    paths = [folder_of(tmp_path, steps, at, said).name for at, (steps, said) in enumerate(folders)]
    found = [[paths.index(one.path.name) for one in run.folders] for run in whole_runs(find_runs(tmp_path))]
    assert sorted(found) == expected


def test_steps_are_found_in_files_of_many_steps_and_in_databases(tmp_path: Path) -> None:
    many = begun(tmp_path / "many", steps_per_file=1000)
    write_run(many, [metrics(step, {"grad_reduced": [row('odd, "name"', 1.0)]}) for step in range(40, 57)], CsvSink())
    base = begun(tmp_path / "base")
    write_run(base, [gradients(step) for step in range(3, 8)], SqliteSink())
    assert [recorded_steps(one) for one in find_runs(tmp_path / "many")] == [(40, 56)]
    assert [recorded_steps(one) for one in find_runs(tmp_path / "base")] == [(3, 7)]
    begun(tmp_path / "empty")
    assert [recorded_steps(one) for one in find_runs(tmp_path / "empty")] == [None]


def test_ranks_are_put_together_by_monitor(tmp_path: Path) -> None:
    for rank in (0, 1):
        for monitor in (0, 1):
            files.describe(begun(tmp_path, rank, STARTED + monitor).folder, **ours(0, monitor))
    assert [sorted(side) for side in ranks_of_monitors(find_runs(tmp_path))] == [[0, 1], [0, 1]]


def test_the_fault_of_the_first_of_two_monitors_is_found(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 1.0)):
        folder_of(tmp_path / name, range(30), 0, ours(0), rate)
        folder_of(tmp_path / name, range(30), 1, ours(0, 1))
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.first_bad is not None
    assert found.first_bad.step == 0
    assert found.unread == ()
    assert found.run.endswith(find_runs(tmp_path / "b")[0].path.name)
    assert diff(tmp_path / "a", tmp_path / "a").first_bad is None


@pytest.mark.parametrize(("quantity", "in_doubt"), [(None, 19), ("update", None), ("param_updated", None)])
def test_an_update_that_was_not_measured_may_have_come_before(
    tmp_path: Path, quantity: Any, in_doubt: int | None
) -> None:
    for name, factor in (("a", 1.0), ("b", 9.0)):
        steps = []
        for number in range(30):
            step = gradients(number, *[0.5 * (factor if number >= 20 else 1.0)] * 4)
            rows = {**step.rows, **({quantity: [row("fc1.weight", 1.0)]} if quantity else {})}
            steps.append(metrics(number, rows, scalars={"lr": 0.1}))
        write_run(begun(tmp_path / name), steps, CsvSink())
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.first_bad is not None
    assert (found.first_bad.step, found.update_in_doubt) == (20, in_doubt)
    done = call("monitor", "diff", tmp_path / "b", tmp_path / "a")
    assert mentions(done.stdout, "update-not-measured") == (in_doubt is not None)


def test_a_report_of_several_runs_has_one_and_names_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = folder_of(tmp_path, range(9), 0, ours(0))
    second = folder_of(tmp_path, range(9), 1, ours(0, 1))
    assert [one.path.name for one in read_run(tmp_path).ranks[0]] == [first.name]
    assert second.name in capsys.readouterr().out
    assert read_run(second).ranks[0][0].path == second


# ---------------------------------------------------------------- what was not compared


def _without_rank(base: Path) -> None:
    for run in find_runs(base):
        if run.rank == 1:
            run.path.rename(base / "away")


def _without_quantity(base: Path) -> None:
    for path in base.rglob("grad_reduced_*.csv"):
        path.unlink()


def _without_steps_between(base: Path) -> None:
    for path in base.rglob("*_[5-9]-*.csv"):
        path.unlink()


def _every_second_step(base: Path) -> None:
    for path in base.rglob("*[13579]-*[13579].csv"):
        path.unlink()


def _damaged(base: Path) -> None:
    path = next(base.rglob("param_updated_7-7.csv"))
    path.write_text(path.read_text().replace(",7,", ",x,"))


def _second_run(base: Path) -> None:
    folder_of(base, range(20), 5, ours(0))


LOSSES = [_without_rank, _without_quantity, _without_steps_between, _every_second_step, _damaged, _second_run]


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize("lose", LOSSES)
def test_no_all_clear_for_what_was_not_compared(tmp_path: Path, lose: Any, side: str) -> None:
    for name in ("first", "second"):
        for rank in (0, 1):
            rows = [metrics(step, {q: gradients(step).rows["grad_reduced"] for q in ("grad_reduced", "param_updated")})
                    for step in range(20)]  # type: ignore[misc]  # fmt: skip
            run = begun(tmp_path / name, rank)
            files.describe(run.folder, **ours(0))
            write_run(run, rows, CsvSink())
    whole = call("monitor", "diff", tmp_path / "second", tmp_path / "first")
    assert (whole.returncode, whole.stdout.count("not compared")) == (0, 0)
    lose(tmp_path / side)
    found = call("monitor", "diff", tmp_path / "second", tmp_path / "first")
    assert found.returncode == 2
    assert mentions(found.stdout, "no-bad-step", alone=said("in-what-was-compared"))
    assert mentions(found.stdout, "not-compared-because")


def test_an_interval_that_was_asked_for_is_no_hole(tmp_path: Path) -> None:
    write_run(begun(tmp_path / "a"), [gradients(step) for step in range(20)], CsvSink())
    sparse = begun(tmp_path / "b", config={"step_interval": 5})
    write_run(sparse, [gradients(step) for step in range(0, 20, 5)], CsvSink())
    assert diff(tmp_path / "a", tmp_path / "b").unread == ()


@pytest.mark.parametrize("how", ["damaged", "cut", "torn"])
def test_sketches_that_are_damaged_or_short_are_no_all_clear(tmp_path: Path, how: str) -> None:
    for name in "ab":
        write_run(begun(tmp_path / name), [gradients(step) for step in range(40)], SketchSink(), CsvSink())
        run = begun(tmp_path / f"{name}s")
        write_run(run, [gradients(step) for step in range(40)], SketchSink())
    path = next((tmp_path / "bs").rglob(FILE_NAME))
    data = path.read_bytes()
    changed = {
        "damaged": data[:2000] + bytes([data[2000] ^ 255]) + data[2001:],
        "cut": data[: len(data) // 2],
        "torn": data[:-7],
    }[how]
    path.write_bytes(changed)
    found = diff(tmp_path / "as", tmp_path / "bs")
    assert bool(found.unread) is (how == "damaged")
    assert found.ends[0] == 39
    # Where there are csv files as well, they have what the sketches lack.
    next((tmp_path / "b").rglob(FILE_NAME)).write_bytes(changed)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.by_sketches is (how == "torn")
    assert found.steps == (39 if how == "torn" else 40)


def test_a_rank_that_neither_folder_has_is_named(tmp_path: Path) -> None:
    for name in "ab":
        for rank in (0, 1, 3):
            run = begun(tmp_path / name, rank, world=4)
            write_run(run, [gradients(step) for step in range(20)], CsvSink())
    (missing,) = diff(tmp_path / "a", tmp_path / "b").coverage.not_read
    assert missing.what == "rank 2"
    done = call("monitor", "diff", tmp_path / "b", tmp_path / "a", "--json")
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["first_bad_step"] is None
    assert answer["coverage"] == {
        "complete": False,
        "read": {"ranks": 3, "steps": 20},
        "not_read": [{"what": missing.what, "why": missing.why}],
    }


@pytest.mark.parametrize("given", [{"module_ranks": [0, 1, 3]}, {}])
def test_ranks_that_were_not_asked_for_are_not_missing(tmp_path: Path, given: dict[str, Any]) -> None:
    for name in "ab":
        for rank in (0, 1, 3):
            run = begun(tmp_path / name, rank, world=4 if given else 1, config=given)
            write_run(run, [gradients(step) for step in range(20)], CsvSink())
    assert diff(tmp_path / "a", tmp_path / "b").coverage.is_complete
