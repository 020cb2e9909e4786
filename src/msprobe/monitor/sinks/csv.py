"""The csv files of a run: a file for each quantity and span of steps, as mindstudio-probe 8.1.1 writes them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from msprobe.errors import PathError, reason_of
from msprobe.messages import said
from msprobe.monitor.csv_files import file_name, whole_length
from msprobe.monitor.csv_text import SCALARS, RowText, has_micro_steps, header, scalar_rows
from msprobe.monitor.measurements import OF_LAYERS, MonitorRun, Row, StepMetrics
from msprobe.paths import FILE_MODE

_OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class CsvSink:
    """Writes each step when it comes: one call of the system for each quantity, whole lines only.

    So a killed process loses the steps that were still waiting for the writer, and nothing of those written. A write
    that the disk does not take whole is taken back. Where the operators change while it runs, a new file begins, named
    by the step from which its header holds.
    """

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def open(self, run: MonitorRun) -> None:
        """The folder of the run must be there (:func:`msprobe.monitor.files.begin`)."""
        self._folder = run.folder
        self._steps_per_file = run.steps_per_file
        self._digits = run.digits

    def write(self, metrics: StepMetrics) -> None:
        """Write a step. Raises PathError."""
        for quantity, rows in metrics.rows.items():
            if rows:
                micro_steps = has_micro_steps(quantity, rows)
                head = header(metrics.ops_of(quantity), micro_steps, quantity not in OF_LAYERS)
                self._write(quantity, metrics.step, rows, head, micro_steps)
        if metrics.scalars:
            self._write(SCALARS, metrics.step, scalar_rows(metrics), header(("value",), False), False)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _write(self, quantity: str, step: int, rows: Sequence[Row], head: str, micro_steps: bool) -> None:
        first = step // self._steps_per_file * self._steps_per_file
        file = self._files.get(quantity)
        if file is None or file.first != first or file.head != head:
            if file is not None:
                file.close()
            text = file.text if file is not None and file.head == head else self._text(quantity, micro_steps)
            last = first + self._steps_per_file - 1
            self._files.pop(quantity, None)
            file = self._files[quantity] = _File.choose(self._folder, quantity, (first, last), step, head, text)
        file.append(file.text.lines(step, rows))

    def _text(self, quantity: str, micro_steps: bool) -> RowText:
        return RowText(self._digits, micro_steps, quantity not in OF_LAYERS)


class _File:
    """One csv file that is open for appending."""

    def __init__(self, path: str, first: int, head: str, text: RowText) -> None:
        self.first = first
        self.head = head
        self.text = text
        self._path = path
        self._begun = False
        try:
            self._descriptor = os.open(path, _OPEN, FILE_MODE)
            with contextlib.suppress(OSError):
                os.fchmod(self._descriptor, FILE_MODE)
        except OSError as problem:
            raise PathError(said("file-not-written", path, reason_of(problem))) from problem

    @classmethod
    def choose(cls, folder: str, quantity: str, span: tuple[int, int], step: int, head: str, text: RowText) -> _File:
        """The file for these steps whose header is this one, or a new one beside those that have another."""
        first, last = span
        names = [file_name(quantity, first, last)]
        if step != first:
            names.append(file_name(quantity, step, last))
        for part in range(2, 1_000_000):
            for name in names:
                file = cls(os.path.join(folder, name), first, head, text)
                if file._takes_header():
                    return file
                file.close()
            names = [file_name(quantity, step, last, part)]
        raise PathError(said("too-many-files-of-quantity", folder, quantity, step))

    def append(self, lines: str) -> None:
        """Add whole lines, or nothing and raise PathError."""
        data = lines.encode("utf-8", "backslashreplace")
        if not self._begun:
            data = self.head.encode("utf-8", "backslashreplace") + data
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                self._take_back(written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as problem:
            raise PathError(said("file-not-written", self._path, reason_of(problem))) from problem
        self._begun = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _takes_header(self) -> bool:
        """True if the file is empty or has this header; a torn last line is cut off."""
        try:
            size = os.fstat(self._descriptor).st_size
            if size == 0:
                return True
            data = os.pread(self._descriptor, size, 0)
            whole = whole_length(data)
            if whole != size:
                os.ftruncate(self._descriptor, whole)
        except OSError as problem:
            raise PathError(said("file-unreadable", self._path, reason_of(problem))) from problem
        self._begun = whole > 0
        return whole == 0 or data.startswith(self.head.encode("utf-8", "backslashreplace"))

    def _take_back(self, written: int) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
