"""Two small real trainings, recorded one after the other in this process and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bugs.kernels.device import Device

from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Verdict
from msprobe.pytorch import PrecisionDebugger
from msprobe.report.verdict_file import verdict_bytes

#: Builds a training from fresh seeds: its model, and what is done in step ``n``.
Training = tuple[Any, Callable[[int], Any]]


def record_training(
    folder: Path, build: Callable[[], Training], steps: int = 1, mode: str = "statistics", **settings: Any
) -> Path:
    """Record the steps of a training. ``mode``: ``statistics``, ``digest`` or ``tensor`` (with digests)."""
    task = "tensor" if mode == "tensor" else "statistics"
    summary = "statistics" if mode == "statistics" else "xxh3"
    asked = {"task": task, "level": "mix", "summary_mode": summary, **settings}
    PrecisionDebugger.reset()
    torch.manual_seed(0)
    model, step = build()
    debugger = PrecisionDebugger(dump_path=str(folder), **asked)
    try:
        for number in range(steps):
            debugger.start(model)
            step(number)
            debugger.stop()
            debugger.step()
    finally:
        PrecisionDebugger.reset()
    return folder


def compare_trainings(
    folder: Path, candidate: Callable[[], Training], reference: Callable[[], Training], **settings: Any
) -> Verdict:
    """The verdict of two trainings; see :func:`record_training` for the settings."""
    one = record_training(folder / "candidate", candidate, **settings)
    other = record_training(folder / "reference", reference, **settings)
    verdict = compare_runs(one, other)
    json.loads(verdict_bytes(verdict), parse_constant=_refuse)
    return verdict


def compare_behind_device(
    folder: Path, candidate: Callable[[], Training], reference: Callable[[], Training], **settings: Any
) -> Verdict:
    """The verdict of a candidate whose kernels all give other bits; see :func:`record_training` for the settings."""
    with Device("tiles"):
        one = record_training(folder / "candidate", candidate, **settings)
    return compare_runs(one, record_training(folder / "reference", reference, **settings))


def _refuse(word: str) -> Any:
    raise AssertionError(f"verdict.json holds {word}")
