"""Writes the files of steps in a thread of its own, so that the training does not wait for the disk.

What waits is bounded: with more than :data:`MOST_WAITING` bytes on their way, the next step waits for the disk. What
cannot be written is reported once; the training goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msprobe import log
from msprobe.capture import native
from msprobe.capture.array_files import npy_header
from msprobe.config.settings import GradientProbe
from msprobe.errors import MsprobeError
from msprobe.grad_probe import layout
from msprobe.grad_probe.measure import Array
from msprobe.grad_probe.rows import GradientRow, summary_csv
from msprobe.messages import said
from msprobe.paths import FILE_MODE, create_folder, write_atomically
from msprobe.store.background import Background

MOST_WAITING = 256 << 20
#: The row of a gradient and its direction, or what gives them when a device is done.
Entry = tuple[GradientRow, Array | None] | Callable[[], tuple[GradientRow, Array | None]]


@dataclass(frozen=True)
class StepFiles:
    """What is to be written of one step; ``nbytes``: about how much memory it holds."""

    folder: Path
    step: int
    entries: Sequence[Entry]
    nbytes: int


class StepWriter:
    """Writes steps one after the other. Belongs to the process that made it: after a fork it is quiet."""

    def __init__(self, probe: GradientProbe) -> None:
        self._probe = probe
        self._background = Background("msprobe-gradients", self._work, MOST_WAITING)
        self._headers: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self.failed = False

    def put(self, step: StepFiles) -> None:
        """Write the files of a step soon."""
        self._background.put(step, step.nbytes)

    def flush(self) -> None:
        """Wait until everything is written."""
        self._background.flush()

    def _work(self, steps: Iterator[StepFiles]) -> None:
        for step in steps:
            try:
                self._write(step)
            except Exception as problem:
                self._fail(step, problem)
            del step

    def _write(self, step: StepFiles) -> None:
        rows: list[GradientRow] = []
        directions: list[tuple[str, Array]] = []
        for entry in step.entries:
            row, direction = entry() if callable(entry) else entry
            rows.append(row)
            if direction is not None:
                directions.append((row.name, direction))
        create_folder(step.folder)
        if self._probe.grad_level != "L0":
            folder = step.folder / f"step{step.step}"
            create_folder(folder)
            self._write_directions(folder, directions)
        # Comes last: a step whose csv is there is whole.
        summary = summary_csv(rows, self._probe.grad_level, self._probe.bounds)
        write_atomically(step.folder / layout.summary_name(step.step), summary, fsync=False)

    def _write_directions(self, folder: Path, directions: Sequence[tuple[str, Array]]) -> None:
        files = [
            (layout.direction_name(name), self._header(direction), np.ascontiguousarray(direction).reshape(-1).data)
            for name, direction in directions
        ]
        if native.write_files is None:
            for name, head, data in files:
                write_atomically(folder / name, b"".join((head, data)), fsync=False)
            return
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            given: list[tuple[Any, ...]] = [(name.encode(), head, data, b"") for name, head, data in files]
            # Under their own names: that they are whole is known from the csv, which comes after them.
            done, problem = native.write_files(directory, FILE_MODE, "", given)
        finally:
            os.close(directory)
        if problem:
            raise OSError(problem, os.strerror(problem), str(folder / files[done][0]))

    def _header(self, direction: Array) -> bytes:
        key = (direction.dtype.str, tuple(direction.shape))
        header = self._headers.get(key)
        if header is None:
            header = self._headers[key] = npy_header(direction)
        return header

    def _fail(self, step: StepFiles, problem: Exception) -> None:
        self.failed = True
        reason = problem.message if isinstance(problem, MsprobeError) else f"{type(problem).__name__}: {problem}."
        log.once(
            ("gradient files", str(step.folder)), "error", said("gradients-not-written", step.step, step.folder, reason)
        )
