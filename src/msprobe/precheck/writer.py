"""The two csv files of one check: written by one process, a call at a time, and continued after a kill.

The details of a call come first and its result last, each in one write. A call without a result is one that was
interrupted: when the files are continued, its details are dropped and it is done again.
"""

from __future__ import annotations

import csv
import io
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.csv_cells import plain_text
from msprobe.messages import said
from msprobe.paths import FILE_MODE, check_readable_file, make_folder, write_atomically
from msprobe.precheck.columns import DETAILS_HEADER, RESULT_HEADER, lines_of

_RESULT_NAME = re.compile(r"accuracy_checking_result_(\d{14})\.csv")
_STAMP = "%Y%m%d%H%M%S"
BOM = b"\xef\xbb\xbf"
_MOST_BYTES = 1 << 33


def time_stamp() -> str:
    """The local time, as it stands in the names of files."""
    return time.strftime(_STAMP)


@dataclass(frozen=True)
class CheckFiles:
    """Where the files of one check are."""

    result: Path
    details: Path
    stamp: str

    @classmethod
    def fresh(cls, folder: Path, stamp: str | None = None) -> CheckFiles:
        """The files of a new check in ``folder``; without ``stamp``, of the next second that no other check has."""
        seconds = int(time.time())
        while True:
            word = stamp or time.strftime(_STAMP, time.localtime(seconds))
            result, details = (folder / f"accuracy_checking_{kind}_{word}.csv" for kind in ("result", "details"))
            if stamp or not result.exists():
                return cls(result, details, word)
            seconds += 1

    @classmethod
    def existing(cls, result: str) -> CheckFiles:
        """The files of a check that is to be continued, by its result file. Raises InvalidInputError or PathError."""
        path = Path(result)
        match = _RESULT_NAME.fullmatch(path.name)
        if match is None:
            raise InvalidInputError(said("result-name-wrong", result))
        check_readable_file(path, ".csv", _MOST_BYTES)
        files = cls(path, path.with_name(f"accuracy_checking_details_{match.group(1)}.csv"), match.group(1))
        if not files.details.is_file():
            raise PathError(said("details-missing", files.details, path))
        return files

    @property
    def control(self) -> Path:
        """The details of the control, where there is one."""
        return self.details.with_name(f"accuracy_checking_control_{self.stamp}.csv")

    @property
    def written(self) -> list[Path]:
        """Those that are there: the result, the details, and the details of the control, if one was run."""
        return [self.result, self.details, *([self.control] if self.control.exists() else [])]


class CheckWriter:
    """The one writer of the two files, which are made with the first call, or by ``begin``.

    ``done``: the calls that the files have results of already, ``kept`` their details. ``with_control``: there is a
    third file, with the details of a control; ``kept_control``: those of these calls. Raises PathError if they cannot
    be written.
    """

    def __init__(
        self,
        files: CheckFiles,
        result_header: Sequence[str] = RESULT_HEADER,
        header: Sequence[str] = DETAILS_HEADER,
        with_control: bool = False,
    ) -> None:
        self.files = files
        self.done: dict[str, list[str]] = {}
        self.kept: list[list[str]] = []
        self.kept_control: list[list[str]] = []
        self._with_control = with_control
        self._width = len(header)
        self._headers = [(files.result, result_header), (files.details, header)]
        if with_control:
            self._headers.append((files.control, header))
        self._begun = files.result.exists()
        if self._begun:
            self._continue(tuple(result_header), tuple(header))

    def begin(self) -> None:
        """Make the files, with their headers, if nothing has made them yet."""
        if not self._begun:
            make_folder(self.files.result.parent)
            for path, names in self._headers:
                write_atomically(path, BOM + lines_of([names]))
            self._begun = True

    def _continue(self, result_header: tuple[str, ...], header: tuple[str, ...]) -> None:
        results, details = (_whole_rows(path) for path in (self.files.result, self.files.details))
        self.done = {row[0]: row for row in results[1:] if row}
        self.kept = self._whole(details)
        # The header that is there stays: that of mindstudio-probe lacks our further columns.
        first = details[0] if details else list(header)
        _demand_header(self.files.result, results[0] if results else list(result_header), result_header)
        _demand_header(self.files.details, first, header)
        self._width = len(first)
        write_atomically(self.files.details, BOM + lines_of([first, *self.kept]))
        if self._with_control:
            rows = _whole_rows(self.files.control) if self.files.control.exists() else []
            self.kept_control = self._whole(rows)
            write_atomically(self.files.control, BOM + lines_of([header, *self.kept_control]))
        write_atomically(
            self.files.result, BOM + lines_of([results[0] if results else result_header, *self.done.values()])
        )

    def _whole(self, details: list[list[str]]) -> list[list[str]]:
        """The rows of calls that have a result."""
        return [row for row in details[1:] if row and call_of(row[0]) in self.done]

    def add(
        self, result: Sequence[str], details: Sequence[Sequence[str]], control: Sequence[Sequence[str]] = ()
    ) -> None:
        """One call: its details, then its result."""
        self.begin()
        if control and self._with_control:
            _append(self.files.control, lines_of(control))
        if details:
            _append(self.files.details, lines_of([row[: self._width] for row in details]))
        _append(self.files.result, lines_of([result]))


def _demand_header(path: Path, header: Sequence[str], known: Sequence[str]) -> None:
    """Raises InvalidInputError for another header than ours, or than its part that ends in ``Message``."""
    least = known.index("Message") + 1
    if len(header) < least or [word.lower() for word in header] != [word.lower() for word in known[: len(header)]]:
        raise InvalidInputError(said("result-header-wrong", path))


def call_of(name: str) -> str:
    """The call that a row of the details belongs to."""
    for part in (".forward.", ".backward."):
        if part in name:
            return name.partition(part)[0]
    return name


def _append(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise PathError(said("file-not-written", path, reason_of(problem))) from problem


def _whole_rows(path: Path) -> list[list[str]]:
    """The rows of a csv file but for a last one that was cut."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise PathError(said("file-unreadable", path, reason_of(problem))) from problem
    whole = data[: data.rfind(b"\n") + 1].removeprefix(BOM)
    try:
        rows = csv.reader(io.StringIO(whole.decode("utf-8"), newline=""))
        return [[plain_text(cell) for cell in row] for row in rows]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InvalidInputError(said("csv-unreadable", path, problem)) from problem
