"""The kernels in a dump of a MindSpore graph: files of values (``.npy``), or rows of ``statistic.csv``.

Layout, as MindSpore writes it: ``rank_{R}/{net}/{graph}/{iteration}/{type}.{name}.{task}.{stream}.{time}.{io}...npy``
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msprobe.compare.kernels import MAPPING_FILE, STATISTICS_FILE, long_names
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said
from msprobe.paths import StrPath, check_readable_file

OP_NAME = "Op Name"
VALUES, STATISTICS = ".npy", ".csv"

_LARGEST_FILE = 1 << 44
# From the right: names may have dots.
_KERNEL = re.compile(r"[^.]*\.(?P<name>.+)\.\d+\.\d+\.(?P<time>\d+)\.(?:input|output)\.\d+\..*\.npy", re.DOTALL)
_ONLY_DIGITS = re.compile(r"\d+\.npy")


@dataclass(frozen=True)
class DumpFiles:
    """What is to be mapped: all files of values, or else all statistics files, by folder."""

    kind: str
    folders: tuple[Path, ...]
    only: Path | None = None

    def files(self, folder: Path) -> Iterator[Path]:
        """The files of one folder, values in the order of their execution."""
        if self.only is not None:
            yield self.only
        elif self.kind == STATISTICS:
            yield folder / STATISTICS_FILE
        else:
            for name in sorted(_listing(folder, VALUES), key=_execution_order):
                yield folder / name


def find_dump_files(path: StrPath) -> DumpFiles:
    """Find the files below a folder, or take the one file that is given. Raises PathError if there is none."""
    given = Path(os.path.abspath(path))
    if not given.is_dir():
        file = check_readable_file(given, (VALUES, STATISTICS), max_size=_LARGEST_FILE, follow_symlink=True)
        return DumpFiles(VALUES if file.name.endswith(VALUES) else STATISTICS, (file.parent,), file)
    values: list[Path] = []
    statistics: list[Path] = []
    for folder in _folders(given):
        if _listing(folder, VALUES):
            values.append(folder)
        elif not values and (folder / STATISTICS_FILE).is_file():
            statistics.append(folder)
    if not values and not statistics:
        raise PathError(said("no-kernel-dump", given, STATISTICS_FILE))
    return DumpFiles(VALUES, tuple(values)) if values else DumpFiles(STATISTICS, tuple(statistics))


def _folders(base: Path) -> Iterator[Path]:
    def refuse(problem: OSError) -> None:
        raise PathError(said("kernel-folder-unreadable", problem.filename, problem.strerror)) from problem

    for folder, below, _ in os.walk(base, onerror=refuse):
        below.sort(key=_by_numbers)
        yield Path(folder)


def _listing(folder: Path, suffix: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.name.endswith(suffix) and entry.is_file()]
    except OSError as problem:
        raise PathError(said("kernel-subfolder-unreadable", folder, problem.strerror)) from problem


def _by_numbers(name: str) -> list[tuple[int, int, str]]:
    """Iteration 10 comes after iteration 9."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part), "") if place % 2 and len(part) < 20 else (0, 0, part) for place, part in enumerate(parts)]


def _execution_order(name: str) -> tuple[int, int, str]:
    kernel = _KERNEL.fullmatch(name)
    time = kernel["time"] if kernel is not None else ""
    return len(time.lstrip("0")), int(time[:20] or 0), name


class OpNames:
    """The names of kernels in the names of their files; those that were too long stand in ``mapping.csv``."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._long: dict[str, str] = {}

    def kernel_in_file(self, file: Path) -> str:
        """The name of the kernel, ``""`` if there is none in the name of the file."""
        name = file.name
        if _ONLY_DIGITS.fullmatch(name):
            if file.parent != self._folder:
                self._folder, self._long = file.parent, long_names(file.parent / MAPPING_FILE)
            name = self._long.get(name, name)
        kernel = _KERNEL.fullmatch(name)
        if kernel is not None:
            return kernel["name"]
        parts = name.split(".")
        return parts[1] if len(parts) > 2 else ""


def graph_of(folder: Path) -> int | None:
    """The number of the graph a folder belongs to, by its place ``.../{graph}/{iteration}``; None if it has none."""
    graph, step = folder.parent.name, folder.name
    plain = all(word.isascii() and word.isdigit() and len(word) < 10 for word in (graph, step))
    return int(graph) if plain else None


def statistics_rows(file: Path) -> Iterator[list[str]]:
    """The rows of a statistics file, the header first; a comma too many at the end of a row is not a cell.

    Raises InvalidInputError if the file is no csv, has no column ``Op Name``, or a row has too many or too few cells.
    """
    csv.field_size_limit(1 << 28)  # stacks of an earlier mapping
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            header: list[str] = []
            rows = csv.reader(text)
            for row in rows:
                if not header:
                    header = [cell.strip() for cell in row]
                    if OP_NAME not in header:
                        raise InvalidInputError(said("kernel-csv-column-missing", file, OP_NAME, STATISTICS_FILE))
                    yield row
                    continue
                if not row:
                    continue
                if len(row) == len(header) + 1 and not row[-1].strip():
                    row.pop()
                if len(row) != len(header):
                    raise InvalidInputError(said("kernel-csv-row-length", file, rows.line_num, len(row), len(header)))
                yield row
            if not header:
                raise InvalidInputError(said("kernel-csv-empty", file, STATISTICS_FILE))
    except OSError as problem:
        raise PathError(said("kernel-file-unreadable", file, problem.strerror)) from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InvalidInputError(said("kernel-csv-broken", file, problem)) from problem
