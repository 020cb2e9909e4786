"""``--standard compiler``: the rule by which the tests of PyTorch's own compilers judge what they have made.

A result may be off from double precision by the root mean square error of a trusted device, times a factor, and by a
small constant (``same`` in ``torch/_dynamo/utils.py``, torch 2.13). The constant is absolute: results far below 1e-5
pass whatever they are.
"""

from __future__ import annotations

import math

import numpy as np

from msprobe.messages import said
from msprobe.precheck.metrics import Array

#: Of the tests' tolerance a tenth is added.
TOLERANCE = 1e-4
#: Results of half types, and of fewer elements, may be off by more: single roundings weigh more in them.
FACTOR, LARGER_FACTOR = 2.0, 3.0
FEW_ELEMENTS = 1000
_HALVES = ("float16", "bfloat16")


def root_mean_square(bench: Array, device: Array) -> float:
    """The root mean square error in double precision, over the elements that are finite on both sides.

    Infinite where infinities and NaN are not at the same places.
    """
    b, d = bench.astype(np.float64), device.astype(np.float64)
    finite = np.isfinite(b) & np.isfinite(d)
    if not np.array_equal(b[~finite], d[~finite], equal_nan=True):
        return math.inf
    return float(np.sqrt(np.mean(np.square(d[finite] - b[finite])))) if finite.any() else 0.0


def factor_of(dtype: str, elements: int) -> float:
    """How many times as large as the control's an error may be. ``dtype``: the candidate's, without ``torch.``."""
    return LARGER_FACTOR if dtype in _HALVES or elements < FEW_ELEMENTS else FACTOR


def share_of_limit(candidate: float, control: float, dtype: str, elements: int) -> float:
    """An error in errors of what the rule allows; infinite where it is no number."""
    share = candidate / (factor_of(dtype, elements) * control + TOLERANCE / 10) if candidate != control else 0.0
    return math.inf if math.isnan(share) else share


def problem_of(candidate: float, control: float, dtype: str, elements: int, trusted: str = "") -> str:
    """Why a result is an error, by its root mean square error and that of the control; empty if it is none.

    ``trusted``: what the control is, in words.
    """
    if share_of_limit(candidate, control, dtype, elements) <= 1:
        return ""
    factor = factor_of(dtype, elements)
    return said("rms-error-too-large", candidate, trusted or said("trusted-control"), control, factor, TOLERANCE / 10)
