"""Jobs in processes of this machine: order, errors, and processes that end."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msprobe.children.jobs import ProcessLostError, dismiss_all, results

PID = "__import__('os').getpid()"


@pytest.fixture(autouse=True)
def _no_idle_process() -> None:
    dismiss_all()


def test_results_come_in_order_whoever_is_first() -> None:
    jobs = [f"__import__('time').sleep({0.2 if n == 0 else 0}) or {n}" for n in range(8)]
    assert list(results(eval, jobs, 3)) == list(range(8))


def test_processes_stay_for_the_next_jobs() -> None:
    first = set(results(eval, [PID] * 6, 2))
    assert set(results(eval, [PID] * 6, 2)) <= first
    assert os.getpid() not in first


def test_large_jobs_and_results_pass() -> None:
    jobs = [b"x" * (3 << 20), b"y" * (2 << 20)]
    assert list(results(bytes.swapcase, jobs, 2)) == [job.swapcase() for job in jobs]


def test_what_jobs_print_and_read_does_not_disturb_the_answers() -> None:
    jobs = ["print('hello', flush=True)", "__import__('os').write(1, b'bytes')", "__import__('sys').stdin.read()"]
    assert list(results(eval, jobs, 1)) == [None, 5, ""]


def test_the_error_of_a_job_has_the_traceback_of_its_process() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(results(eval, ["1", "1 / 0"], 2))
    assert "Traceback" in str(caught.value.__cause__)
    assert list(results(operator.neg, [1, 2], 2)) == [-1, -2]


def test_an_error_that_cannot_travel_is_named() -> None:
    job = "(_ for _ in ()).throw(type('Odd', (Exception,), {})('what is wrong'))"
    with pytest.raises(RuntimeError, match="Odd: what is wrong"):
        list(results(eval, [job, job], 2))


@pytest.mark.parametrize("ending", ["__import__('os')._exit(3)", "__import__('os').kill(__import__('os').getpid(), 9)"])
def test_a_process_that_ends_is_named_and_the_next_jobs_have_others(ending: str) -> None:
    with pytest.raises(ProcessLostError, match=r"exit status 3|SIGKILL"):
        list(results(eval, ["1", ending, "2"], 2))
    assert list(results(operator.neg, [1, 2], 2)) == [-1, -2]


def test_an_idle_process_that_was_killed_is_replaced() -> None:
    for process in set(results(eval, [PID] * 4, 2)):
        os.kill(process, 9)
    time.sleep(0.2)
    assert list(results(operator.neg, [1, 2, 3], 2)) == [-1, -2, -3]


def test_jobs_that_nobody_waits_for_are_ended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    slow = f"__import__('time').sleep(5) or open({str(mark)!r}, 'w')"
    found = results(eval, ["1", slow, slow], 2)
    assert next(found) == 1
    found.close()
    time.sleep(0.1)
    assert not mark.exists()


def test_at_most_as_many_results_wait_as_there_are_processes(tmp_path: Path) -> None:
    jobs = [f"open({str(tmp_path / str(n))!r}, 'w').close()" for n in range(20)]
    found = results(eval, jobs, 2)
    next(found)
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) <= 4
    assert len(list(found)) == 19


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    text = (
        "from msprobe.children.jobs import results\n"
        f"print(*results(eval, ['{PID.replace(chr(39), chr(34))}'] * 4, 2))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == ""
    for process in done.stdout.split():
        assert not Path("/proc", process).exists() or not Path("/proc/self").exists()
