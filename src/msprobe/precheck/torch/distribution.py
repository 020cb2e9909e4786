"""How random numbers are distributed, beside several draws of the reference.

Each of a list of statistics is computed of every draw: mean, spread, shares below numbers from one end to the other,
number of different values, likeness of neighbours, and how the numbers go with each argument of their shape. Of whole
numbers that choose among the elements of an argument, what they choose is looked at as well, and whether a row that has
no number twice in any draw of the reference has one. The
draws of the reference show how much such a statistic varies by itself, also where elements are not independent, as in a
dropout of whole channels. Another device rounds its numbers elsewhere, so of a float type a share may be off by a unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.torch.reference import eps_of

#: Standard errors apart that no healthy generator is: one in half a billion draws of a normal distribution.
MOST_STANDARD_ERRORS = 6.0
#: So many draws of the reference are made, and fewer of large results.
DRAWS, DRAWS_OF_MANY = 8, 4
MANY = 1 << 21
LEAST_ELEMENTS = 30
_LEVELS = (0.0005, 0.005, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 0.995, 0.9995)
# What so few draws show of a spread is unsure (Student's t at the probability of six standard errors, nearly). It
# counts where it is so much more than elements that are independent show.
_UNSURE = {DRAWS: 3.0, DRAWS_OF_MANY: 12.0}
_NOT_INDEPENDENT = 2.0


def draws_for(count: int) -> int:
    """How many draws of the reference are made for a result of so many elements."""
    return DRAWS if count <= MANY else DRAWS_OF_MANY


def row_of_random(name: str, bench: Any, device: Any) -> JudgedResult:
    """The row of a result that is drawn: an error where shape or type differ. It has no shape where there is nothing
    to compare.
    """
    if not isinstance(device, torch.Tensor) or not isinstance(bench, torch.Tensor):
        return JudgedResult(name, "pass", said("random-without-tensor"))
    row = JudgedResult(name, "pass", said("random-by-distribution"), str(bench.dtype), str(device.dtype))
    row.shape = tuple(device.shape)
    if bench.shape != device.shape or bench.dtype != device.dtype:
        row.status = "error"
        row.message = said(
            "random-types-differ", str(device.dtype), tuple(device.shape), str(bench.dtype), tuple(bench.shape)
        )
    return row


def judge_distribution(
    name: str,
    draws: Sequence[Any],
    device: Any,
    given: Sequence[torch.Tensor] = (),
    tables: Sequence[torch.Tensor] = (),
) -> JudgedResult:
    """Judge one result by draws of the reference. ``given``: the arguments of its shape; ``tables``: those among whose
    elements a result of whole numbers may choose.
    """
    bench = draws[0]
    row = row_of_random(name, bench, device)
    if row.shape is None or row.status == "error":
        return row
    parts = list(zip(*(real_parts(draw) for draw in (device, *draws)), strict=True))
    finite = [all(bool(result.isfinite().all()) for result in ours) for _, *ours in parts]
    if all(finite) and not all(bool(theirs.isfinite().all()) for theirs, *_ in parts):
        row.status, row.message = "error", said("random-not-finite")
        return row
    if not all(finite):
        row.message = said("random-reference-not-finite")
        return row
    if _same_values(parts):
        if any(not torch.equal(theirs.sort()[0], ours[0].sort()[0]) for theirs, *ours in parts):
            row.status, row.message = "error", said("random-values-differ")
        return row
    if wrong := _wrong_rows(device, draws):
        row.status, row.message = "error", wrong
        return row
    if bench.numel() < LEAST_ELEMENTS:
        row.message = said("random-too-few", bench.numel())
        return row
    eps = eps_of(bench.dtype)
    far = [_farthest(theirs, ours, given, eps) for theirs, *ours in parts]
    far += _along_dimensions(device, draws)
    for table in tables:
        chosen = _chosen([device, *draws], table)
        if chosen:
            size, what = _farthest(chosen[0], chosen[1:], (), 0.0)
            far.append((size, said("statistic-chosen", what)))
    row.scaled, what = max(far)
    if row.scaled > MOST_STANDARD_ERRORS:
        row.status = "error"
        row.message = said("random-statistic-off", what, row.scaled, MOST_STANDARD_ERRORS)
    return row


def _wrong_rows(device: torch.Tensor, draws: Sequence[torch.Tensor]) -> str:
    """What is wrong with rows that have a number twice, which no row of any draw of the reference has."""
    if device.is_floating_point() or device.is_complex() or device.dim() < 2 or device.shape[-1] < 2:
        return ""
    if any(bool(_twice(draw).any()) for draw in draws):
        return ""
    wrong = int(_twice(device).sum())
    return said("random-rows-repeat", wrong) if wrong else ""


def _twice(rows: torch.Tensor) -> torch.Tensor:
    ordered = rows.sort(-1)[0]
    return (ordered[..., 1:] == ordered[..., :-1]).any(-1)


def _chosen(sides: Sequence[torch.Tensor], table: torch.Tensor) -> list[torch.Tensor]:
    """What each side chooses of a table of its leading shape; empty where a side is no choice of it."""
    first = sides[0]
    if first.is_floating_point() or first.is_complex() or first.dtype is torch.bool or not first.dim():
        return []
    if table.dim() != first.dim() or table.shape[:-1] != first.shape[:-1] or not bool(table.isfinite().all()):
        return []
    if any(not bool(((side >= 0) & (side < table.shape[-1])).all()) for side in sides):
        return []
    return [table.double().gather(-1, side.long()).flatten() for side in sides]


def real_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """All elements in double precision; of complex numbers the real and the imaginary parts, each by themselves."""
    if not tensor.is_complex():
        return [tensor.flatten().to(torch.float64)]
    pairs = torch.view_as_real(tensor.resolve_conj()).double()
    return [pairs[..., 0].flatten(), pairs[..., 1].flatten()]


def _same_values(parts: Sequence[Sequence[torch.Tensor]]) -> bool:
    """True where all draws of the reference have the same values in some order, as permutations have."""
    for _, first, *others in parts:
        known = first.sort()[0]
        if not others or not all(torch.equal(known, side.sort()[0]) for side in others):
            return False
    return True


def _farthest(
    theirs: torch.Tensor, ours: Sequence[torch.Tensor], given: Sequence[torch.Tensor], eps: float
) -> tuple[float, str]:
    """The statistic that is farthest off, in standard errors, and its name."""
    count = theirs.numel()
    pooled = torch.cat(list(ours))
    size = float(pooled.abs().quantile(0.99)) if pooled.numel() <= 1 << 20 else _quantiles(pooled, (0.99,))[0]
    spread = float(pooled.std())
    edges = sorted(set(_quantiles(pooled, _LEVELS)) | {0.0})
    rounding = eps / 2 * max(size, spread)
    statistics: list[tuple[str, list[float], float, float]] = []

    def add(what: str, values: list[float], least: float, tolerance: float) -> None:
        statistics.append((what, values, least, tolerance))

    sides = [theirs, *ours]
    add(said("statistic-mean"), [float(side.mean()) for side in sides], spread / math.sqrt(count), rounding)
    deviations = [float(side.std()) for side in sides]
    fourth = float(((pooled - pooled.mean()) / spread).pow(4).mean()) if spread else 1.0
    add(said("statistic-spread"), deviations, spread * math.sqrt(max(fourth - 1, 0.0) / (4 * count)), rounding)
    for edge in edges:
        shares = [float((side <= edge).double().mean()) for side in sides]
        # Where half a unit lies about the edge, numbers may lie on the other side of it.
        near = 0.0
        if eps:
            above = max(float(((own > edge) & (own <= edge + rounding)).double().mean()) for own in ours)
            near = max(above, *(float(((own <= edge) & (own >= edge - rounding)).double().mean()) for own in ours))
        share = sum(shares[1:]) / len(ours)
        least = math.sqrt(max(share * (1 - share), 1 / count) / count)
        add(said("statistic-share-up-to", edge), shares, least, near)
    zeros = [float((side == 0).double().mean()) for side in sides]
    mean = sum(zeros[1:]) / len(ours)
    add(said("statistic-zeros"), zeros, math.sqrt(max(mean * (1 - mean), 1 / count) / count), eps)
    different = [float(torch.unique(side).numel()) / count for side in sides]
    # Those of half types repeat, where they round.
    coarse = 0.5 if eps >= 2.0**-10 else 0.05
    add(said("statistic-different"), different, 1 / math.sqrt(count), coarse * max(different[1:]))
    if all(deviations) and count > LEAST_ELEMENTS:
        add(said("statistic-neighbours"), [_likeness(side) for side in sides], 1 / math.sqrt(count), eps)
    for number, argument in enumerate(given):
        wide = argument.double().flatten()
        if wide.numel() == count and bool(wide.isfinite().all()) and float(wide.std()) > 0 and all(deviations):
            together = [_together(side, wide) for side in sides]
            add(said("statistic-argument", number), together, 1 / math.sqrt(count), eps)
    return max((_apart(values, least, tolerance), what) for what, values, least, tolerance in statistics)


def _along_dimensions(device: torch.Tensor, draws: Sequence[torch.Tensor]) -> list[tuple[float, str]]:
    """How alike the places of zeros are in neighbours along each dimension: one mask for all rows is none of each."""
    sides = [(draw == 0).double() for draw in (device, *draws)]
    count = device.numel()
    deviations: list[tuple[float, str]] = []
    if device.dim() > 1 and not any(bool((side == side.flatten()[0]).all()) for side in sides):
        for place, length in enumerate(device.shape):
            if length > 1:
                pairs = [(side.narrow(place, 1, length - 1), side.narrow(place, 0, length - 1)) for side in sides]
                alike = [_together(a.flatten(), b.flatten()) for a, b in pairs]
                far = _apart(alike, 1 / math.sqrt(count * (length - 1) / length), 0.0)
                deviations.append((far, said("statistic-zeros-along", place)))
    return deviations


def _quantiles(values: torch.Tensor, levels: Sequence[float]) -> list[float]:
    ordered = values.sort()[0]
    return [float(ordered[min(len(ordered) - 1, int(level * len(ordered)))]) for level in levels]


def _likeness(values: torch.Tensor) -> float:
    """The correlation of each element with the next one."""
    return _together(values[1:], values[:-1])


def _together(first: torch.Tensor, other: torch.Tensor) -> float:
    a, b = first - first.mean(), other - other.mean()
    size = float(a.norm() * b.norm())
    return float((a * b).sum()) / size if size else 0.0


def _apart(values: Sequence[float], least: float, tolerance: float) -> float:
    """How far the first value is from the others, in standard errors; ``least``: the least that one is."""
    first, others = values[0], values[1:]
    mean = sum(others) / len(others)
    variance = sum((number - mean) ** 2 for number in others) / max(1, len(others) - 1)
    seen = math.sqrt(variance)
    error = math.sqrt(1 + 1 / len(others)) * (seen * _UNSURE[len(others)] if seen > _NOT_INDEPENDENT * least else least)
    off = max(0.0, abs(first - mean) - tolerance)
    if off <= 1e-12 * max(abs(first), abs(mean)):
        return 0.0
    return off / error if error else math.inf
