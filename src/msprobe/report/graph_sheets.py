"""The sheets of comparisons of MindSpore graphs: kernels (xlsx) and single points (csv).

Source of columns and names of files: mindstudio-probe 8.1.1.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msprobe import log
from msprobe.compare.array_files import FilePair, FileSide, compare_array_files
from msprobe.compare.kernels import (
    Kernel,
    KernelPair,
    Key,
    common_places,
    compare_statistics,
    find_steps,
    pair_kernels,
    read_kernels,
)
from msprobe.compare.measures_tensor import TENSOR_MEASURES
from msprobe.compare.problems import InvalidPathError
from msprobe.compare.single_points import PointPair, pair_points
from msprobe.compare.table import STATISTIC_MEASURES
from msprobe.errors import MsprobeError
from msprobe.messages import said, translated
from msprobe.paths import StrPath, check_output_folder, make_folder, make_folder_in
from msprobe.report.csv_table import write_csv
from msprobe.report.workbook import Cell, Sheet, write_workbook
from msprobe.statistics_table import OF_BOTH_SIDES

_TYPES = ("NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape")
_VERDICT = ("Accuracy Reached or Not", "Err_message")
_KERNEL_HEAD = ("NPU Name", "Bench Name", *_TYPES, *OF_BOTH_SIDES, *_VERDICT)
KERNEL_COLUMNS = {
    "npy": (*_KERNEL_HEAD, *TENSOR_MEASURES),
    "statistic": (*_KERNEL_HEAD, *STATISTIC_MEASURES),
}
POINT_COLUMNS = ("Name", *_TYPES, *TENSOR_MEASURES, *OF_BOTH_SIDES, *_VERDICT, "Data_name")


def compare_kernels(
    candidate: StrPath, reference: StrPath, output: StrPath, ranks: Collection[int] = (), steps: Collection[int] = ()
) -> list[Path]:
    """Compare kernel dumps, all ranks and steps that both have and that are asked for; return the sheets.

    A rank and step that cannot be compared is reported, and the others are. Raises the errors of
    :mod:`msprobe.compare.kernels`; those of a single rank and step only if no other could be compared.
    """
    folder = check_output_folder(output)
    ours, theirs = find_steps(Path(candidate), "npu_path"), find_steps(Path(reference), "bench_path")
    written: list[Path] = []
    first: MsprobeError | None = None
    for rank, step in common_places(ours, theirs, ranks, steps):
        try:
            header, rows = _kernel_rows(ours[rank, step], theirs[rank, step])
        except MsprobeError as problem:
            log.error(said("rank-step-not-compared", rank, step, problem.message))
            first = first or problem
            continue
        path = make_folder(folder) / f"compare_result_{rank}_{step}_{time.strftime('%Y%m%d%H%M%S')}.xlsx"
        write_workbook(path, [Sheet("Sheet1", header, [_transposed(rows, len(header))], len(rows))])
        log.info(said("rank-step-compared", rank, step, path))
        written.append(path)
    if not written and first is not None:
        raise first
    return written


def _kernel_rows(ours: Sequence[Path], theirs: Sequence[Path]) -> tuple[tuple[str, ...], list[list[Cell]]]:
    kind, mine = read_kernels(ours)
    other, partners = read_kernels(theirs)
    if kind != other:
        raise InvalidPathError(said("kinds-of-files-differ", ours[0], _KINDS[kind], theirs[0], _KINDS[other]))
    rows = _statistics_rows(mine, partners) if kind == "statistic" else _array_rows(mine, partners)
    return KERNEL_COLUMNS[kind], rows


_KINDS = {"npy": ".npy files", "statistic": "a statistic.csv"}


def _array_rows(ours: dict[Key, Kernel], theirs: dict[Key, Kernel]) -> list[list[Cell]]:
    rows = []
    for pair in pair_kernels(ours, theirs):
        measured = compare_array_files(*(None if kernel is None else kernel.path for kernel in _sides(pair)))
        rows.append(
            [
                *_names(pair),
                *_types(measured.candidate, measured.reference),
                *measured.candidate.statistics,
                *measured.reference.statistics,
                measured.accuracy,
                translated(measured.message),
                *measured.measures,
            ]
        )
    return rows


def _statistics_rows(ours: dict[Key, Kernel], theirs: dict[Key, Kernel]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for pair in pair_kernels(ours, theirs):
        mine, partner = (None if kernel is None else kernel.side for kernel in _sides(pair))
        measured = compare_statistics(mine, partner)
        left, right = mine or FileSide(), partner or FileSide()
        rows.append(
            [
                *_names(pair),
                *_types(left, right),
                *left.statistics,
                *right.statistics,
                measured.accuracy,
                translated(measured.message),
                *measured.differences,
                *measured.relative,
            ]
        )
    return rows


def _sides(pair: KernelPair) -> tuple[Kernel | None, Kernel | None]:
    return pair.candidate, pair.reference


def _names(pair: KernelPair) -> list[Cell]:
    return ["" if kernel is None else kernel.name for kernel in _sides(pair)]


def _types(ours: FileSide, theirs: FileSide) -> tuple[str, str, str, str]:
    return ours.dtype, theirs.dtype, ours.shape, theirs.shape


def compare_points(
    candidate: StrPath, reference: StrPath, output: StrPath, names: Mapping[str, str] | None = None
) -> list[Path]:
    """Compare what graphs saved at single points; ``result.csv`` in each sub-folder of the same name.

    ``names`` gives the reference's name for a name of the candidate. Raises InvalidPathError or PathError.
    """
    folder = check_output_folder(output)
    written = []
    for place, pairs in pair_points(Path(candidate), Path(reference), names or {}).items():
        rows = [_point_row(pair, compare_array_files(pair.candidate, pair.reference)) for pair in pairs]
        path = make_folder_in(folder, str(place)) / "result.csv"
        write_csv(path, POINT_COLUMNS, [_transposed(rows, len(POINT_COLUMNS))])
        log.info(f"written: {path}")
        written.append(path)
    return written


def _point_row(pair: PointPair, files: FilePair) -> list[Cell]:
    reference = "N/A" if pair.reference is None else pair.reference.name
    return [
        pair.name,
        *_types(files.candidate, files.reference),
        *files.measures,
        *files.candidate.statistics,
        *files.reference.statistics,
        files.accuracy,
        translated(files.message),
        str([pair.candidate.name, reference]),
    ]


def _transposed(rows: Sequence[Sequence[Cell]], width: int) -> list[Sequence[Cell]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
