"""The statistics of a dump as a database of the trend viewer: ``dump_data.trend.db``, a row for each tensor and step.

Metrics, statistics and the name of the file are those of mindstudio-probe 26.2.
"""

from __future__ import annotations

import math
import os
import re

from msprobe.diagnose.covered import dump_coverage
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.foreign.budget import BudgetError
from msprobe.messages import said
from msprobe.monitor.convert.arguments import each, raise_all, wrong_process_number
from msprobe.monitor.convert.csv_to_database import Written, first_numbers, placed, read_mapping, renamed
from msprobe.monitor.files import find_runs
from msprobe.monitor.trend_database import new_database
from msprobe.paths import StrPath, check_output_folder, make_folder
from msprobe.store.damage import in_words, lost_parts, missing_ranks, place_in_words
from msprobe.store.reader import Dump, open_dump

FILE_NAME = "dump_data.trend.db"
STATISTICS = ("norm", "max", "min", "mean")
#: What the rows of a record are of, in the order of the viewer.
METRICS = ("forward", "backward", "recompute", "parameters_grad")
_FLOATS = re.compile(r"(?:torch\.)?b?float(?:16|32|64)", re.IGNORECASE)
_MODULES = ("Module.", "Cell.")

#: Metric, name, step, pass of the module in its step, statistics.
_Row = tuple[str, str, int, int, tuple[float, ...]]


def is_dump(data: StrPath) -> bool:
    """True if a folder has a dump and no runs of the monitor."""
    try:
        if find_runs(data):
            return False
    except MsprobeError:
        pass
    try:
        return bool(open_dump(data).steps)
    except MsprobeError:
        return False


def dump_to_database(
    data: StrPath, output: StrPath, *, mapping: StrPath | None = None, micro_step: bool = True, process_num: int = 1
) -> Written:
    """Write the statistics of all floating tensors of a dump to ``dump_data.trend.db`` in ``output``; an existing file
    is replaced.

    The number of a module's pass is its micro step, that of a call stays in its name. The other arguments are those of
    :func:`msprobe.monitor.convert.csv_to_database.csv_to_database`. Raises InvalidInputError and PathError.
    """
    raise_all(wrong_process_number(process_num))
    replacements = read_mapping(mapping) if mapping is not None else {}
    dump = open_dump(data)
    folder = check_output_folder(output)
    places = [(step, rank) for step in dump.steps for rank in dump.ranks(step)]
    unnamed = {rank for _, rank in places if not isinstance(rank, int)}
    if len(unnamed) > 1:
        raise InvalidInputError(said("rank-folders-without-number", data, len(unnamed)))
    read = each(_read_if_whole, [(os.fspath(data), step, rank) for step, rank in places], process_num)
    tables = [rows for rows, _ in read]
    short = [text for _, text in read if text]
    if not any(tables):
        raise InvalidInputError(said("dump-without-float-statistics", data))
    rows_by_rank: dict[int, list[_Row]] = {}
    for (_, rank), rows in zip(places, tables, strict=True):
        rows_by_rank.setdefault(rank if isinstance(rank, int) else 0, []).extend(rows)
    pairs = ((step, micro) for rows in rows_by_rank.values() for _, _, step, micro, _ in rows)
    first_of = first_numbers(pairs) if micro_step else None
    names = renamed(replacements)
    path = make_folder(folder) / FILE_NAME
    with new_database(path) as database:
        for rank, rows in rows_by_rank.items():
            for metric in METRICS:
                own = [(0, name, step, micro, values) for kind, name, step, micro, values in rows if kind == metric]
                if own:
                    database.add(rank, metric, STATISTICS, placed(own, names, first_of))
    count = sum(map(len, tables))
    texts = [*short, *lost_parts(dump), *missing_ranks(dump)]
    covered = dump_coverage({"parts": sum(map(bool, tables)), "rows": count}, texts)
    return Written(path, count, len(rows_by_rank), len(dump.steps), covered)


def _read_if_whole(data: str, step: int | None, rank: int | str) -> tuple[list[_Row], str]:
    """The rows of one rank in one step, and what to say of it if it is not whole."""
    try:
        return _read(data, step, rank)
    except BudgetError:
        raise
    except MsprobeError as problem:
        return [], in_words(step, rank, problem.message)


def _read(data: str, step: int | None, rank: int | str) -> tuple[list[_Row], str]:
    dump: Dump = open_dump(data)
    with_part = dump.part(step, rank)
    try:
        short = "" if with_part.complete else f"{place_in_words(step, rank)}: interrupted"
        tensors = with_part.tensors()
        recomputed = {
            name for name, record in with_part.records() if isinstance(record, dict) and record.get("is_recompute")
        }
    finally:
        with_part.close()
    rows: list[_Row] = []
    for row, entry in enumerate(tensors.entry):
        if tensors.value[row] is not None or not _FLOATS.fullmatch(tensors.dtype[row]) or tensors.nulls[row] == 15:
            continue
        metric, name, micro = _target(entry, entry in recomputed)
        if metric:
            values = tuple(float(getattr(tensors, statistic)[row]) for statistic in STATISTICS)
            if not all(map(math.isnan, values)):  # a digest alone leaves no number
                slot = tensors.slot[row]
                rows.append((metric, f"{name}.{slot}" if slot else name, step or 0, micro, values))
    return rows, short


def _target(entry: str, is_recompute: bool) -> tuple[str, str, int]:
    """Metric, name and pass of a record; no metric for one that is of none of them."""
    words = entry.split(".")
    if "parameters_grad" in words:
        return "parameters_grad", entry.partition(".parameters_grad")[0], 0
    for metric in ("forward", "backward"):
        if metric not in words[1:]:
            continue
        words.reverse()
        words.remove(metric)
        words.reverse()
        micro = 0
        if entry.startswith(_MODULES) and words[-1].isdecimal():
            micro = int(words.pop())
        return "recompute" if is_recompute and metric == "forward" else metric, ".".join(words), micro
    return "", "", 0
