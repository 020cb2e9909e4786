"""``multi_ranks_compare_merge_{time}.xlsx``: a sheet for each metric, a row for each tensor, a column for each rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msprobe.compare.merge_results import (
    NAME,
    MergedMetric,
    find_results,
    merge_results,
    read_merge_config,
)
from msprobe.paths import StrPath, check_output_folder, make_folder
from msprobe.report.workbook import Cell, Sheet, write_workbook


def merge_result(input_dir: StrPath, output_dir: StrPath, config_path: StrPath) -> Path:
    """Merge the results of all ranks in ``input_dir`` as the YAML file says; return the path of the workbook.

    Raises MergeError (code 33) for a configuration or results that cannot be merged, PathError for folders and
    files that cannot be used. Nothing is written then.
    """
    config = read_merge_config(config_path)
    check_output_folder(output_dir)
    merged = merge_results(config, find_results(input_dir))
    path = make_folder(output_dir) / f"multi_ranks_compare_merge_{time.strftime('%Y%m%d%H%M%S')}.xlsx"
    write_workbook(path, [_sheet(metric) for metric in merged])
    return path


def _sheet(merged: MergedMetric) -> Sheet:
    columns: list[Sequence[Cell]] = [merged.names, *map(list, zip(*merged.rows, strict=True))]
    widths = [max(map(len, merged.names), default=8), *(18 for _ in merged.labels)]
    return Sheet(merged.metric, (NAME, *merged.labels), [columns], len(merged.names), widths=widths)
