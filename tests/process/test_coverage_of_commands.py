"""Every command that reads something says what of it was not read: each has a case here or in the two files beside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from process import test_coverage, test_coverage_of_writers
from process.lockstep import test_coverage as test_lockstep_coverage
from process.test_coverage import (
    a_rank_of_a_step,
    an_interruption,
    dump,
    half_of_the_values,
    said_ranks,
    tensors,
    the_other_rank,
)
from process.test_coverage_of_writers import (
    Case,
    a_monitored_rank,
    half_of_its_lines,
    its_csv_file,
    monitored,
    what_its_lines_say,
)
from support.command_line import Completed, call
from support.prechecked import InThisProcess
from support.rollouts_made import made, rows

from msprobe.cli.commands import COMMANDS
from msprobe.precheck import pool, sample_check

#: Commands that read nothing of a recording, or one call of it.
READ_NOTHING = {
    "run", "doctor", "demo", "explain", "completion", "help",
}  # fmt: skip
#: Function in the files beside -> its command, where they have different names.
OTHER_NAMES = {
    "sheet": "compare", "sheet_of_a_rank": "compare", "overflow": "run_overflow_check", "slime": "config_check",
    "to_db": "monitor to-db", "data2db": "monitor to-db", "to_tensorboard": "monitor to-tensorboard",
    "first_difference": "compare", "first_difference_of_a_rank": "compare", "consistent": "compare",
}  # fmt: skip
#: Commands that run a training of the user: its reference is taken away in a file of its own, by these tests.
ELSEWHERE = {
    "lockstep": test_lockstep_coverage.test_lockstep_with_half_of_a_reference_is_no_all_clear,
    "confirm": test_lockstep_coverage.test_confirm_with_half_of_a_reference_is_no_all_clear,
}


def run_ut(less: Path, out: Path) -> Completed:
    (record,) = [*less.glob("step1/rank1/dump.json"), *less.glob("step0/rank0/dump.json")][:1]
    return call("run_ut", "-api_info", record, "-o", out, "--candidate", "cpu")


def multi_run_ut(less: Path, out: Path) -> Completed:
    (record,) = [*less.glob("step1/rank1/dump.json"), *less.glob("step0/rank0/dump.json")][:1]
    return call("multi_run_ut", "-api_info", record, "-o", out, "--candidate", "cpu", "-n", "2")


def rollout(less: Path, out: Path) -> Completed:
    return call("rollout", "--log-probs", less / "engine.jsonl", less / "trainer.jsonl", "-o", out)


def api_precision_compare(less: Path, out: Path) -> Completed:
    (record,) = less.glob("step0/rank0/dump.json")
    call("run_ut", "-api_info", record, "-o", out / "one", "--candidate", "cpu")
    (details,) = (out / "one").glob("*details*.csv")
    half = out / details.name
    lines = details.read_text().splitlines()
    half.write_text("\n".join(lines[: len(lines) // 2 + 1]) + "\n")
    return call("api_precision_compare", "--candidate", half, "--reference", details, "-o", out)


def op_generate(less: Path, out: Path) -> Completed:
    record = less / "step0/rank0/dump.json"
    return call("op_generate", "--dump", record, "--api", "Functional.linear.0", "-o", out)


def graph_visualize(less: Path, out: Path) -> Completed:
    return call("graph_visualize", "--candidate", less, "-o", out)


def graph_of_two(less: Path, out: Path) -> Completed:
    return call("graph_visualize", "--candidate", less, "--reference", dump(out / "whole"), "-o", out / "o")


def monitor_diff(less: Path, out: Path) -> Completed:
    return call("monitor", "diff", less, monitored(out / "whole"))


def monitor_report(less: Path, out: Path) -> Completed:
    out.mkdir()
    return call("monitor", "report", less, "-o", out / "page.html")


def monitor_report_of_two(less: Path, out: Path) -> Completed:
    return call("monitor", "report", less, monitored(out / "whole"), "-o", out / "page.html")


def monitor_analyse(less: Path, out: Path) -> Completed:
    return call("monitor", "analyse", less)


def monitor_watch(less: Path, out: Path) -> Completed:
    return call("monitor", "watch", less, "--once")


def answers(folder: Path) -> Path:
    """Responses of an engine, and the trainer's log-probs of the same tokens."""
    folder.mkdir()
    policy = made()
    text = "".join(f"{json.dumps(row)}\n" for row in rows(policy, policy.log_probs()))
    for name in ("engine", "trainer"):
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def half_of_the_responses(folder: Path) -> None:
    path = folder / "trainer.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: len(lines) // 2]) + "\n")


CASES = [
    # As mindstudio-probe has it, 0 says that the check was made.
    Case(run_ut, dump, an_interruption, "behind the end of the dump", 0),
    Case(run_ut, tensors, half_of_the_values, "skipped 1 (Functional.linear.0): argument 0: tensor file", 0),
    Case(multi_run_ut, dump, an_interruption, "behind the end of the dump", 0),
    Case(multi_run_ut, tensors, half_of_the_values, "skipped 1 (Functional.linear.0): argument 0: tensor file", 0),
    Case(rollout, answers, half_of_the_responses, "responses r6"),
    Case(api_precision_compare, tensors, lambda folder: None, "the candidate's file has none of them", 0),
    Case(op_generate, tensors, half_of_the_values, "Functional.linear.0.forward.input.0.npy"),
    Case(graph_visualize, dump, a_rank_of_a_step, "rank 1"),
    Case(graph_visualize, dump, an_interruption, "interrupted"),
    Case(graph_visualize, said_ranks, the_other_rank, "rank 1"),
    Case(graph_of_two, dump, an_interruption, "interrupted"),
    Case(graph_of_two, dump, a_rank_of_a_step, "rank 1"),
    Case(monitor_diff, monitored, a_monitored_rank, "rank 1"),
    Case(monitor_diff, monitored, its_csv_file, "grad_reduced"),
    Case(monitor_diff, monitored, what_its_lines_say, "damaged lines"),
    Case(monitor_report, monitored, a_monitored_rank, "rank 1"),
    Case(monitor_report, monitored, half_of_its_lines, "rank 1: steps 2 to 3 of grad_reduced"),
    Case(monitor_report, monitored, what_its_lines_say, "lines of grad_reduced"),
    Case(monitor_report, monitored, its_csv_file, "rank 1: grad_reduced"),
    Case(monitor_report_of_two, monitored, a_monitored_rank, "rank 1"),
    Case(monitor_analyse, monitored, a_monitored_rank, "rank 0"),
    # A training that goes on has not written all.
    Case(monitor_watch, monitored, a_monitored_rank, "rank 1", 0),
]


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pool, sample_check):
        monkeypatch.setattr(module, "Worker", InThisProcess)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command.__name__}-{case.take.__name__}")
def test_what_was_not_read_is_named(tmp_path: Path, case: Case) -> None:
    less = case.make(tmp_path / "less")
    case.take(less)
    done = case.command(less, tmp_path / "out")
    assert done.returncode == case.status, done.stdout + done.stderr
    assert case.names in " ".join((done.stdout + done.stderr).split())
    for path in [*tmp_path.glob("out/**/*coverage_*.json"), *tmp_path.glob("out/rollout.json")]:
        covered = json.loads(path.read_text())["coverage"]
        assert covered["not_read"]
        assert covered["complete"] is False


WHOLE = [
    *[(graph_visualize, dump), (graph_of_two, dump), (monitor_diff, monitored), (monitor_report, monitored)],
    *[(monitor_report_of_two, monitored), (monitor_watch, monitored), (rollout, answers)],
]


@pytest.mark.parametrize(("command", "make"), WHOLE, ids=lambda one: one.__name__)
def test_of_what_is_whole_nothing_is_missed(tmp_path: Path, command: Any, make: Any) -> None:
    done = command(make(tmp_path / "whole"), tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Not " not in done.stdout
    assert not list(tmp_path.glob("out/**/coverage_*.json"))


def test_every_command_is_in_one_of_the_tables() -> None:
    """A new command needs a case."""
    cases = (*CASES, *test_coverage.CASES, *test_coverage_of_writers.CASES)
    names = {OTHER_NAMES.get(case.command.__name__, case.command.__name__) for case in cases}
    lacking = {
        name
        for name in COMMANDS
        if name not in names | READ_NOTHING | set(ELSEWHERE) and name.replace(" ", "_") not in names
    }
    assert lacking == set()
