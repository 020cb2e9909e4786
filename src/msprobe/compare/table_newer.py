"""The cells of the form 26.2, where they differ from those of 8.1.1.

Source: mindstudio-probe 26.2.0. Ours: rows that cannot be compared, and NaN that the bench has not, do not pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np

from msprobe.compare.comparison import RowComparison
from msprobe.compare.indicators import indicators
from msprobe.compare.measures_tensor import NOT_A_NUMBER, NOT_AVAILABLE
from msprobe.compare.rows import Rows
from msprobe.compare.stacks import StackOf
from msprobe.compare.table import Cell, Cells, Column, statistic_cells
from msprobe.messages import translated

_DIFFERENT_KINDS = "Diff"
_NO_VALUE = "N/A"
_DEVICES = ("cpu", "cuda", "npu", "mps", "xpu", "meta")


def newer_columns(comparison: RowComparison, stacks: StackOf | None) -> Callable[[int, int], list[Column]]:
    """Gives the columns of the rows from ``start`` to ``stop``."""
    cells = _NewerCells(comparison, stacks)

    def make(start: int, stop: int) -> list[Column]:
        columns = [*cells.head(start, stop), *cells.requires_grad(start, stop)]
        if comparison.mode == "md5":
            columns += cells.digests(start, stop)
        else:
            tensors = comparison.mode == "tensor"
            columns += cells.tensor_measures(start, stop) if tensors else cells.differences(start, stop)
            columns += cells.statistics(start, stop)
        columns += [cells.consistent(start, stop), cells.verdicts(start, stop), cells.messages(start, stop)]
        if stacks is not None:
            columns.append(cells.stacks(start, stop))
        if comparison.mode == "tensor":
            columns.append(cells.data_names(start, stop))
        return columns

    return make


class _NewerCells(Cells):
    def __init__(self, comparison: RowComparison, stacks: StackOf | None) -> None:
        super().__init__(comparison, stacks)
        self._sentences = indicators(comparison)

    def head(self, start: int, stop: int) -> list[Column]:
        """As in 8.1.1, with N/A for the type and shape of what is null."""
        columns = super().head(start, stop)
        return [*columns[:2], *([_NO_VALUE if cell == "None" else cell for cell in column] for column in columns[2:])]

    def requires_grad(self, start: int, stop: int) -> list[Column]:
        """True or False, N/A where nothing is said."""
        words = {1: "True", 0: "False"}
        partner = self.comparison.pairing.partner[start:stop].tolist()
        theirs = self.comparison.reference.requires_grad.tolist()
        return [
            [words.get(flag, _NO_VALUE) for flag in self.comparison.candidate.requires_grad[start:stop].tolist()],
            [words.get(theirs[row], _NO_VALUE) if row >= 0 else _NO_VALUE for row in partner],
        ]

    def consistent(self, start: int, stop: int) -> Column:
        """True where both sides say the same."""
        ours, theirs = self.requires_grad(start, stop)
        return [str(a == b) for a, b in zip(ours, theirs, strict=True)]

    def differences(self, start: int, stop: int) -> list[Column]:
        """Equal cells differ by 0; what cannot be subtracted is ``Diff``."""
        comparison = self.comparison
        rows, partner = np.arange(start, stop), comparison.pairing.partner[start:stop]
        differences: list[Column] = []
        relatives: list[Column] = []
        statistics = comparison.statistics
        pairs = zip(
            statistic_cells(comparison.candidate, rows), statistic_cells(comparison.reference, partner), strict=True
        )
        for statistic, (ours, theirs) in enumerate(pairs):
            exact = statistics.difference[statistic, start:stop].tolist()
            both = [_difference(a, b, difference) for a, b, difference in zip(ours, theirs, exact, strict=True)]
            differences.append([pair[0] for pair in both])
            relatives.append([pair[1] for pair in both])
        return [*differences, *relatives]

    def verdicts(self, start: int, stop: int) -> Column:
        """error, warning or pass."""
        return [_level(self._sentences.get(row, ())) for row in range(start, stop)]

    def messages(self, start: int, stop: int) -> Column:
        """A JSON list of sentences that begin with their level."""
        return [
            json.dumps(list(map(translated, self._sentences[row]))) if row in self._sentences else "[]"
            for row in range(start, stop)
        ]

    def digests(self, start: int, stop: int) -> list[Column]:
        """The digests of both sides; a process group is shown by its ranks."""
        columns = super().digests(start, stop)
        partner = self.comparison.pairing.partner[start:stop].tolist()
        for side, rows, places in (
            (0, self.comparison.candidate, range(start, stop)),
            (1, self.comparison.reference, partner),
        ):
            columns[side] = [_group_ranks(rows, row) or cell for cell, row in zip(columns[side], places, strict=True)]
        return columns


def _group_ranks(rows: Rows, row: int) -> str | None:
    if row < 0 or rows.dtypes[rows.dtype[row]] != "torch.ProcessGroup":
        return None
    return rows.texts.get(row)


def _level(texts: tuple[str, ...] | list[str]) -> str:
    if any(text.startswith("error") for text in texts):
        return "error"
    return "warning" if texts else "pass"


def _difference(ours: Cell, theirs: Cell, exact: float) -> tuple[Cell, Cell]:
    """Difference and relative error of two statistics."""
    if theirs == NOT_AVAILABLE:
        return NOT_AVAILABLE, NOT_AVAILABLE
    if ours == theirs:
        return 0, 0
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        if math.isinf(ours) or math.isinf(theirs):
            return _infinite(ours, theirs)
        relative: Cell = "inf" if theirs == 0 else f"{abs(exact / theirs * 100)!r}%"
        return exact, relative
    number = isinstance(ours, (int, float)) or isinstance(theirs, (int, float))
    if NOT_A_NUMBER in (ours, theirs) and number:
        return NOT_A_NUMBER, NOT_A_NUMBER
    if str(ours).split(":")[0] in _DEVICES and str(theirs).split(":")[0] in _DEVICES:
        return NOT_AVAILABLE, NOT_AVAILABLE
    return _DIFFERENT_KINDS, _DIFFERENT_KINDS


def _infinite(ours: float, theirs: float) -> tuple[Cell, Cell]:
    """The difference keeps its sign, the relative error is infinite."""
    return ("-inf" if ours < theirs else "inf"), "inf"
