"""What a check of compiled modules found: a row for each tensor, the verdict, and the csv file of 26.2."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from msprobe.foreign import csv_cells
from msprobe.messages import Wording, joined, said, translated
from msprobe.precheck.compiler_rule import problem_of, root_mean_square
from msprobe.precheck.metrics import Array

CompiledStatus = Literal["PASS", "FAIL", "SKIP", "WARN"]
#: Of the relative difference as a multiple of the absolute one, as in 26.2: 1e-3 beside 1e-4.
RELATIVE = 10.0
_MOST_LINES = 10
_FAR = 0.5
_COMPARED = ("fwd_output", "grad_input", "grad_param")


@dataclass(frozen=True)
class CompiledRow:
    """One tensor of one pass of a module, eager beside compiled; ``max_rel_diff`` is relative to the eager one."""

    module_name: str
    check_type: str
    tensor_index: int
    status: CompiledStatus
    max_abs_diff: float = 0.0
    mean_abs_diff: float = 0.0
    max_rel_diff: float = 0.0
    shape: str = ""
    note: str = ""

    def cells(self) -> list[str]:
        """The line of the csv file."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [_text(value) if isinstance(value, float) else str(value) for value in values]


def _text(value: float) -> str:
    return "N/A" if math.isnan(value) else f"{value:.6e}"


HEADER = tuple(field.name for field in fields(CompiledRow))


@dataclass(frozen=True)
class TensorDiff:
    """One tensor as scripts for 26.2 read it; ``allclose`` is the verdict."""

    max_abs: float
    mean_abs: float
    max_rel: float
    allclose: bool
    shape: str


@dataclass(frozen=True)
class ModuleDiff:
    """The tensors of one module, of all its passes; None where there are none of a kind."""

    name: str
    fwd_input: list[TensorDiff] | None
    fwd_output: list[TensorDiff] | None
    grad_input: list[TensorDiff] | None
    grad_output: list[TensorDiff] | None
    note: str = ""


@dataclass(frozen=True)
class CompileResult:
    """What one check found: ``rows``, one for each tensor, behind that of the loss.

    ``loss_compiled`` is NaN where the step was only run eager, ``loss_eager`` where it gave no loss.
    """

    cast_dtype: Any
    rows: tuple[CompiledRow, ...]
    loss_eager: float
    loss_compiled: float

    @property
    def all_pass(self) -> bool:
        """True if nothing is a FAIL, and something was compared."""
        statuses = [row.status for row in self.rows if row.check_type in _COMPARED]
        return "PASS" in statuses and not any(row.status == "FAIL" for row in self.rows)

    @property
    def loss_diff(self) -> float:
        """How far the losses are apart."""
        return abs(self.loss_compiled - self.loss_eager)

    @property
    def diffs(self) -> list[ModuleDiff]:
        """The same by module, in the words of 26.2."""
        names = dict.fromkeys(row.module_name for row in self.rows if row.check_type != "loss")
        return [self._module(name) for name in names]

    def _module(self, name: str) -> ModuleDiff:
        mine = [row for row in self.rows if row.module_name == name]

        def of(kind: str) -> list[TensorDiff] | None:
            rows = [row for row in mine if row.check_type == kind]
            numbers = ((row.max_abs_diff, row.mean_abs_diff, row.max_rel_diff, row.status == "PASS") for row in rows)
            return [
                TensorDiff(*numbers_of_row, row.shape) for numbers_of_row, row in zip(numbers, rows, strict=True)
            ] or None

        note = joined("; ", (row.note for row in mine if row.check_type == "note"))
        return ModuleDiff(name, of("fwd_input"), of("fwd_output"), of("grad_input"), of("grad_output"), note)

    def lines(self) -> list[str]:
        """Counts, and the tensors that are not a pass, each with the reason, in the language that is asked for."""
        counted = Counter(row.status for row in self.rows)
        modules = len({row.module_name for row in self.rows if row.check_type != "loss"})
        counts = ", ".join(f"{counted[word]} {word}" for word in ("PASS", "FAIL", "WARN", "SKIP") if counted[word])
        counts = counts or said("nothing-was-compared")
        one_module = modules == 1
        printed = [said("compiled-counts-of-one", counts) if one_module else said("compiled-counts", modules, counts)]
        bad = [row for row in self.rows if row.status == "FAIL"]
        bad += [row for row in self.rows if row.status in ("WARN", "SKIP")]
        for row in bad[:_MOST_LINES]:
            printed.append(
                Wording("  {} {} {} {}: {}", row.status, row.module_name, row.check_type, row.tensor_index, row.note)
            )
        if len(bad) > _MOST_LINES:
            printed.append(Wording("  {}", said("so-many-more-rows", len(bad) - _MOST_LINES)))
        return [translated(line) for line in printed]

    def csv(self) -> bytes:
        """The report as a file."""
        text = io.StringIO()
        writer = csv_cells.writer(text, lineterminator="\r\n")
        writer.writerows([HEADER, *(row.cells() for row in self.rows)])
        return text.getvalue().encode("utf-8")


def difference(
    name: tuple[str, str, int], sides: tuple[Array, Array], limit: float, double: Array | None, dtype: str
) -> CompiledRow:
    """The row of one tensor; ``sides``: eager, compiled. ``dtype``: their type, without ``torch.``.

    It passes where all elements are within ``limit`` and :data:`RELATIVE` times it, relative to the eager one. What is
    beyond passes, too, if ``double`` is there, the same in double precision, and the compiled tensor is no further from
    it than rounding allows (:mod:`msprobe.precheck.compiler_rule`): compiled code rounds in other places.
    """
    eager, compiled = sides
    if eager.shape != compiled.shape:
        note = said("compiled-shape-differs", list(compiled.shape), list(eager.shape))
        return CompiledRow(*name, "FAIL", math.inf, math.inf, math.inf, str(tuple(eager.shape)), note)
    e, c = eager.astype(np.float64), compiled.astype(np.float64)
    # Of numbers that are all small, as gradients are, nothing could be learnt from an absolute limit.
    scale = _scale(e)
    with np.errstate(all="ignore"):
        same = (e == c) | (np.isnan(e) & np.isnan(c))
        apart = np.where(same, 0.0, np.abs(c - e))
        apart = np.where(np.isnan(apart), math.inf, apart)
        relative = np.where(same, 0.0, apart / np.maximum(np.abs(e), np.finfo(np.float64).tiny))
        relative = np.where(np.isnan(relative), math.inf, relative)
        wrong = ~same & ~(apart <= limit * scale + RELATIVE * limit * np.abs(e))
    numbers = (_most(apart), float(np.mean(apart)) if apart.size else 0.0, _most(relative))
    shape = str(tuple(eager.shape))
    if not wrong.any():
        return CompiledRow(*name, "PASS", *numbers, shape)
    if eager.dtype.kind != "f":
        return CompiledRow(
            *name, "FAIL", *numbers, shape, said("compiled-elements-differ", int(wrong.sum()), wrong.size)
        )
    beyond = int(wrong.sum()), wrong.size, limit * scale, RELATIVE * limit
    errors = [math.inf] * 2 if double is None else [root_mean_square(double / scale, side / scale) for side in (c, e)]
    size = 0.0 if double is None else root_mean_square(double / scale, np.zeros_like(e))
    if double is None or double.shape != eager.shape or not errors[1] <= _FAR * size:
        # Nothing is learnt from a double precision from which the eager one is far off: it computed something else.
        return CompiledRow(*name, "FAIL", *numbers, shape, said("compiled-beyond-limit", *beyond))
    problem = problem_of(errors[0], errors[1], dtype, eager.size, said("trusted-eager"))
    if problem:
        return CompiledRow(*name, "FAIL", *numbers, shape, said("compiled-beyond-rounding", *beyond, problem))
    note = said("compiled-differs-by-rounding", *errors)
    return CompiledRow(*name, "PASS", *numbers, shape, note)


def _scale(values: Array) -> float:
    """The largest finite number of a tensor; 1 for larger ones, and for zeros."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    return min(largest, 1.0) or 1.0


def _most(values: Array) -> float:
    return float(values.max()) if values.size else 0.0


def loss_difference(eager: float, compiled: float, limit: float) -> CompiledRow:
    """The row of the loss; only noted where the step was run once. Both are NaN where they are not known."""
    name, unknown = ("LOSS", "loss", 0), (math.nan, math.nan, math.nan)
    if math.isnan(eager) and math.isnan(compiled):
        return CompiledRow(*name, "SKIP", *unknown, note=said("loss-not-known"))
    if math.isnan(compiled):
        return CompiledRow(*name, "PASS", *unknown, f"eager={eager:.6f}", said("compiled-in-one-pass"))
    row = difference(name, (np.array(eager), np.array(compiled)), limit, None, "float64")
    return replace(row, shape=f"eager={eager:.6f} compiled={compiled:.6f}")


def result_of(
    rows: Sequence[CompiledRow], cast_dtype: Any, limit: float, eager: float, compiled: float = math.nan
) -> CompileResult:
    """The result with the row of the loss in front."""
    return CompileResult(cast_dtype, (loss_difference(eager, compiled, limit), *rows), eager, compiled)
