"""Kernel dumps of MindSpore graphs: which file of one side answers to which of the other.

Layout, as MindSpore writes it: ``{base}/rank_{R}/{net}/{graph}/{step}`` (or ``{R}`` for the rank) with
``{OpType}.{OpName}.{task}.{stream}.{timestamp}.{input|output}.{i}.{slot}.{format}.npy``, a ``statistic.csv``, and
``mapping.csv`` for names that are too long for the file system.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msprobe import log
from msprobe.compare import verdicts
from msprobe.compare.array_files import NO_REFERENCE, NO_STATISTICS, FileSide, Number, Statistics
from msprobe.compare.problems import InvalidArgumentError, InvalidPathError
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import joined, said

KernelFileKind = Literal["npy", "statistic"]
# Rank and step; op, task, input or output with its index, slot, and which of several with equal ones.
KernelPlace = tuple[int, int]
Key = tuple[str, str, str, str, int]

STATISTICS_FILE = "statistic.csv"
MAPPING_FILE = "mapping.csv"
_LEAST_COLUMNS = 13
_KEY_COLUMNS = ("Op Name", "Task ID", "Timestamp", "IO", "Slot")
_VALUE_COLUMNS = ("Max Value", "Min Value", "Avg Value", "L2Norm Value")
# Of the difference of the maxima to the larger of them.
_MOST_RATIO = 0.5
_RANK = re.compile(r"(?:rank_)?(\d+)")
# From the right: names of operators may have dots.
_KERNEL = re.compile(
    r"(?P<op>.+)\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d+)\.(?P<io>(?:input|output)\.\d+)\.(?P<slot>[^.]+)\.[^.]+\.npy"
)


@dataclass(frozen=True)
class Kernel:
    """One tensor of a kernel: its file, and what the statistics file says of it (None for ``.npy`` files)."""

    name: str
    path: Path
    order: tuple[int, int, int]
    side: FileSide | None = None


@dataclass(frozen=True)
class KernelPair:
    """Two tensors that answer to each other; one of them may not be there."""

    candidate: Kernel | None
    reference: Kernel | None


def find_steps(base: Path, field: str) -> dict[KernelPlace, list[Path]]:
    """Rank and step -> their folders (one for each graph). Raises InvalidPathError if there is none."""
    if not base.is_dir():
        raise InvalidPathError(said("kernel-dump-folder-missing", field, base))
    base = base.absolute()
    steps: dict[KernelPlace, list[Path]] = defaultdict(list)
    try:
        for folder in sorted(base.glob("*/*/*/*")):
            rank, step = _RANK.fullmatch(folder.parts[-4]), folder.name
            if rank is not None and step.isascii() and step.isdigit() and folder.is_dir():
                steps[int(rank.group(1)), int(step)].append(folder)
    except OSError as problem:
        raise PathError(said("folder-of-field-unreadable", field, base, problem.strerror)) from problem
    if not steps:
        raise InvalidPathError(said("no-kernel-dump-below", field, base))
    return dict(steps)


def common_places(
    candidate: Collection[KernelPlace],
    reference: Collection[KernelPlace],
    ranks: Collection[int],
    steps: Collection[int],
) -> list[KernelPlace]:
    """The ranks and steps that both sides have and that are asked for (all, if none are); others are reported.

    Raises InvalidArgumentError if none is left.
    """

    def wanted(place: KernelPlace) -> bool:
        return (not ranks or place[0] in ranks) and (not steps or place[1] in steps)

    ours, theirs = set(filter(wanted, candidate)), set(filter(wanted, reference))
    for places, word in ((ours - theirs, "candidate"), (theirs - ours, "reference")):
        if places:
            listed = joined(", ", (said("rank-and-step", rank, step) for rank, step in sorted(places)))
            log.warning(said("places-of-one-side", word, listed))
    both = sorted(ours & theirs)
    if not both:
        asked = said("among-ranks-and-steps", sorted(ranks) or "all", sorted(steps) or "all") if ranks or steps else ""
        raise InvalidArgumentError(said("no-common-place", asked))
    return both


def read_kernels(folders: Iterable[Path]) -> tuple[KernelFileKind, dict[Key, Kernel]]:
    """The tensors in the folders of one step, by key; ``.npy`` files go before a statistics file.

    Raises InvalidPathError if there is neither, InvalidInputError for a statistics file that is none.
    """
    places = list(folders)
    arrays = [(number, entry) for number, folder in enumerate(places) for entry in _arrays(folder)]
    kind: KernelFileKind = "npy" if arrays else "statistic"
    if not arrays:
        for number, folder in enumerate(places):
            if (folder / STATISTICS_FILE).is_file():
                arrays += [(number, entry) for entry in _statistics_rows(folder / STATISTICS_FILE)]
    if not arrays:
        raise InvalidPathError(said("kernels-missing", places[0], STATISTICS_FILE))
    groups: dict[tuple[str, str, str, str], list[tuple[tuple[int, int, int], Kernel]]] = defaultdict(list)
    for place, (number, (base, time, kernel)) in enumerate(arrays):
        groups[base].append(((number, time, place), kernel))
    by_key: dict[Key, Kernel] = {}
    for base, kernels in groups.items():
        kernels.sort(key=lambda item: item[0])
        for count, (order, kernel) in enumerate(kernels):
            by_key[(*base, count)] = replace(kernel, order=order)
    return kind, by_key


# Key but for the number, time, and the kernel, which gets its place among all later.
_PlacedKernel = tuple[tuple[str, str, str, str], int, Kernel]
_NO_ORDER = (0, 0, 0)


def _arrays(folder: Path) -> list[_PlacedKernel]:
    real_names = long_names(folder / MAPPING_FILE)
    kernels: list[_PlacedKernel] = []
    strangers = 0
    for path in sorted(folder.glob("*.npy")):
        match = _KERNEL.fullmatch(real_names.get(path.name, path.name))
        if match is None:
            strangers += 1
            continue
        # The type of the operator stands in front of its name, which may have dots.
        op = match["op"].partition(".")[2] or match["op"]
        base = (op, match["task"], match["io"], match["slot"])
        kernels.append((base, int(match["time"]), Kernel(str(path), path, _NO_ORDER)))
    if strangers:
        log.warning(said("files-without-kernel-name", strangers, folder))
    return kernels


def long_names(path: Path) -> dict[str, str]:
    """Name of the file -> name of the kernel, both with ``.npy``, of a ``mapping.csv`` for names that were too long."""
    if not path.is_file():
        return {}
    names: dict[str, str] = {}
    for row in _csv_rows(path):
        if len(row) >= 2:
            short, real = (name.strip() if name.strip().endswith(".npy") else f"{name.strip()}.npy" for name in row[:2])
            names[short] = real
    return names


def _csv_rows(path: Path) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return list(csv.reader(file))
    except OSError as problem:
        raise PathError(said("file-unreadable", path, problem.strerror)) from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InvalidInputError(said("csv-unreadable", path, problem)) from problem


def _statistics_rows(path: Path) -> list[_PlacedKernel]:
    rows = _csv_rows(path)
    header = [word.strip() for word in rows[0]] if rows else []
    missing = [word for word in (*_KEY_COLUMNS, "Data Type", "Shape") if word not in header]
    if len(header) < _LEAST_COLUMNS or missing:
        what = said("lacks-columns", ", ".join(missing)) if missing else said("has-columns", len(header))
        raise InvalidInputError(said("statistics-file-wrong", path, what, STATISTICS_FILE, _LEAST_COLUMNS))
    place = {word: number for number, word in enumerate(header)}
    kernels: list[_PlacedKernel] = []
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(header):
            raise InvalidInputError(said("csv-row-length", path, number, len(row), len(header)))
        cell = {word: row[at].strip() for word, at in place.items()}
        op, task, io, slot = (cell[word] for word in ("Op Name", "Task ID", "IO", "Slot"))
        high, low, mean, norm = (_number(cell.get(word, "")) for word in _VALUE_COLUMNS)
        statistics: Statistics = (high, low, mean, norm)
        side = FileSide(cell["Data Type"], cell["Shape"], statistics)
        name = f"{op}.{task}.{io}.{slot} {path}"
        time = int(cell["Timestamp"]) if cell["Timestamp"].isdigit() else number
        kernels.append(((op, task, io, slot), time, Kernel(name, path, _NO_ORDER, side)))
    return kernels


def _number(text: str) -> Number:
    try:
        return float(text)
    except ValueError:
        return None


def pair_kernels(candidate: dict[Key, Kernel], reference: dict[Key, Kernel]) -> list[KernelPair]:
    """All tensors of both sides, in the candidate's order of execution; at the end what the reference alone has."""
    ours = sorted(candidate, key=lambda key: candidate[key].order)
    alone = sorted((key for key in reference if key not in candidate), key=lambda key: reference[key].order)
    pairs = [KernelPair(candidate[key], reference.get(key)) for key in ours]
    return pairs + [KernelPair(None, reference[key]) for key in alone]


@dataclass(frozen=True)
class StatisticsPair:
    """Two rows of statistics: differences without sign, relative ones as text, accuracy and what is to be said."""

    differences: tuple[Number, ...]
    relative: tuple[str | None, ...]
    accuracy: str
    message: str


def compare_statistics(candidate: FileSide | None, reference: FileSide | None) -> StatisticsPair:
    """Compare what two statistics files say of a tensor.

    Source: the kernel statistics of mindstudio-probe 8.1.1. Ours: a negative reference counts by its size, nothing
    is relative to 0, and rows of another element type are compared, too.
    """
    nothing = (None,) * 4
    if candidate is None or reference is None:
        return StatisticsPair(nothing, nothing, "", said("target-file-missing") if candidate is None else NO_REFERENCE)
    if candidate.shape.replace(" ", "") != reference.shape.replace(" ", ""):
        shapes = said("tensor-shapes-differ", candidate.shape, reference.shape)
        return StatisticsPair(nothing, nothing, "", shapes)
    notes: list[str] = []
    if candidate.dtype != reference.dtype:
        notes.append(said("element-types-differ", candidate.dtype, reference.dtype))
    pairs = list(zip(candidate.statistics, reference.statistics, strict=True))
    differences = tuple(_difference(ours, theirs) for ours, theirs in pairs)
    relative = tuple(
        None if difference is None else _percent(difference, theirs)
        for difference, (_, theirs) in zip(differences, pairs, strict=True)
    )
    if candidate.statistics == NO_STATISTICS or reference.statistics == NO_STATISTICS:
        return StatisticsPair(differences, relative, "", said("one-side-without-statistics"))
    new = any(_is_new(ours, theirs) for ours, theirs in pairs)
    if new:
        notes.append(said("target-not-finite"))
    largest = differences[0]
    close = not new and largest is not None and _ratio(largest, *pairs[0]) <= _MOST_RATIO
    return StatisticsPair(differences, relative, verdicts.YES if close else verdicts.NO, joined(" ", notes))


def _difference(ours: Number, theirs: Number) -> Number:
    if ours is None or theirs is None:
        return None
    return 0.0 if ours == theirs or (ours != ours and theirs != theirs) else abs(ours - theirs)


def _percent(difference: float, theirs: Number) -> str:
    if not theirs or theirs != theirs or difference != difference:
        return "0.0%" if difference == 0 else "N/A"
    return f"{difference / abs(theirs) * 100}%"


def _ratio(difference: float, ours: Number, theirs: Number) -> float:
    return difference / (max(abs(ours or 0.0), abs(theirs or 0.0)) + 1e-10) if difference else 0.0


def _is_new(ours: Number, theirs: Number) -> bool:
    """True for a NaN or an infinity of the target alone."""
    odd = ours is not None and (ours != ours or abs(ours) == float("inf"))
    return odd and not (theirs is not None and (theirs != theirs or abs(theirs) == float("inf")))
