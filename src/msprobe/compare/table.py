"""The sheet of a comparison: its columns, and its cells block by block.

The form "8.1.1" has the columns of mindstudio-probe 8.1.1, the form "26.2" those of 26.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from msprobe.compare.comparison import RowComparison
from msprobe.compare.measures_statistics import Mask
from msprobe.compare.measures_tensor import NOT_A_NUMBER, NOT_AVAILABLE, TENSOR_MEASURES, Form
from msprobe.compare.rows import BOOL, NULL, TEXT, WHOLE, Numbers, Rows
from msprobe.compare.stacks import StackOf
from msprobe.messages import translated
from msprobe.statistics_table import DIFFERENCES, FURTHER, OF_BOTH_SIDES, RELATIVE_ERRORS
from msprobe.store.columns import FurtherColumn

Cell = float | int | str | None
Column = Sequence[Cell]

_BLOCK = 16_384
_HEAD = ("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape")
_GRAD_HEAD = ("NPU Requires_grad", "Bench Requires_grad")
STATISTIC_MEASURES = (*DIFFERENCES, *RELATIVE_ERRORS)
_ABSENT = "None"


@dataclass(frozen=True, eq=False)
class SheetTable:
    """``header`` and the cells. ``blocks`` gives the columns of some thousand rows at a time."""

    header: tuple[str, ...]
    rows: int
    make: Callable[[int, int], list[Column]]

    def blocks(self) -> Iterator[list[Column]]:
        """The rows in order, as lists of columns."""
        for start in range(0, self.rows, _BLOCK):
            yield self.make(start, min(start + _BLOCK, self.rows))


def header_of(mode: str, form: Form, with_stack: bool) -> tuple[str, ...]:
    """The names of the columns."""
    newer = form == "26.2"
    names = [*_HEAD, *(_GRAD_HEAD if newer else ())]
    if mode == "md5":
        names += ["NPU MD5", "BENCH MD5"]
    else:
        names += [*(TENSOR_MEASURES if mode == "tensor" else STATISTIC_MEASURES), *OF_BOTH_SIDES]
    if newer:
        names += ["Requires_grad Consistent", "Result", "Err_message"]
    elif mode == "md5":
        names += ["Result"]
    else:
        names += ["Accuracy Reached or Not" if mode == "tensor" else "Result", "Err_message"]
    names += ["NPU_Stack_Info"] if with_stack else []
    names += ["Data_name"] if mode == "tensor" else []
    return tuple(names)


def table_of(comparison: RowComparison, form: Form = "8.1.1", stacks: StackOf | None = None) -> SheetTable:
    """The table of a comparison; ``stacks`` adds the call stack on the first row of each API."""
    if form == "26.2":
        from msprobe.compare.table_newer import newer_columns

        make = newer_columns(comparison, stacks)
    else:
        cells = Cells(comparison, stacks)

        def make(start: int, stop: int) -> list[Column]:
            return _columns(cells, start, stop)

    further = FurtherCells(comparison)

    def make_all(start: int, stop: int) -> list[Column]:
        return [*make(start, stop), *further.columns(start, stop)]

    header = (*header_of(comparison.mode, form, stacks is not None), *further.header)
    return SheetTable(header, len(comparison), make_all if further.header else make)


def _columns(cells: Cells, start: int, stop: int) -> list[Column]:
    mode = cells.comparison.mode
    columns = cells.head(start, stop)
    if mode == "md5":
        columns += [*cells.digests(start, stop), cells.verdicts(start, stop)]
    else:
        columns += cells.tensor_measures(start, stop) if mode == "tensor" else cells.differences(start, stop)
        columns += [*cells.statistics(start, stop), cells.verdicts(start, stop), cells.messages(start, stop)]
    if cells.with_stack:
        columns.append(cells.stacks(start, stop))
    if mode == "tensor":
        columns.append(cells.data_names(start, stop))
    return columns


class Cells:
    """The columns of the form 8.1.1, each from row ``start`` to ``stop``."""

    def __init__(self, comparison: RowComparison, stacks: StackOf | None) -> None:
        self.comparison = comparison
        self.with_stack = stacks is not None
        self._stack_of: StackOf = stacks or (lambda _: [])
        self._first = np.zeros(len(comparison), np.bool_)
        self._first[comparison.candidate.starts] = True

    def head(self, start: int, stop: int) -> list[Column]:
        """Names, types and shapes of both sides."""
        ours, theirs = self.comparison.candidate, self.comparison.reference
        partner = self.comparison.pairing.partner[start:stop].tolist()
        dtype, shape = ours.dtype[start:stop].tolist(), ours.shape[start:stop].tolist()
        their_dtype, their_shape = theirs.dtype.tolist(), theirs.shape.tolist()
        return [
            ours.name[start:stop],
            [theirs.name[row] if row >= 0 else NOT_AVAILABLE for row in partner],
            [ours.dtypes[code] for code in dtype],
            [theirs.dtypes[their_dtype[row]] if row >= 0 else NOT_AVAILABLE for row in partner],
            [ours.shapes[code] for code in shape],
            [theirs.shapes[their_shape[row]] if row >= 0 else NOT_AVAILABLE for row in partner],
        ]

    def statistics(self, start: int, stop: int) -> list[Column]:
        """The statistics of both sides."""
        comparison = self.comparison
        rows = np.arange(start, stop)
        partner = comparison.pairing.partner[start:stop]
        return [
            *statistic_cells(comparison.candidate, rows),
            *statistic_cells(comparison.reference, partner),
        ]

    def differences(self, start: int, stop: int) -> list[Column]:
        """Differences and relative errors of the statistics."""
        statistics = self.comparison.statistics
        columns: list[Column] = []
        for statistic in range(4):
            known = statistics.comparable[statistic, start:stop]
            columns.append(_numbers(statistics.difference[statistic, start:stop], known))
        for statistic in range(4):
            known = statistics.comparable[statistic, start:stop]
            columns.append(
                _percentages(
                    statistics.relative[statistic, start:stop],
                    known,
                    statistics.reference[statistic, start:stop] == 0,
                    np.isnan(statistics.difference[statistic, start:stop]),
                )
            )
        return columns

    def tensor_measures(self, start: int, stop: int) -> list[Column]:
        """The six measures of tensors."""
        tensors = self.comparison.tensors or []
        return [list(column) for column in zip(*(measured.values for measured in tensors[start:stop]), strict=True)]

    def digests(self, start: int, stop: int) -> list[Column]:
        """The digests of both sides."""
        theirs = self.comparison.reference.md5
        partner = self.comparison.pairing.partner[start:stop].tolist()
        return [
            [digest or NOT_AVAILABLE for digest in self.comparison.candidate.md5[start:stop]],
            [(theirs[row] or NOT_AVAILABLE) if row >= 0 else NOT_AVAILABLE for row in partner],
        ]

    def verdicts(self, start: int, stop: int) -> Column:
        """Accuracy or result."""
        return self.comparison.verdict[start:stop]

    def messages(self, start: int, stop: int) -> Column:
        """What the reader should know of a row."""
        messages = self.comparison.messages
        return ["\n".join(map(translated, messages[row])) if row in messages else "" for row in range(start, stop)]

    def stacks(self, start: int, stop: int) -> Column:
        """The call stack, on the first row of each API."""
        ours = self.comparison.candidate
        entry = ours.entry[start:stop].tolist()
        first = self._first[start:stop].tolist()
        known: dict[int, str] = {}
        cells: list[Cell] = []
        for number, begins in zip(entry, first, strict=True):
            frames = self._stack_of(ours.entries[number]) if begins else []
            if not frames:
                cells.append(NOT_AVAILABLE)
                continue
            text = known.get(id(frames))
            if text is None:
                text = known[id(frames)] = str(frames)
            cells.append(text)
        return cells

    def data_names(self, start: int, stop: int) -> Column:
        """The data files of both sides, as the text of a list."""
        ours, theirs = self.comparison.candidate.data_name, self.comparison.reference.data_name
        partner = self.comparison.pairing.partner[start:stop].tolist()
        return [
            str([ours[start + i] or "-1", (theirs[row] or "-1") if row >= 0 else NOT_AVAILABLE])
            for i, row in enumerate(partner)
        ]


class FurtherCells:
    """Statistics beyond the usual ones, where one of the dumps has them: differences, errors, and both sides."""

    def __init__(self, comparison: RowComparison) -> None:
        self._rows = comparison.candidate, comparison.reference
        self._partner = comparison.pairing.partner
        ours, theirs = ({column.statistic: column for column in rows.further} for rows in self._rows)
        self._pairs = [
            (ours.get(statistic), theirs.get(statistic))
            for statistic in FURTHER
            if statistic in ours or statistic in theirs
        ]
        there = [statistic for statistic in FURTHER if statistic in ours or statistic in theirs]
        self.header = (
            *(statistic.difference for statistic in there),
            *(statistic.relative for statistic in there),
            *(f"{side} {statistic.name}" for side in ("NPU", "Bench") for statistic in there),
        )

    def columns(self, start: int, stop: int) -> list[Column]:
        """The columns from row ``start`` to ``stop``."""
        differences: list[Column] = []
        relative: list[Column] = []
        sides: tuple[list[Column], list[Column]] = [], []
        chosen = np.arange(start, stop), self._partner[start:stop]
        for pair in self._pairs:
            columns = [_statistic_of_rows(column, rows) for column, rows in zip(pair, chosen, strict=True)]
            (ours, known), (theirs, known_there) = columns
            both = known & known_there
            with np.errstate(all="ignore"):
                difference = ours - theirs
                percent = np.abs(difference / theirs * 100.0)
            differences.append(_numbers(difference, both))
            relative.append(_percentages(percent, both, theirs == 0, np.isnan(difference)))
            for cells, (values, there), rows, places in zip(sides, columns, self._rows, chosen, strict=True):
                cells.append(_further_cells(values, there, rows, places))
        return [*differences, *relative, *sides[0], *sides[1]]


def _statistic_of_rows(column: FurtherColumn | None, chosen: npt.NDArray[np.int64]) -> tuple[Numbers, Mask]:
    """A statistic of chosen rows, and where it is known; -1 stands for no row."""
    if column is None or not len(column.values):
        return np.full(len(chosen), np.nan), np.zeros(len(chosen), np.bool_)
    there = chosen >= 0
    safe = np.where(there, chosen, 0)
    return np.where(there, column.values[safe], np.nan), column.known[safe] & there


def _further_cells(values: Numbers, known: Mask, rows: Rows, chosen: npt.NDArray[np.int64]) -> Column:
    """The statistic of one side: ``None`` where a tensor has none, N/A where there is no tensor."""
    cells = list(_numbers(values, known))
    for place in np.flatnonzero(~known & (chosen >= 0)).tolist():
        if rows.is_tensor[chosen[place]]:
            cells[place] = _ABSENT
    return cells


def statistic_cells(rows: Rows, chosen: npt.NDArray[np.int64]) -> list[Column]:
    """The four statistics of chosen rows; -1 stands for no row."""
    there = chosen >= 0
    safe = np.where(there, chosen, 0)
    columns: list[Column] = []
    for statistic in range(4):
        if not len(rows):
            columns.append([NOT_AVAILABLE] * len(chosen))
            continue
        numbers = rows.numbers[statistic][safe]
        kinds = np.where(there, rows.kind(statistic)[safe], 255)
        cells: list[Cell] = numbers.tolist()
        odd = np.flatnonzero((kinds != 0) | np.isnan(numbers))
        for place, kind in zip(odd.tolist(), kinds[odd].tolist(), strict=True):
            number = cells[place]
            if kind == 255:
                cells[place] = NOT_AVAILABLE
            elif kind == NULL:
                cells[place] = _ABSENT
            elif kind == BOOL:
                cells[place] = str(bool(number))
            elif kind == TEXT:
                cells[place] = rows.texts[int(chosen[place])]
            elif kind == WHOLE and isinstance(number, float) and np.isfinite(number):
                row = int(chosen[place])
                cells[place] = rows.exact.get((statistic, row), int(number))
            elif number != number:
                cells[place] = NOT_A_NUMBER
        columns.append(cells)
    return columns


def _numbers(values: Numbers, known: Mask) -> Column:
    cells: list[Cell] = values.tolist()
    for place in np.flatnonzero(~known | np.isnan(values)).tolist():
        cells[place] = NOT_A_NUMBER if known[place] else NOT_AVAILABLE
    return cells


def _percentages(values: Numbers, known: Mask, zero: Mask, nan: Mask) -> Column:
    """Relative errors as text; nothing is relative to 0."""
    cells: list[Cell] = ["0.0%" if value == 0.0 else f"{value!r}%" for value in values.tolist()]
    for place in np.flatnonzero(~known | zero | nan).tolist():
        cells[place] = NOT_A_NUMBER if known[place] and nan[place] else NOT_AVAILABLE
    return cells
