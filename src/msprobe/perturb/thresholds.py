"""The numbers by which mindstudio-probe 8.1.1 judges two results of a call, by the name of the type."""

from __future__ import annotations

import math

from msprobe.compare.number_types import UNIT

# What is added to elements by classic noise, and the least magnitude that is changed at all.
_NOISE = {"bfloat16": 1e-4, "float16": 1e-6, "float32": 1e-8, "float64": 1e-16}
_EQUAL = {"float16": 1.002, "bfloat16": 1.004}
_EQUAL_OTHERS = 1.0002
# Of a result against that of the CPU: relative from 1 on, absolute below.
_TO_CPU = {"float32": 2.0**-14, "float16": UNIT["float16"], "bfloat16": UNIT["bfloat16"]}
#: Of the mean signed error against the CPU.
MEAN_LIMIT = 1e-4
#: Where thresholds begin that are learned in the first steps.
FIRST_LEARNED = 2.05
_BACKWARD_FLOOR = 1e-3
# What is computed with, to compare with.
_WIDER = {"float16": "float32", "bfloat16": "float32", "float32": "float64", "float64": "float64"}
_REAL_OF_COMPLEX = {"complex64": "float32", "complex128": "float64", "complex32": "float16"}


def noise_of(dtype: str) -> float | None:
    """The classic noise of a type; None for one that is not changed."""
    return _NOISE.get(dtype)


def floor_of(dtype: str, backward: bool) -> float:
    """The magnitude below which elements of a type count as this: sqrt of the noise, 1e-3 for gradients."""
    return _BACKWARD_FLOOR if backward else math.sqrt(_NOISE.get(real(dtype), 1e-8))


def equal_ratio(dtype: str, mode: str) -> float:
    """Up to which ratio two results are equal, by the type of the first one."""
    return 1.0 if mode == "no_change" else _EQUAL.get(real(dtype), _EQUAL_OTHERS)


def cpu_limit(dtype: str) -> float:
    """How far a result may be from that of the CPU, by its type."""
    return _TO_CPU.get(real(dtype), _TO_CPU["float32"])


def unit_of(dtype: str) -> float:
    """Half the distance of 1 to the next number, relative: what rounding to this type changes at most."""
    return UNIT.get(real(dtype), 2.0**-3 if "float8" in dtype else UNIT["float32"])


def wider(dtype: str) -> str:
    """A type to compute more precisely with than with this one; the same where there is none."""
    return _WIDER.get(real(dtype), "float32")


def is_low(dtype: str) -> bool:
    """True for types that improve_precision makes float32 of."""
    return dtype in ("float16", "bfloat16")


def real(dtype: str) -> str:
    """The type of the real and imaginary parts, of a complex one."""
    return _REAL_OF_COMPLEX.get(dtype, dtype)
