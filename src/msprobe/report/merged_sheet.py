"""``multi_ranks_compare_merge_{time}.xlsx``: a sheet for each metric, a row for each tensor, a column for each rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msprobe import coverage
from msprobe.compare.merge_results import (
    NAME,
    MergedMetric,
    coverage_of,
    find_results,
    merge_results,
    read_merge_config,
)
from msprobe.coverage import Coverage
from msprobe.paths import StrPath, check_output_folder, make_folder
from msprobe.report.workbook import Cell, Sheet, write_workbook


def merge_result(input_dir: StrPath, output_dir: StrPath, config_path: StrPath) -> Path:
    """Merge the results of all ranks in ``input_dir`` as the YAML file says; return the path of the workbook."""
    return merge_with_coverage(input_dir, output_dir, config_path)[0]


def merge_with_coverage(input_dir: StrPath, output_dir: StrPath, config_path: StrPath) -> tuple[Path, Coverage]:
    """The workbook, and what of the ranks is in it; the second is written beside the first, as JSON.

    Raises MergeError (code 33) for a configuration or results that cannot be merged, PathError for folders and
    files that cannot be used. Nothing is written then.
    """
    config = read_merge_config(config_path)
    check_output_folder(output_dir)
    results = find_results(input_dir)
    merged = merge_results(config, results)
    path = make_folder(output_dir) / f"multi_ranks_compare_merge_{time.strftime('%Y%m%d%H%M%S')}.xlsx"
    write_workbook(path, [_sheet(metric) for metric in merged])
    covered = coverage_of(config, results, merged)
    coverage.write(covered, path.with_suffix(".json"))
    return path, covered


def _sheet(merged: MergedMetric) -> Sheet:
    columns: list[Sequence[Cell]] = [merged.names, *merged.columns]
    widths = [max(map(len, merged.names), default=8), *(18 for _ in merged.labels)]
    return Sheet(merged.metric, (NAME, *merged.labels), [columns], len(merged.names), widths=widths)
