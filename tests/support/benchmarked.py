"""Runs a small program under the free benchmark and reads what it wrote."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe.pytorch import PrecisionDebugger


def run(folder: Path, program: Callable[[], Any], steps: int = 1, **settings: Any) -> Any:
    """What ``program`` returned in its last step, each step under the benchmark."""
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(folder), **settings)
    found = None
    try:
        for _ in range(steps):
            with debugger.recording():
                found = program()
    finally:
        PrecisionDebugger.reset()
    return found


def rows(folder: Path, step: int = 0, name: str = "free_benchmark.csv") -> list[dict[str, str]]:
    """The rows of a file of one step; none where there is no file."""
    path = folder / f"step{step}" / "rank" / name
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def details(folder: Path, step: int = 0) -> list[dict[str, str]]:
    """The same of the file with all that differs."""
    return rows(folder, step, "free_benchmark_details.csv")


def summary(folder: Path) -> dict[str, dict[str, str]]:
    """The rows of the summary, by API."""
    with open(folder / "rank" / "free_benchmark_summary.csv", newline="", encoding="utf-8") as file:
        return {row["api"]: row for row in csv.DictReader(file)}


def uniform(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Elements within 0.5 and 1.5, without using the program's random numbers."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, generator=generator) + 0.5).to(dtype)
