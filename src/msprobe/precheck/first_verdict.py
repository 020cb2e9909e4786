"""The verdict of 8.1.1 and 26.2 on one result: a cascade of questions, and the cells it fills on its way."""

from __future__ import annotations

import math

import numpy as np

from msprobe.messages import said
from msprobe.precheck import metrics, standards
from msprobe.precheck.metrics import Array, Metrics

_HALVES = ("float16", "bfloat16")


def first_verdict(bench: Array, device: Array, dtype: str, profile: standards.Profile) -> tuple[str, Metrics, str]:
    """``pass``, the profile's word for a warning, or ``error``; the cells filled; and why.

    Cells after the step that decides stay empty.
    """
    measured: Metrics = {}
    zero = [float(np.max(np.abs(side))) <= standards.ALL_ZERO for side in (bench, device)]
    if not (bench.size == 1 or all(zero)):
        if any(zero):
            return "error", measured, said("one-side-is-zero")
        measured["cosine"] = angle = metrics.cosine(bench, device)
        allowed = profile.name == "26.2" and math.isnan(angle)
        if not (angle > standards.COSINE_OVER or allowed):
            return "error", measured, said("cosine-too-small", angle, standards.COSINE_OVER)
    measured["max_abs"] = largest = metrics.max_abs_error(bench, device)
    if largest < standards.MAX_ABS_BELOW:
        return "pass", measured, ""
    errors = metrics.relative_errors(bench, device, dtype)
    if dtype in _HALVES:
        loose, fine, names = standards.HUNDREDTH, standards.THOUSANDTH, ("hundredth", "thousandth")
    else:
        loose, fine, names = standards.THOUSANDTH, standards.TEN_THOUSANDTH, ("thousandth", "ten_thousandth")
    shares = metrics.share_below(errors, loose), metrics.share_below(errors, fine)
    measured[names[0]] = shares[0]
    if dtype not in _HALVES:
        measured[names[1]] = shares[1]
    if not shares[0] > 1 - loose:
        return "error", measured, said("too-few-are-near", shares[0], loose, 1 - loose)
    measured[names[1]] = shares[1]
    if shares[1] > 1 - fine:
        return "pass", measured, ""
    return profile.warning, measured, said("few-are-near", shares[1], fine, 1 - fine)


def dropout_verdict(bench: Array, device: Array) -> str:
    """``pass`` where the shares of zeros are near each other, or there are few elements."""
    if bench.size < standards.DROPOUT_LEAST_ELEMENTS:
        return "pass"
    zeros = abs(int((bench == 0).sum()) - int((device == 0).sum())) / bench.size
    return "pass" if zeros < standards.DROPOUT_ZERO_SHARE else "error"
