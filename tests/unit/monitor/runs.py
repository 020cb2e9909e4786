"""Runs and steps as tests need them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msprobe.monitor import files
from msprobe.monitor.measurements import MonitorRun, Quantity, Row, StepMetrics
from msprobe.monitor.sinks import Sink
from msprobe.monitor.sinks.csv import CsvSink

STARTED = 1_700_000_000.0
PARAMETERS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
SHAPES = {"fc1.weight": (8, 4), "fc1.bias": (8,), "fc2.weight": (2, 8), "fc2.bias": (2,)}


def run_of(base: Path, rank: int = 0, started: float = STARTED, **fields: Any) -> MonitorRun:
    given = {"world": 1, "framework": "pytorch", "steps_per_file": 1, "digits": None, "config": {"ops": ["norm"]}}
    return MonitorRun(str(base), rank, started=started, **{**given, **fields})


def begun(base: Path, rank: int = 0, started: float = STARTED, **fields: Any) -> MonitorRun:
    return files.begin(run_of(base, rank, started, **fields))


def row(name: str, *values: Any, micro: int | None = None, stage: int = 0) -> Row:
    return Row(stage, name, micro, values, SHAPES.get(name, (3, 4)), "torch.float32")


def metrics(step: int, rows: Mapping[Quantity, list[Row]], ops: Iterable[str] = ("norm",), **more: Any) -> StepMetrics:
    return StepMetrics(step, tuple(ops), rows, **more)


def gradients(step: int, *norms: float, ops: Iterable[str] = ("norm",), **more: Any) -> StepMetrics:
    """A step with the reduced gradients of the four parameters."""
    given = norms or tuple(0.5 + 0.01 * ((step * 7 + at * 3) % 5) for at in range(4))
    rows = [row(name, *([norm] * len(tuple(ops)))) for name, norm in zip(PARAMETERS, given, strict=True)]
    return metrics(step, {"grad_reduced": rows}, ops, **more)


def write_run(run: MonitorRun, steps: Iterable[StepMetrics], *sinks: Sink) -> Path:
    """Write the steps of a run that has begun, in csv by default; the folder."""
    for sink in sinks or (CsvSink(),):
        sink.open(run)
        for step in steps:
            sink.write(step)
        sink.flush()
        sink.close()
    return Path(run.folder)


def at(run: MonitorRun, **fields: Any) -> MonitorRun:
    return replace(run, **fields)
