"""The results of several ranks in one view: for each metric, the tensors of chosen APIs against the ranks.

Works on the sheets that a comparison wrote: those of msprobe and of mindstudio-probe, xlsx or csv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from msprobe import log
from msprobe.compare.problems import ComparisonError
from msprobe.config.declared import Declared, demand, is_list, is_object, is_text, read_declared, wrong
from msprobe.config.mistakes import did_you_mean, raise_in_one_line, shown
from msprobe.config.yaml_source import read_yaml
from msprobe.coverage import Coverage, NotRead
from msprobe.distribution import install
from msprobe.errors import InvalidInputError, NotAvailableError, PathError
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.statistics_table import DIFFERENCES, RELATIVE_ERRORS

Cell = str | float | int | bool | None

NAME = "NPU Name"
NAMES = (NAME, "Name")
STATISTICS_METRICS = (*DIFFERENCES, *RELATIVE_ERRORS)
TENSOR_METRICS = (
    *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
    *("One Thousandth Err Ratio", "Five Thousandths Err Ratio"),
)
# mindstudio-probe 26.2 has it in all of its sheets.
GRAD_METRIC = "Requires_grad Consistent"
METRICS = {"statistics": STATISTICS_METRICS, "tensor": TENSOR_METRICS}
_ALL_METRICS = tuple(dict.fromkeys((*STATISTICS_METRICS, *TENSOR_METRICS, GRAD_METRIC)))

# A metric that says nothing; the values themselves are shown instead (groups of ranks, texts).
_NO_METRIC = ("N/A", "unsupported", "Nan")
_CANDIDATE_VALUE, _REFERENCE_VALUE = "NPU max", "Bench max"
# So many cells are kept to be shared.
_MOST_SHARED = 1 << 18
# compare_result_rank0_{ts}, compare_result_rank0-rank0_{ts} and compare_result_rank_{ts}.
_RESULT = re.compile(r"compare_result_(?P<label>rank(?P<rank>\d*))(?:-rank\d*)?_(?P<time>\d+)\.(?:xlsx|csv)")


class MergeError(ComparisonError):
    """Results cannot be merged: correct the configuration, or give other results."""

    code: ClassVar[int] = 33


@dataclass(frozen=True)
class MergeConfig:
    """What is to be merged.

    ``apis`` are beginnings of names in whole words: ``Torch``, ``Torch.mul``, ``Torch.mul.0``,
    ``Torch.mul.0.forward``. ``metrics`` None stands for all that the results have.
    """

    apis: tuple[str, ...]
    metrics: tuple[str, ...] | None = None

    def place(self, name: str) -> int | None:
        """The place in ``apis`` of the first that a tensor of this name belongs to; None if it is wanted by none."""
        for number, api in enumerate(self.apis):
            if name.startswith(api) and name[len(api) : len(api) + 1] in ("", "."):
                return number
        return None


@dataclass(frozen=True)
class RankResult:
    """The file of one rank; ``label`` is how its folder was called."""

    label: str
    path: Path


@dataclass
class ResultTable:
    """What is needed of one sheet: names, and a column for each metric, of the chosen rows."""

    names: list[str] = field(default_factory=list)
    columns: dict[str, list[Cell]] = field(default_factory=dict)


@dataclass(frozen=True)
class MergedMetric:
    """One metric: ``names`` of tensors, and a column for each rank; None where a rank has no such tensor."""

    metric: str
    labels: tuple[str, ...]
    names: tuple[str, ...]
    columns: tuple[tuple[Cell, ...], ...]


_Name = Annotated[str, AfterValidator(lambda name: name.strip().rstrip(".")), demand((is_text, "a name"))]


def _metric(name: str) -> str:
    if name in _ALL_METRICS:
        return name
    near = did_you_mean(name, _ALL_METRICS) or said("metrics-are", ", ".join(_ALL_METRICS))
    raise wrong(said("no-metric", shown(name), near))


class _File(Declared):
    api: Annotated[list[_Name], demand((lambda names: is_list(names) and names, "a list of names"))] = Field(
        description="give a list of names of APIs"
    )
    compare_index: Annotated[
        list[Annotated[_Name, AfterValidator(_metric)]] | None,
        demand((lambda names: names is None or is_list(names), "a list of names")),
    ] = None


_CONFIGURATION = Annotated[
    _File,
    demand(
        (lambda value: value not in (None, {}, []), lambda _: said("is-empty-give-api")),
        (is_object, lambda _: said("must-be-object-give-api")),
    ),
]


def read_merge_config(path: StrPath) -> MergeConfig:
    """Read the YAML with ``api`` and ``compare_index``. Raises MergeError with all mistakes, or PathError."""
    try:
        source = read_yaml(path, "configuration of merge_result")
    except InvalidInputError as problem:
        raise MergeError(problem.message) from problem
    read = read_declared(_CONFIGURATION, source, "the configuration", unknown="ignored")
    if read.mistakes:
        raise_in_one_line(read.mistakes, MergeError)
    fields: _File = read.value
    return MergeConfig(tuple(dict.fromkeys(fields.api)), tuple(dict.fromkeys(fields.compare_index or ())) or None)


def find_results(folder: StrPath) -> list[RankResult]:
    """The results in a folder by the number of their rank; of several for one rank, the newest.

    Raises PathError if there is no such folder, MergeError if it holds no result of a rank.
    """
    place = Path(folder)
    if not place.is_dir():
        raise PathError(said("results-folder-missing", folder))
    try:
        names = sorted(path.name for path in place.iterdir() if path.is_file())
    except OSError as problem:
        raise PathError(said("folder-unreadable", folder, problem.strerror)) from problem
    matches: dict[str, re.Match[str]] = {}
    for match in filter(None, map(_RESULT.fullmatch, names)):
        label = match["label"] if not match["rank"] else f"rank{int(match['rank'])}"
        # Of one time, csv and xlsx hold the same.
        other = matches.get(label)
        if other is not None:
            older, newer = sorted((other, match), key=lambda match: (match["time"], match[0]))
            log.warning(said("several-results-of-rank", label, folder, newer[0], older[0]))
            match = newer
        matches[label] = match
    if not matches:
        raise MergeError(said("no-results-of-ranks", folder))
    ordered = sorted(matches, key=lambda label: (matches[label]["rank"] != "", int(matches[label]["rank"] or 0)))
    return [RankResult(label, place / matches[label][0]) for label in ordered]


def merge_results(config: MergeConfig, results: Sequence[RankResult]) -> list[MergedMetric]:
    """Read the results and put those of all ranks side by side, a table for each metric.

    Rows are in order of first appearance. Raises MergeError if results are of different modes, have no metrics
    (md5), or not the ones that are asked for, or if no API is found; InvalidInputError for files that are no sheets.
    """
    tables: list[tuple[str, ResultTable]] = []
    shared = _Shared()
    chosen: tuple[str, ...] = ()
    first: tuple[str, Path] | None = None
    for result in results:
        rows = _rows(result.path)
        header = [str(cell) for cell in next(rows, ())]
        mode = _mode(header, result.path)
        if first is None:
            first = mode, result.path
            chosen = _chosen(config, mode, header, result.path)
        elif mode != first[0]:
            raise MergeError(said("results-of-two-kinds", first[1], first[0], result.path, mode))
        tables.append((result.label, _table(header, rows, chosen, config, result.path, shared)))
    if not any(table.names for _, table in tables):
        folder = results[0].path.parent
        raise MergeError(said("results-without-apis", folder, ", ".join(config.apis)))
    return [_merged(metric, tables, config) for metric in chosen]


def coverage_of(config: MergeConfig, results: Sequence[RankResult], merged: Sequence[MergedMetric]) -> Coverage:
    """Which ranks and names are in merged results, and which are not: numbers between ranks without a file, names of
    the configuration that no rank has, tensors that a rank lacks.
    """
    numbers = {int(digits) for result in results if (digits := result.label.removeprefix("rank")).isdigit()}
    missing = [
        NotRead(f"rank{at}", said("no-result-of-rank")) for at in range(max(numbers, default=0)) if at not in numbers
    ]
    names = merged[0].names if merged else ()
    alone = MergeConfig(config.apis)
    there = {alone.place(name) for name in names}
    missing += [NotRead(api, said("api-on-no-rank")) for at, api in enumerate(config.apis) if at not in there]
    for at, label in enumerate(merged[0].labels if merged else ()):
        lacking = [name for name, cell in zip(names, merged[0].columns[at], strict=True) if cell is None]
        if lacking:
            more = ", ..." if len(lacking) > 1 else ""
            missing.append(
                NotRead(
                    said("tensors-missing-of", len(lacking), len(names), f"{lacking[0]}{more}"),
                    said("file-not-in", label),
                )
            )
    return Coverage({"ranks": len(results), "tensors": len(names), "metrics": len(merged)}, tuple(missing))


def _mode(header: Sequence[str], path: Path) -> str:
    if "NPU MD5" in header:
        raise MergeError(said("result-of-digests", path))
    for mode, own in (("statistics", "Max diff"), ("tensor", "Cosine")):
        if own in header:
            return mode
    raise MergeError(said("no-result-of-compare", path))


def _chosen(config: MergeConfig, mode: str, header: Sequence[str], path: Path) -> tuple[str, ...]:
    there = [metric for metric in (*METRICS[mode], GRAD_METRIC) if metric in header]
    if config.metrics is None:
        return tuple(metric for metric in there if metric != GRAD_METRIC)
    missing = [metric for metric in config.metrics if metric not in there]
    if missing:
        raise MergeError(said("metric-not-in-result", path, mode, ", ".join(missing), ", ".join(there)))
    return config.metrics


class _Shared:
    """Names and cells that stand in the sheets of many ranks, each once in memory."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, int | None]] = {}
        self._cells: dict[str, Cell] = {}

    def name(self, written: str, config: MergeConfig) -> tuple[str, int | None]:
        """The name that is written in a sheet, and its place in the configuration."""
        known = self._names.get(written)
        if known is None:
            name = _plain(written.strip())
            known = self._names[written] = name, config.place(name)
        return known

    def cell(self, cell: Cell) -> Cell:
        """The same cell, of the same type and sign."""
        if len(self._cells) > _MOST_SHARED:
            self._cells.clear()
        return self._cells.setdefault(repr(cell), cell)


def _table(
    header: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    metrics: Sequence[str],
    config: MergeConfig,
    path: Path,
    shared: _Shared,
) -> ResultTable:
    place = {word: number for number, word in enumerate(header)}
    name_at = next((place[word] for word in NAMES if word in place), None)
    missing = [metric for metric in metrics if metric not in place]
    if name_at is None or missing:
        raise MergeError(said("result-lacks-column", path, ", ".join(missing) or NAME))
    here, there = place.get(_CANDIDATE_VALUE), place.get(_REFERENCE_VALUE)
    number = _number if path.suffix == ".csv" else _as_it_is
    table = ResultTable(columns={metric: [] for metric in metrics})
    for row in rows:
        name, wanted = shared.name(str(row[name_at]) if len(row) > name_at else "", config)
        if wanted is None:
            continue
        table.names.append(name)
        for metric in metrics:
            cell = number(row[place[metric]]) if place[metric] < len(row) else None
            if cell in _NO_METRIC and here is not None and there is not None and max(here, there) < len(row):
                cell = f"NPU:{_text(number(row[here]))}  Bench:{_text(number(row[there]))}"
            table.columns[metric].append(shared.cell(cell))
    return table


def _merged(metric: str, tables: Sequence[tuple[str, ResultTable]], config: MergeConfig) -> MergedMetric:
    # A name may stand several times in a sheet: the first answers to the first.
    places: dict[tuple[str, int], int] = {}
    columns: list[list[Cell]] = []
    order_of: dict[str, int] = {}
    for _, table in tables:
        seen: dict[str, int] = {}
        column: list[Cell] = [None] * len(places)
        for name in table.names:
            order_of.setdefault(name, config.place(name) or 0)
        # As mindstudio-probe 8.1.1: the APIs of a rank as the configuration lists them, then what the next rank adds.
        order = sorted(range(len(table.names)), key=lambda row: order_of[table.names[row]])
        for name, cell in ((table.names[row], table.columns[metric][row]) for row in order):
            number = seen[name] = seen.get(name, -1) + 1
            place = places.setdefault((name, number), len(places))
            if place < len(column):
                column[place] = cell
            else:
                column.append(cell)
        columns.append(column)
    for column in columns:
        column += [None] * (len(places) - len(column))
    return MergedMetric(
        metric, tuple(label for label, _ in tables), tuple(name for name, _ in places), tuple(map(tuple, columns))
    )


def _plain(name: str) -> str:
    """A name without the apostrophe that keeps spreadsheets from running it."""
    return name[1:] if name.startswith("'") and name[1:2] in "=+-@%＝＋－＠％" else name


def _text(cell: Cell) -> str:
    """A cell as people read it: whole numbers without a point."""
    if isinstance(cell, float) and not isinstance(cell, bool) and cell.is_integer() and abs(cell) < 1 << 53:
        return str(int(cell))
    return "" if cell is None else str(cell).rstrip("\t")


def _rows(path: Path) -> Iterator[Sequence[Cell]]:
    return _csv_rows(path) if path.suffix == ".csv" else _xlsx_rows(path)


def _csv_rows(path: Path) -> Iterator[Sequence[Cell]]:
    csv.field_size_limit(1 << 28)  # call stacks
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file)
    except OSError as problem:
        raise PathError(said("file-unreadable", path, problem.strerror)) from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InvalidInputError(said("csv-unreadable", path, problem)) from problem


def _as_it_is(cell: Cell) -> Cell:
    return cell


def _number(cell: Cell) -> Cell:
    """A finite number as a number; ``inf`` and ``nan`` stay the words they are."""
    text = str(cell).strip()
    if not text or text[-1] not in "0123456789.":
        return text
    try:
        return float(text)
    except ValueError:
        return text


def _xlsx_rows(path: Path) -> Iterator[Sequence[Cell]]:
    """The rows of all sheets in a row; the header stands in each and counts once."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as problem:
        raise NotAvailableError(said("calamine-missing", path, install("compare"))) from problem
    try:
        book = CalamineWorkbook.from_path(str(path))
        header: Sequence[Cell] | None = None
        for name in book.sheet_names:
            for number, cells in enumerate(book.get_sheet_by_name(name).iter_rows()):
                row = [cell if isinstance(cell, (str, float, int)) else str(cell) for cell in cells]
                if number == 0:
                    if header is not None and row != header:
                        raise MergeError(said("sheets-differ", path, name))
                    if header is not None:
                        continue
                    header = row
                yield row
    except OSError as problem:
        raise PathError(said("file-unreadable", path, problem.strerror or problem)) from problem
    except CalamineError as problem:
        raise InvalidInputError(said("xlsx-unreadable", path, problem)) from problem
