"""What a call shows of itself, whatever its arguments are apart by: sizes and sums that it keeps, and its ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.diagnose.measured.deviation import Deviation
from msprobe.diagnose.measured.ends import apart_at_ends
from msprobe.diagnose.measured.kept import ROUNDED_BY_ONE, kept_size
from msprobe.diagnose.measured.node import SINGLE, MeasuredResult
from msprobe.diagnose.measured.own_arguments import OneCall
from msprobe.store.rows import StoredRows

#: In single precision kernels approximate functions, and take variances in one pass: by no more than these.
_APPROXIMATED, _IN_ONE_PASS = 2.0**-10, 2.0**-13


def results_by_itself(
    slot: str,
    call: OneCall,
    other: OneCall,
    rows: tuple[StoredRows, StoredRows],
    made: Deviation,
    given: Sequence[Deviation],
    unit: float,
) -> list[MeasuredResult]:
    """Further results of a forward call of candidate and reference; none of most calls. ``made``: its result;
    ``given``: its arguments in floating-point types; ``unit``: of the coarsest type.
    """
    results: list[MeasuredResult] = []
    if not given or made.kind == "lower" or given[0].kind == "lower":
        return results
    apart = apart_at_ends(call, other, *rows)
    if apart is not None and (unit > SINGLE or apart > _APPROXIMATED):
        results.append(MeasuredResult(slot, apart, apart, 0.0, 0.0, 1, False))
    kept = kept_size(call, other, *rows, min(given[0].distance / given[0].norm, 1.0) if given[0].norm else 0.0)
    if kept is not None:
        alone, explained = kept.alone, kept.given if unit > SINGLE else math.hypot(kept.given, _IN_ONE_PASS)
        results.append(
            MeasuredResult(slot, 0.0, kept.apart, 0.0, explained, made.count, False, ROUNDED_BY_ONE, alone, alone)
        )
    return results
