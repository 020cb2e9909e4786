"""Files of processes that are killed while they write, and on a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coded_texts import raising
from support.mounted import small_disk_of
from unit.monitor.runs import begun, gradients

from msprobe.errors import PathError
from msprobe.monitor.csv_files import read_table
from msprobe.monitor.sinks.csv import CsvSink


def test_processes_killed_while_they_write_never_leave_half_a_file(tmp_path: Path) -> None:
    target = tmp_path / "f"
    program = (
        "import sys\nfrom msprobe.paths import write_atomically\nn = 0\nprint('go', flush=True)\n"
        "while True:\n  n += 1\n  write_atomically(sys.argv[1], [bytes([n % 256]) * 65536] * 16, False)\n"
    )
    for round_number in range(5):
        worker = subprocess.Popen([sys.executable, "-c", program, str(target)], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        worker.stdout.readline()
        try:
            worker.wait(0.05 + 0.013 * round_number)
        except subprocess.TimeoutExpired:
            worker.kill()
        worker.wait()
        worker.stdout.close()
        if target.exists():
            content = target.read_bytes()
            assert len(content) == 1 << 20
            assert len(set(content)) == 1
    assert target.exists()
    for left in tmp_path.glob("*"):
        assert left == target or left.match(".msprobe-*.tmp")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    with small_disk_of("64k", tmp_path / "disk") as place:
        yield place


def test_a_full_disk_leaves_nothing_half_written(small_disk: Path) -> None:
    run = begun(small_disk, steps_per_file=10_000)
    sink = CsvSink()
    sink.open(run)
    with raising(PathError, "file-not-written"):
        for step in range(10_000):
            sink.write(gradients(step))
    sink.close()
    file = Path(run.folder, "grad_reduced_0-9999.csv")
    data = file.read_bytes()
    assert data.endswith(b"\n")
    steps = read_table(file).steps.tolist()
    assert steps == [step for step in range(len(steps) // 4) for _ in range(4)]
    assert len(steps) > 400
