"""csv files of monitored runs as event files: ``{output}/rank{r}/{data type}``, one scalar for each number."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msprobe import log
from msprobe.coverage import Coverage
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.monitor.convert.arguments import (
    DATA_TYPES,
    between,
    each,
    raise_all,
    wrong_data_types,
    wrong_process_number,
    wrong_times,
)
from msprobe.monitor.coverage import coverage_of_tables
from msprobe.monitor.csv_files import QuantityTable, quantities_of
from msprobe.monitor.files import RunFolder, by_rank, find_runs, stamp_text
from msprobe.monitor.sinks.event_file import EventFile, check_installed
from msprobe.monitor.trend_reading import read_quantity
from msprobe.paths import StrPath, check_output_folder, make_folder_in


def csv2tensorboard_by_step(
    monitor_path: StrPath,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: StrPath | None = None,
) -> Path:
    """Convert the runs in ``monitor_path`` whose stamp lies between the two, both included; the folder of the result.

    ``process_num``: how many processes work at once, at most 128. ``data_type_list``: some of ``actv actv_grad exp_avg
    exp_avg_sq grad_unreduced grad_reduced param_origin param_updated``; all by default. ``output_dirpath``: by default
    a new folder in ``monitor_path``. Several runs of a rank are merged, which the log says.

    Tags are ``vp{chunk}:{name}[:micro{m}]/{operator}``. Raises ConversionArgumentError (a ValueError), PathError and
    NotAvailableError.
    """
    return convert(monitor_path, time_start, time_end, process_num, data_type_list, output_dirpath)[0]


def convert(
    monitor_path: StrPath,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: StrPath | None = None,
) -> tuple[Path, Coverage]:
    """The same as :func:`csv2tensorboard_by_step`, with what was read and what not."""
    raise_all(wrong_times(time_start, time_end) + wrong_process_number(process_num) + wrong_data_types(data_type_list))
    check_installed()
    runs = between(find_runs(monitor_path), time_start, time_end)
    if not runs:
        raise InvalidInputError(
            said("no-monitor-runs-between", monitor_path, time_start or "the first", time_end or "the last")
        )
    default = os.path.join(monitor_path, f"{stamp_text(time.time())}-csv2tensorboard_by_step")
    output = check_output_folder(default if output_dirpath is None else output_dirpath)
    wanted = DATA_TYPES if data_type_list is None else tuple(dict.fromkeys(data_type_list))
    tasks = [
        (tuple(folders_of_rank), quantity, str(output), f"rank{rank}")
        for rank, folders_of_rank in by_rank(runs).items()
        for quantity in wanted
        if any(quantity in quantities_of(run.path) for run in folders_of_rank)
    ]
    written_tables = each(_convert, tasks, process_num)
    written = sum(table.values.size for table in written_tables if table is not None)
    log.info(said("monitor-numbers-written", written, len(tasks), output))
    tables = [(task[0][0].rank, table) for task, table in zip(tasks, written_tables, strict=True) if table is not None]
    return output, coverage_of_tables(monitor_path, runs, tables)


def _convert(runs: Sequence[RunFolder], quantity: str, output: str, rank: str) -> QuantityTable | None:
    """One quantity of one rank."""
    table = read_quantity(runs, quantity)
    if table is None or not len(table):
        return None
    file = EventFile(make_folder_in(output, rank, quantity))
    try:
        for step in np.unique(table.steps).tolist():
            file.add(step, _scalars(table, np.flatnonzero(table.steps == step).tolist()))
    finally:
        file.close()
    return table


def _scalars(table: QuantityTable, rows: Sequence[int]) -> list[tuple[str, float]]:
    scalars = []
    for row in rows:
        micro = f":micro{table.micro_steps[row]}" if table.has_micro_steps else ""
        tag = f"vp{table.stages[row]}:{table.names[row]}{micro}"
        scalars += [(f"{tag}/{op}", float(value)) for op, value in zip(table.ops, table.values[row], strict=True)]
    return scalars
