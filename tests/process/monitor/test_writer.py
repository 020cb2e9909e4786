"""The thread that writes: bounded, never in the way of the training, whole files whatever happens to the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from unit.monitor.runs import begun, gradients, run_of

from msprobe import log
from msprobe.monitor.csv_files import whole_length
from msprobe.monitor.files import find_runs
from msprobe.monitor.measurements import MonitorRun, StepMetrics
from msprobe.monitor.sinks.csv import CsvSink
from msprobe.monitor.trend_reading import read_quantity
from msprobe.monitor.writer import MonitorWriter

TESTS = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _speaks_again() -> None:
    log.forget_once()


class Keeping:
    """Remembers what it was asked; waits for `gate` before it writes; fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.asked: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = fails

    def _do(self, what: str, *more: Any) -> None:
        if what == self.fails:
            raise OSError(28, "No space left on device")
        self.asked.append((what, *more))

    def open(self, run: MonitorRun) -> None:
        self._do("open")

    def write(self, metrics: StepMetrics) -> None:
        self.gate.wait(30)
        self._do("write", metrics.step)

    def flush(self) -> None:
        self._do("flush")

    def close(self) -> None:
        self._do("close")

    @property
    def steps(self) -> list[int]:
        return [asked[1] for asked in self.asked if asked[0] == "write"]


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "[ERROR]" in line]


def test_steps_arrive_in_order_and_all_of_them(tmp_path: Path) -> None:
    sink = Keeping()
    writer = MonitorWriter(run_of(tmp_path), [sink])
    for step in range(200):
        writer.put(gradients(step))
    writer.close()
    assert sink.steps == list(range(200))
    assert sink.asked[0] == ("open",)
    assert sink.asked[-2:] == [("flush",), ("close",)]


def test_a_step_may_be_made_when_the_thread_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink, threads = Keeping(), []

    def made() -> StepMetrics:
        threads.append(threading.current_thread().name)
        return gradients(3)

    def broken() -> StepMetrics:
        raise ValueError("lost")

    writer = MonitorWriter(run_of(tmp_path), [sink])
    for measured in (made, lambda: None, broken, broken, gradients(4)):
        writer.put(measured)
    writer.close()
    assert sink.steps == [3, 4]
    assert threads == ["msprobe-monitor"]
    assert len(errors(capsys)) == 1, "told once"


def test_a_slow_sink_holds_the_training_up_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = Keeping()
    sink.gate.clear()
    writer = MonitorWriter(run_of(tmp_path), [sink], most_steps=3)
    done = threading.Event()

    def train() -> None:
        for step in range(10):
            writer.put(gradients(step))
        done.set()

    training = threading.Thread(target=train)
    training.start()
    assert not done.wait(0.3)
    assert writer.load.waiting == 3
    sink.gate.set()
    training.join(30)
    writer.close()
    assert sink.steps == list(range(10))
    assert writer.load.most_waiting == 3
    assert writer.load.held_up > 0
    assert writer.load.most_bytes == 3 * 4 * 400
    assert mentions(capsys.readouterr().out, "monitor-files-slow") == 1


def test_rows_that_wait_are_bounded_but_a_large_step_passes(tmp_path: Path) -> None:
    sink = Keeping()
    writer = MonitorWriter(run_of(tmp_path), [sink], most_rows=3)
    for step in range(5):
        writer.put(gradients(step))
    writer.close()
    assert sink.steps == list(range(5))
    assert writer.load.most_waiting == 1


def test_flush_makes_what_was_put_readable(tmp_path: Path) -> None:
    writer = MonitorWriter(begun(tmp_path, steps_per_file=10), [CsvSink()])
    for step in range(3):
        writer.put(gradients(step))
    assert writer.flush()
    table = read_quantity(find_runs(tmp_path), "grad_reduced")
    assert table is not None
    assert table.steps.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    writer.close()
    writer.close()
    writer.put(gradients(4))
    assert writer.flush()


def test_sinks_are_flushed_now_and_then(tmp_path: Path) -> None:
    sink = Keeping()
    writer = MonitorWriter(run_of(tmp_path), [sink], flush_seconds=0.01)
    writer.put(gradients(0))
    until = time.monotonic() + 30
    while ("flush",) not in sink.asked and time.monotonic() < until:
        time.sleep(0.01)
    assert ("flush",) in sink.asked
    writer.close()


@pytest.mark.parametrize("fails", ["open", "write", "flush"])
def test_a_sink_that_fails_is_reported_once_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fails: str
) -> None:
    bad, good = Keeping(fails), Keeping()
    writer = MonitorWriter(run_of(tmp_path), [bad, good])
    for step in range(5):
        writer.put(gradients(step))
        writer.flush()
    writer.close()
    assert good.steps == list(range(5))
    told = errors(capsys)
    assert len(told) == 1
    assert "No space left" in told[0]
    assert writer.load.dropped_sinks == 1


def test_without_a_sink_left_nothing_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = MonitorWriter(run_of(tmp_path), [Keeping("write")], most_steps=2)
    for step in range(50):
        writer.put(gradients(step))
    writer.close()
    assert "unmonitored" in errors(capsys)[0]


def test_a_forked_child_writes_nothing_and_ends(tmp_path: Path) -> None:
    sink = Keeping()
    writer = MonitorWriter(run_of(tmp_path), [sink])
    writer.put(gradients(0))
    child = os.fork()
    if child == 0:
        writer.put(gradients(1))
        flushed = writer.flush(5)
        writer.close(5)
        os._exit(0 if flushed and not sink.steps.count(1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    writer.put(gradients(2))
    writer.close()
    assert sink.steps == [0, 2]


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from unit.monitor.runs import begun, gradients
from msprobe.monitor.sinks.csv import CsvSink
from msprobe.monitor.writer import MonitorWriter
writer = MonitorWriter(begun(Path(sys.argv[1]), steps_per_file=1000000), [CsvSink()])
for step in range(int(sys.argv[3])):
    writer.put(gradients(step))
    if step == 200:
        print("going", flush=True)
"""


def steps_of(base: Path) -> list[int]:
    table = read_quantity(find_runs(base), "grad_reduced")
    assert table is not None
    return list(table.steps.tolist())


def test_what_was_put_is_written_when_the_program_ends(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), str(TESTS), "300"]
    subprocess.run(words, check=True, timeout=100)
    assert steps_of(tmp_path) == [step for step in range(300) for _ in range(4)]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_leaves_whole_lines_of_all_steps_so_far(tmp_path: Path, how: signal.Signals) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), str(TESTS), "100000000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert any(line == b"going\n" for line in process.stdout), "other lines say that the training waits"
        process.send_signal(how)
        process.wait(30)
    assert process.returncode == -how, "the signal does what it does without the monitor"
    file = next(Path(find_runs(tmp_path)[0].path).glob("grad_reduced*.csv"))
    data = file.read_bytes()
    assert whole_length(data) == len(data)
    found = steps_of(tmp_path)
    last = found[-1]
    assert last > 100
    assert found == [step for step in range(last + 1) for _ in range(4)]
