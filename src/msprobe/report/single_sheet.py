"""``{key}.xlsx``: what two runs saved with ``SingleSave``, array against array."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msprobe import log
from msprobe.compare.single_results import ArrayPlace, SingleMeasures, common_places, measured, saved_arrays
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder, make_folder
from msprobe.report.workbook import Cell, Sheet, write_workbook

# As mindstudio-probe 8.1.1 has them: the share of equal elements in percent, the index of the first different one,
# the largest absolute and relative error, the shares of elements within one thousandth and one hundredth.
COLUMNS = (
    *("step", "rank", "micro_step", "id", "shape1", "shape2"),
    *("相同元素百分比(%)", "首个不匹配元素索引", "最大绝对误差", "最大相对误差"),
    *("误差在千分之一内元素占比(%)", "误差在百分之一内元素占比(%)"),
)


class SingleComparator:
    """Compares what two runs saved with ``SingleSave``."""

    @staticmethod
    def compare(
        dir1: StrPath, dir2: StrPath, output_path: StrPath = "./msprobe_compare_output", num_processes: int = 8
    ) -> list[Path]:
        """Write ``{key}.xlsx`` for each key that both folders have, and return the paths.

        ``num_processes`` keys are compared at a time. Raises PathError for folders that cannot be used,
        InvalidInputError for another argument, or if the folders have nothing in common.
        """
        if isinstance(num_processes, bool) or not isinstance(num_processes, int) or num_processes < 1:
            raise InvalidInputError(said("num-processes-wrong", num_processes))
        check_output_folder(output_path)
        first, second = saved_arrays(dir1), saved_arrays(dir2)
        common = common_places(first, second)
        folder = make_folder(output_path)

        def write(key: str) -> Path:
            rows = list(measured(first[key], second[key], common[key]))
            path = folder / f"{key}.xlsx"
            write_workbook(path, [_sheet(rows)])
            return path

        with ThreadPoolExecutor(min(num_processes, len(common))) as pool:
            written = list(pool.map(write, common))
        log.info(said("keys-compared", len(written), folder))
        return written


def _sheet(rows: Sequence[tuple[ArrayPlace, SingleMeasures]]) -> Sheet:
    cells = [_cells(place, measures) for place, measures in rows]
    columns: list[Sequence[Cell]] = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in COLUMNS]
    return Sheet("Sheet1", COLUMNS, [columns], len(cells))


def _cells(place: ArrayPlace, measures: SingleMeasures) -> tuple[Cell, ...]:
    return (
        place.step,
        place.rank,
        place.micro_step,
        place.id,
        str(list(measures.shape1)),
        str(list(measures.shape2)),
        measures.equal_share,
        measures.first_difference,
        measures.largest_error,
        measures.largest_relative_error,
        measures.share_within_thousandth,
        measures.share_within_hundredth,
    )
