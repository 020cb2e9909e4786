"""Compare one part with another: pairs, measures, verdicts, colours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from msprobe import log
from msprobe.compare import verdicts
from msprobe.compare.colours import Colouring, colour_statistics, colour_tensors
from msprobe.compare.matching import DIFFERENT, Agreement, NameMapping, RowPairing, agreement, match, match_records
from msprobe.compare.measures_statistics import StatisticMeasures, statistic_measures
from msprobe.compare.measures_tensor import Form, TensorMeasures
from msprobe.compare.own_metrics import OwnMetrics
from msprobe.compare.problems import DamagedDataError
from msprobe.compare.rows import NO_DIGEST, Numbers, Rows, read_rows
from msprobe.compare.task import Mode, check_tasks, mode_of
from msprobe.compare.values_of_pair import NO_PARTNER, PairMeasures, Prepare, measure_values
from msprobe.messages import said
from msprobe.store.part import DumpPart

# Finds the names of the reference for the rows of both parts.
FindNames = Callable[[Rows, Rows, DumpPart, DumpPart], NameMapping]
# Finds the records of the reference that records of the candidate answer to.
FindRecords = Callable[[DumpPart, DumpPart], Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class RowComparison:
    """Two parts side by side; the columns are as long as ``candidate``.

    ``verdict`` has the word of the sheet for each row, ``messages`` the sentences of rows that need some.
    ``failing`` marks rows that count as different beyond noise. ``tensors`` is None unless values were compared.
    """

    mode: Mode
    parts: tuple[DumpPart, DumpPart]
    candidate: Rows
    reference: Rows
    pairing: RowPairing
    agreement: Agreement
    statistics: StatisticMeasures
    tensors: list[TensorMeasures] | None
    verdict: list[str]
    messages: dict[int, list[str]]
    colouring: Colouring
    failing: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.candidate)


def compare_parts(
    candidate: DumpPart,
    reference: DumpPart,
    *,
    find_records: FindRecords | None = None,
    find_names: FindNames | None = None,
    cross_framework: bool = False,
    jobs: int = 1,
    form: Form = "8.1.1",
    prepare: Prepare | None = None,
    own: OwnMetrics | None = None,
    by_statistics: bool = False,
) -> RowComparison:
    """Compare two parts. Rows are paired by name where neither ``find_names`` nor, after it,
    ``find_records`` is given; ``jobs`` threads read and measure values
    by the formulas of ``form``, after ``prepare`` had them; ``own`` adds metrics of the user.
    ``by_statistics`` compares dumps of tensors by their statistics.

    Raises TaskMismatchError, TooDeepError, DamagedDataError, and what the reader raises.
    """
    for part in (candidate, reference):
        if not len(part):
            log.warning(said("data-field-empty", part.path))
    task = check_tasks(candidate, reference)
    if by_statistics and task == "tensor":
        task = "statistics"
    ours, theirs = read_rows(candidate), read_rows(reference)
    mode = mode_of(task, ours, theirs, (candidate, reference)) if len(ours) and len(theirs) else _only_mode(task)
    names = NameMapping() if find_names is None else find_names(ours, theirs, candidate, reference)
    if find_names is not None:
        pairing = match(ours, theirs, names)
    elif find_records is not None:
        pairing = match_records(ours, theirs, find_records(candidate, reference))
    else:
        pairing = match(ours, theirs)
    agree = agreement(ours, theirs, pairing, cross_framework, names.views)
    statistics = statistic_measures(ours, theirs, pairing)
    tensors = None
    if mode == "tensor":
        measures = PairMeasures(form, prepare, own, names.views)
        tensors = measure_values(ours, theirs, pairing, agree, (candidate, reference), measures, jobs)
    return _judge(mode, (candidate, reference), ours, theirs, pairing, agree, statistics, tensors)


def _only_mode(task: str) -> Mode:
    if task not in ("tensor", "statistics"):
        raise DamagedDataError(said("task-unknown", task))
    return "tensor" if task == "tensor" else "statistics"


def _judge(
    mode: Mode,
    parts: tuple[DumpPart, DumpPart],
    ours: Rows,
    theirs: Rows,
    pairing: RowPairing,
    agree: Agreement,
    statistics: StatisticMeasures,
    tensors: list[TensorMeasures] | None,
) -> RowComparison:
    messages: dict[int, list[str]] = {}
    rows = len(ours)
    failing = np.zeros(rows, np.bool_)
    colouring = Colouring(np.zeros(rows, np.uint8), {})
    if tensors is not None:
        verdict = [verdicts.accuracy(measured) for measured in tensors]
        for row, measured in enumerate(tensors):
            if measured.notes:
                messages[row] = list(measured.notes)
        for row in np.flatnonzero(statistics.new_nonfinite).tolist():
            if verdict[row] in (verdicts.NONE, verdicts.YES):
                verdict[row] = verdicts.NO
                messages.setdefault(row, []).append(said("target-not-finite"))
        failing = np.array([word in (verdicts.NO, verdicts.UNMATCHED) for word in verdict], np.bool_)
        if parts[0].kind == "dump":
            colouring = colour_tensors(ours, statistics, *_columns_of(tensors))
    elif mode == "md5":
        verdict = _digest_verdicts(ours, theirs, pairing, _shape_failures(pairing, agree))
        failing = np.array([word == verdicts.DIFFERENT for word in verdict], np.bool_)
    else:
        verdict = _statistics_verdicts(pairing, agree, statistics, messages)
        failing = statistics.beyond_noise | _shape_failures(pairing, agree)
        if parts[0].kind == "dump":
            colouring = colour_statistics(ours, statistics)
    _add_common_messages(ours, theirs, pairing, agree, mode, messages)
    for row, reasons in colouring.reasons.items():
        messages.setdefault(row, []).extend(reasons)
    return RowComparison(
        mode, parts, ours, theirs, pairing, agree, statistics, tensors, verdict, messages, colouring, failing
    )


def _columns_of(tensors: list[TensorMeasures]) -> tuple[Numbers, Numbers, Numbers]:
    """Cosine, absolute error and one-thousandth ratio as numbers, NaN where there is a word."""
    nan = float("nan")
    values = np.array(
        [
            [value if isinstance(value, float) else nan for value in (t.cosine, t.max_absolute, t.one_thousandth)]
            for t in tensors
        ]
    ).reshape(-1, 3)
    return values[:, 0], values[:, 1], values[:, 2]


def _digest_verdicts(ours: Rows, theirs: Rows, pairing: RowPairing, shapes: npt.NDArray[np.bool_]) -> list[str]:
    """Equal bytes of another shape are another tensor."""
    return [
        verdicts.DIFFERENT
        if other_shape
        else verdicts.digest_result(ours.md5[row], theirs.md5[partner] if partner >= 0 else NO_DIGEST, partner >= 0)
        for row, (partner, other_shape) in enumerate(zip(pairing.partner.tolist(), shapes.tolist(), strict=True))
    ]


def _shape_failures(pairing: RowPairing, agree: Agreement) -> npt.NDArray[np.bool_]:
    """Partners of another shape, or of which one is null."""
    failed: npt.NDArray[np.bool_] = pairing.matched & (~agree.shape | agree.null)
    return failed


def _statistics_verdicts(
    pairing: RowPairing,
    agree: Agreement,
    statistics: StatisticMeasures,
    messages: dict[int, list[str]],
) -> list[str]:
    warning = statistics.warning | _shape_failures(pairing, agree)
    verdict = np.where(pairing.matched, np.where(warning, verdicts.WARNING, ""), NO_DIGEST).tolist()
    beyond = statistics.beyond_noise
    new_nonfinite = statistics.new_nonfinite
    for row in np.flatnonzero(statistics.warning).tolist():
        row_messages = messages.setdefault(row, [])
        if new_nonfinite[row]:
            row_messages.append(said("target-not-finite"))
        else:
            row_messages.append(said("check-this-api"))
            if not beyond[row]:
                row_messages.append(said("within-rounding-of-inputs"))
    return list(map(str, verdict))


def _add_common_messages(
    ours: Rows, theirs: Rows, pairing: RowPairing, agree: Agreement, mode: Mode, messages: dict[int, list[str]]
) -> None:
    partner = pairing.partner
    if mode != "tensor":
        for row in np.flatnonzero(~pairing.matched).tolist():
            messages.setdefault(row, []).append(NO_PARTNER)
    for row in np.flatnonzero(_shape_failures(pairing, agree)).tolist():
        there = int(partner[row])
        if agree.null[row]:
            is_target = ours.dtypes[ours.dtype[row]] == "None"
            messages.setdefault(row, []).append(said("target-value-none" if is_target else "bench-value-none"))
        elif mode != "tensor" or not ours.is_tensor[row]:
            shapes = ours.shapes[ours.shape[row]], theirs.shapes[theirs.shape[there]]
            messages.setdefault(row, []).append(said("row-shapes-differ", *shapes))
    if mode != "tensor":
        for row in np.flatnonzero((agree.dtype == DIFFERENT) & ~agree.null).tolist():
            types = ours.dtypes[ours.dtype[row]], theirs.dtypes[theirs.dtype[int(partner[row])]]
            messages.setdefault(row, []).append(said("element-types-differ", *types))
    if mode == "statistics":
        for row in np.flatnonzero(pairing.matched & ~ours.is_tensor).tolist():
            if ours.md5[row] != theirs.md5[int(partner[row])] and not agree.null[row] and agree.shape[row]:
                messages.setdefault(row, []).append(said("two-values-differ"))
    for row in np.flatnonzero(pairing.fuzzy).tolist():
        messages.setdefault(row, []).append(said("paired-fuzzily"))
