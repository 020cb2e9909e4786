"""Read the values of paired rows and measure them, in the way and order of the sheet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from msprobe.compare.matching import DIFFERENT, FAMILY, Agreement, RowPairing
from msprobe.compare.measures_tensor import UNSUPPORTED, Form, TensorMeasures, all_six, measure_tensors
from msprobe.compare.own_metrics import OwnMetrics
from msprobe.compare.rows import Rows
from msprobe.errors import MsprobeError
from msprobe.messages import Wording, said
from msprobe.store.dtypes import Array
from msprobe.store.part import DumpPart
from msprobe.store.values import read_values

# What is done to the values of a file before they are compared: side (0 or 1), data name and values -> values.
Prepare = Callable[[int, str, Array], Array]
# A row and the data files of both sides; a row and its measures.
_Item = tuple[int, str, str]
_Result = tuple[int, TensorMeasures]

NO_PARTNER = "No bench data matched."


@dataclass(frozen=True)
class PairMeasures:
    """How the values of a pair are measured: by the formulas of ``form``, after ``prepare`` had them, and by the
    metrics of the user besides. ``views``: values with as many elements are compared in the bench's shape.
    """

    form: Form = "8.1.1"
    prepare: Prepare | None = None
    own: OwnMetrics | None = None
    views: bool = False

    def of(self, target: Array, bench: Array) -> TensorMeasures:
        """The measures of two arrays."""
        if self.views and target.shape != bench.shape and target.size == bench.size:
            target = target.reshape(bench.shape)
        measures = measure_tensors(target, bench, self.form)
        return measures if self.own is None else replace(measures, own=self.own.measure(target, bench))


def measure_values(
    candidate: Rows,
    reference: Rows,
    pairing: RowPairing,
    agree: Agreement,
    parts: tuple[DumpPart, DumpPart],
    measures: PairMeasures,
    jobs: int = 1,
) -> list[TensorMeasures]:
    """The measures of every row. A file that cannot be read is a note in its row; the others go on."""
    measures_of_rows: list[TensorMeasures | None] = [None] * len(candidate)
    work: list[_Item] = []
    for row, partner in enumerate(pairing.partner.tolist()):
        if partner < 0:
            measures_of_rows[row] = all_six(UNSUPPORTED, NO_PARTNER)
            continue
        ours, theirs = candidate.data_name[row], reference.data_name[partner]
        if ours is None and theirs is None:
            measures_of_rows[row] = all_six(UNSUPPORTED, *_without_files(candidate, reference, row, partner))
        elif ours is None:
            measures_of_rows[row] = all_six(UNSUPPORTED, said("target-without-data-file"))
        elif theirs is None:
            measures_of_rows[row] = all_six(UNSUPPORTED, said("bench-without-data-file"))
        else:
            work.append((row, ours, theirs))

    def measured(item: _Item) -> _Result:
        row, ours, theirs = item
        found_here = _measure_files(parts, ours, theirs, measures)
        return row, _with_types(found_here, agree, row, candidate, reference, pairing)

    for row, result in _all(measured, work, jobs):
        measures_of_rows[row] = result
    return [result for result in measures_of_rows if result is not None]


def _all(measured: Callable[[_Item], _Result], work: list[_Item], jobs: int) -> Iterator[_Result]:
    if jobs <= 1:
        yield from map(measured, work)
        return
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(measured, work)


def _measure_files(parts: tuple[DumpPart, DumpPart], ours: str, theirs: str, measures: PairMeasures) -> TensorMeasures:
    arrays: list[Array] = []
    for side, part, name in (("side-target", parts[0], ours), ("side-bench", parts[1], theirs)):
        try:
            array = read_values(part.tensor_path(name)).array
            arrays.append(array if measures.prepare is None else measures.prepare(len(arrays), name, array))
        except MsprobeError as problem:
            note = said("data-file-unreadable", said(side), os.path.basename(name), problem.message)
            return all_six(UNSUPPORTED, note)
    try:
        return measures.of(arrays[0], arrays[1])
    except OSError as problem:  # a mapped file on a disk that fails
        return all_six(UNSUPPORTED, said("data-files-unreadable", ours, theirs, problem))


def is_unreadable(note: str) -> bool:
    """Whether a note says that a file of values could not be read."""
    entry = note.entry if isinstance(note, Wording) else None
    return entry is not None and entry.name in ("data-file-unreadable", "data-files-unreadable")


def _with_types(
    measures: TensorMeasures, agree: Agreement, row: int, candidate: Rows, reference: Rows, pairing: RowPairing
) -> TensorMeasures:
    if agree.dtype[row] not in (FAMILY, DIFFERENT):
        return measures
    types = candidate.dtypes[candidate.dtype[row]], reference.dtypes[reference.dtype[int(pairing.partner[row])]]
    note = said("element-types-differ", *types)
    return replace(measures, notes=(*measures.notes, note))


def _without_files(candidate: Rows, reference: Rows, row: int, partner: int) -> Iterator[str]:
    """Why a pair has no values to compare, and whether it differs nevertheless."""
    if candidate.is_tensor[row] or reference.is_tensor[partner]:
        yield said("no-data-file")
        return
    yield said("row-is-no-tensor")
    # The digest of an argument is that of its text.
    if candidate.md5[row] != reference.md5[partner]:
        yield said("two-values-differ")
