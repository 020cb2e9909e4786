"""csv files of monitored runs as the database of the trend viewer: ``monitor_data.trend.db``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from msprobe.coverage import Coverage
from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.messages import said
from msprobe.monitor.convert.arguments import each, raise_all, wrong_process_number
from msprobe.monitor.coverage import coverage_of_tables
from msprobe.monitor.csv_files import QuantityTable, quantities_of
from msprobe.monitor.files import RunFolder, by_rank, find_runs
from msprobe.monitor.trend_database import FILE_NAME, TrendRow, new_database
from msprobe.monitor.trend_reading import read_quantity
from msprobe.paths import StrPath, check_output_folder, check_readable_file, make_folder

# What 26.2.0 brings into the database, in the order in which it has them; then our own.
QUANTITIES = (
    "actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated",
    "other", "update", "scalars", "attention_hook", "linear_hook", "moe_router_weight_hook", "moe_router_logit_hook",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """``path``: of the database. ``rows``, ``ranks``, ``steps``: how many are in it. ``coverage``: what was read."""

    path: Path
    rows: int
    ranks: int
    steps: int
    coverage: Coverage


def csv_to_database(
    data: StrPath,
    output: StrPath,
    *,
    mapping: StrPath | None = None,
    micro_step: bool = True,
    process_num: int = 1,
) -> Written:
    """Write the runs in ``data`` to ``monitor_data.trend.db`` in the folder ``output``; an existing file is replaced.

    ``mapping``: a JSON file of texts and what replaces them in names, one after the other. ``micro_step``: each micro
    step becomes a step, so that steps are numbered anew; else both are kept. ``process_num``: how many processes read
    files, at most 128. Several runs of a rank are merged, which the log says. Raises InvalidInputError and PathError.
    """
    raise_all(wrong_process_number(process_num))
    replacements = read_mapping(mapping) if mapping is not None else {}
    runs = find_runs(data)
    ranks = by_rank(runs)
    if not ranks:
        raise InvalidInputError(said("no-monitor-runs", data))
    folder = check_output_folder(output)
    tables = _read(ranks, process_num)
    pairs = (zip(table.steps.tolist(), table.micro_steps.tolist(), strict=True) for _, table in tables)
    first_of = first_numbers(chain.from_iterable(pairs)) if micro_step else None
    path = make_folder(folder) / FILE_NAME
    names = renamed(replacements)
    with new_database(path) as database:
        for rank, table in tables:
            rows = (
                (stage, name, step, micro, values)
                for (stage, name, step, micro), values in zip(table.keys(), table.values.tolist(), strict=True)
            )
            database.add(rank, table.quantity, table.ops, placed(rows, names, first_of))
    steps = {step for _, table in tables for step in table.steps.tolist()}
    covered = coverage_of_tables(data, runs, tables)
    return Written(path, sum(len(table) for _, table in tables), len(ranks), len(steps), covered)


def _read(ranks: dict[int, list[RunFolder]], processes: int) -> list[tuple[int, QuantityTable]]:
    """All tables there are, each with its rank."""
    tasks: list[tuple[tuple[RunFolder, ...], str]] = []
    rank_of_task: list[int] = []
    for rank, runs in ranks.items():
        known = {quantity for run in runs for quantity in quantities_of(run.path)}
        rank_tasks = [(tuple(runs), quantity) for quantity in QUANTITIES if quantity in known]
        tasks += rank_tasks
        rank_of_task += [rank] * len(rank_tasks)
    tables = each(read_quantity, tasks, processes)
    return [(rank, table) for rank, table in zip(rank_of_task, tables, strict=True) if table is not None]


def first_numbers(steps: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The new number of each step's first micro step, from 0: as many as the steps before it had at most, together.
    ``steps``: all pairs of step and micro step.
    """
    counts: dict[int, int] = {}
    for step, micro in steps:
        counts[step] = max(counts.get(step, 0), micro + 1)
    numbers: dict[int, int] = {}
    at = 0
    for step in sorted(counts):
        numbers[step] = at
        at += counts[step]
    return numbers


def placed(
    rows: Iterable[TrendRow], names: Callable[[str], str], first_of: Mapping[int, int] | None
) -> Iterator[TrendRow]:
    """The rows under their new ``names``; where ``first_of`` numbers steps anew, each micro step as a step."""
    for stage, name, step, micro, values in rows:
        if first_of is not None:
            step, micro = first_of[step] + micro, 0
        yield stage, names(name), step, micro, values


def renamed(replacements: dict[str, str]) -> Callable[[str], str]:
    """What gives a name with all replacements, one after the other; each name is replaced in once."""

    @cache
    def name_of(name: str) -> str:
        for old, new in replacements.items():
            name = name.replace(old, new)
        return name

    return name_of


def read_mapping(path: StrPath) -> dict[str, str]:
    """A JSON file of texts and what replaces them. Raises PathError or InvalidInputError."""
    file = check_readable_file(path, ".json")
    names = read_json(file)
    if not isinstance(names, dict):
        raise InvalidInputError(said("monitor-mapping-is-no-object", path))
    wrong = [old for old, new in names.items() if not isinstance(new, str) or not old]
    if wrong:
        raise InvalidInputError(said("monitor-mapping-wrong", path, wrong[0]))
    return names
