"""Calls that draw random numbers: no two runs agree, so how the numbers are spread is compared."""

from __future__ import annotations

import math
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.torch.distribution import real_parts, row_of_random

# Standard errors apart that no healthy generator is: one in half a billion draws of a normal distribution.
_MOST_STANDARD_ERRORS = 6.0
_LEAST_ELEMENTS = 30


def judge_spread(name: str, bench: Any, device: Any) -> JudgedResult:
    """Shape and type must agree; share of zeros and mean within six standard errors, of complex numbers those of both
    parts.
    """
    row = row_of_random(name, bench, device)
    if row.shape is None or row.status == "error":
        return row
    pairs = list(zip(real_parts(bench), real_parts(device), strict=True))
    if all(ours.isfinite().all() for ours, _ in pairs) and not all(theirs.isfinite().all() for _, theirs in pairs):
        row.status, row.message = "error", said("random-not-finite")
        return row
    count = bench.numel()
    if count < _LEAST_ELEMENTS or not all(ours.isfinite().all() for ours, _ in pairs):
        row.message = said("random-too-few", count)
        return row
    row.scaled = far = max(_standard_errors(ours, theirs) for ours, theirs in pairs)
    if far > _MOST_STANDARD_ERRORS:
        row.status = "error"
        row.message = said("random-statistic-off", said("statistic-mean-or-zeros"), far, _MOST_STANDARD_ERRORS)
    return row


def _standard_errors(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """By how many of them the mean or the share of zeros differ, whichever is more."""
    count = ours.numel()
    zeros = [float((side == 0).double().mean()) for side in (ours, theirs)]
    share = sum(zeros) / 2
    return max(
        _apart(zeros[0], zeros[1], math.sqrt(2 * share * (1 - share) / count)),
        _apart(float(ours.mean()), float(theirs.mean()), math.sqrt(float(ours.var() + theirs.var()) / count)),
    )


def _apart(first: float, second: float, error: float) -> float:
    if first == second:
        return 0.0
    return abs(first - second) / error if error else math.inf
