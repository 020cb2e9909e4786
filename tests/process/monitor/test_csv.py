"""csv files on a disk that is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.coded_texts import raising
from support.mounted import small_disk_of
from unit.monitor.runs import begun, gradients

from msprobe.errors import PathError
from msprobe.monitor.csv_files import read_table
from msprobe.monitor.sinks.csv import CsvSink


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
