"""What the page shows of all rows of a place at once, as columns: one entry a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.diagnose.check.bad_values import bad
from msprobe.diagnose.differences.records import is_floating, not_finite, numbers
from msprobe.diagnose.steps.tensor_info import RecordedTensor
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import in_both
from msprobe.view.judged import JudgedStep
from msprobe.view.protocol import Culprit, FindingAnswer, Outline, PlaceAnswer
from msprobe.view.rows import CANDIDATE_ONLY, REFERENCE_ONLY, TreeRow

NOTHING, SAME, ROUNDING, EXPLAINED, UNEXPLAINED, OF_CANDIDATE, OF_REFERENCE, NAMED = range(8)
STATUSES = {"same": SAME, "rounding": ROUNDING, "explained": EXPLAINED, "unexplained": UNEXPLAINED}

IS_NOT_FINITE, IS_BORN, OTHER_DTYPE, OTHER_SHAPE, OTHER_ARGUMENT, COMMUNICATES, UNSET, RECOMPUTED, IS_MASK = (
    1 << bit for bit in range(9)
)
_FLAGS = {"dtype": OTHER_DTYPE, "shape": OTHER_SHAPE, "argument": OTHER_ARGUMENT}
#: JSON has no infinity: a difference without size (NaN, another number of elements) is written as this.
NO_SIZE = 1e300


def columns_of(step: JudgedStep, single: bool) -> PlaceAnswer:
    """The answer of ``/api/place``, without what findings name yet. ``single``: there is but one run."""
    rows = step.rows
    statuses, flags = [], []
    input_difference: list[float | None] = []
    output_difference: list[float | None] = []
    allowed: list[float | None] = []
    largest: list[float | None] = []
    norms: list[float | None] = []
    for row in rows:
        judged = step.judged.get(row.candidate) if row.candidate is not None else None
        statuses.append(_status(row, judged, single))
        size, norm, bits = _results(row, step)
        flags.append(bits | (_difference_flags(judged) if judged is not None else 0))
        largest.append(size)
        norms.append(norm)
        if judged is None:
            input_difference.append(None)
            output_difference.append(None)
            allowed.append(None)
        else:
            input_difference.append(rounded(judged.input_difference))
            output_difference.append(rounded(judged.output_difference))
            allowed.append(rounded(judged.allowed) if judged.output_difference or judged.allowed else None)
    first = _first(rows, statuses, flags)
    return {
        "names": [row.name for row in rows],
        "twins": {str(row.number): twin for row in rows if (twin := row.twin) is not None},
        "parents": [-1 if row.above is None else row.above.number for row in rows],
        "kinds": [row.kind for row in rows],
        "sides": [0 if single else row.side for row in rows],
        "orders": _orders(rows),
        "phases": [row.phase for row in rows],
        "micro": [row.micro for row in rows],
        "micro_steps": max((row.micro for row in rows), default=0) + 1,
        "status": statuses,
        "input_difference": input_difference,
        "output_difference": output_difference,
        "allowed": allowed,
        "largest": largest,
        "norm": norms,
        "flags": flags,
        "first": first,
        "culprits": [],
        "named": [],
        "notes": list(map(in_both, step.notes)),
    }


def outline_of(rows: Sequence[TreeRow], judged: Mapping[Event, Judged]) -> Outline:
    """The columns that the grid of ranks is made of, of a pair of runs of which no row is named by a finding."""
    return {
        "names": [row.name for row in rows],
        "kinds": [row.kind for row in rows],
        "parents": [-1 if row.above is None else row.above.number for row in rows],
        "status": [
            _status(row, judged.get(row.candidate) if row.candidate is not None else None, False) for row in rows
        ],
        "orders": [row.order for row in rows],
        "named": [],
    }


def rounded(value: float) -> float:
    """A size for the page: four digits are enough."""
    if value == 0.0:
        return 0.0
    return float(f"{value:.3e}") if math.isfinite(value) and value < NO_SIZE else NO_SIZE


def _status(row: TreeRow, judged: Judged | None, single: bool) -> int:
    if single:
        return NOTHING
    if judged is None:
        return {CANDIDATE_ONLY: OF_CANDIDATE, REFERENCE_ONLY: OF_REFERENCE}.get(row.side, NOTHING)
    status = STATUSES[judged.status]
    if status in (ROUNDING, EXPLAINED) and not judged.changed_outputs and _has_results(judged.event):
        return SAME
    return status if status != SAME or _has_numbers(judged.event) else NOTHING


def named_rows(culprits: Sequence[Culprit], findings: Sequence[FindingAnswer]) -> list[int]:
    """The rows that a finding names, harmless ones excepted: what such a row differs by may be within rounding, or come
    in with its inputs, and it is at fault all the same.
    """
    return sorted({culprit["row"] for culprit in culprits if not findings[culprit["finding"]]["harmless"]})


def _has_results(event: Event) -> bool:
    return any(is_measured(leaf) for _, leaf in event.outputs())


def _has_numbers(event: Event) -> bool:
    return any(is_measured(leaf) for slots in (event.outputs(), event.inputs()) for _, leaf in slots)


def is_measured(leaf: Any) -> bool:
    """True for a tensor of which more than type and shape was recorded."""
    if type(leaf) is RecordedTensor and leaf.plain:
        return True
    return is_tensor(leaf) and any(leaf.get(key) is not None for key in ("Max", "Norm", "digest", "md5", "data_name"))


def _results(row: TreeRow, step: JudgedStep) -> tuple[float | None, float | None, int]:
    """Largest element and norm of a row's results, and what flags its own record says."""
    event = row.event
    if event is None:
        return None, None, 0
    flags = IS_BORN if event in step.born else 0
    if event.is_collective:
        flags |= COMMUNICATES
    if event.direction == "recompute":
        flags |= RECOMPUTED
    counted = {"nan", *step.born.values()}
    size, squares, measured = 0.0, 0.0, False
    for _, leaf in event.outputs():
        if type(leaf) is RecordedTensor and leaf.plain:
            if leaf.floating:
                measured = True
                largest, least, _, norm = leaf.statistics
                size = max(size, abs(largest), abs(least))
                squares += norm * norm
            continue
        if not isinstance(leaf, dict):
            continue
        if leaf.get("unset") is True:
            flags |= UNSET
        elif is_floating(leaf):
            if not_finite(leaf):
                # What the check of a single run is content with is not reported as a mistake either.
                flags |= IS_MASK if (values := bad(leaf)) and values.isdisjoint(counted) else IS_NOT_FINITE
            statistics = numbers(leaf)
            if statistics is not None:
                measured = True
                size = max(size, abs(statistics[0]), abs(statistics[1]))
                squares += statistics[3] * statistics[3]
    if not flags & UNSET:
        for _, leaf in event.inputs():
            if (
                not (type(leaf) is RecordedTensor and leaf.plain)
                and isinstance(leaf, dict)
                and leaf.get("unset") is True
            ):
                flags |= UNSET
                break
    if not measured:
        return None, None, flags
    return _finite(size), _finite(math.sqrt(squares) if squares >= 0 else math.nan), flags


def _finite(value: float) -> float | None:
    return rounded(value) if math.isfinite(value) else None


def _difference_flags(judged: Judged) -> int:
    flags = 0
    for difference in (*judged.inputs, *judged.parameters, *judged.outputs):
        flags |= _FLAGS.get(difference.what, 0)
        if difference.what == "missing" and difference.slot.startswith("input"):
            flags |= OTHER_ARGUMENT
    return flags


def _orders(rows: Sequence[TreeRow]) -> list[int]:
    """Places without gaps, also where a row was made for a pass that has no record."""
    places = {order: place for place, order in enumerate(sorted({row.order for row in rows}))}
    return [places[row.order] for row in rows]


def _first(rows: Sequence[TreeRow], statuses: Sequence[int], flags: Sequence[int]) -> int:
    """The first call that differs beyond what its inputs and rounding explain, or is there on one side only; of a
    single run the first in which a NaN or an infinity is born. -1: none.

    A module is named only where nothing inside it is: what runs inside says it better.
    """
    named = [
        row
        for row, status, bits in zip(rows, statuses, flags, strict=True)
        if status in (UNEXPLAINED, OF_CANDIDATE, OF_REFERENCE) or bits & IS_BORN
    ]
    holding = {id(above) for row in named for above in _above(row)}
    inner = [row for row in named if id(row) not in holding]
    return min(inner, key=lambda row: (row.order, row.number)).number if inner else -1


def _above(row: TreeRow) -> list[TreeRow]:
    rows = []
    above = row.above
    while above is not None:
        rows.append(above)
        above = above.above
    return rows
