"""How finely the types of numbers divide: one table for all that asks what rounding may do."""

from __future__ import annotations

from functools import lru_cache

#: The distance of 1 to the next number (IEEE 754 and its relatives): two to the minus the digits that are stored.
EPSILON = {
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
#: float8 in its forms stores two or three digits; the coarser counts.
FLOAT8 = 2.0**-2
#: Half of that distance: what rounding to the nearest number of a type may change, relatively.
UNIT = {
    **{name: epsilon / 2 for name, epsilon in EPSILON.items() if name.endswith(("16", "32")) or name == "float64"},
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
}
#: Numbers of a type lie no closer than this, so a relative limit says nothing below it. Of float32 and bfloat16 the
#: smallest normal number, as numbers below it are zero on many devices.
LEAST_SPACING = {
    "float32": 2.0**-126,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-126,
    "float8_e4m3fn": 2.0**-9,
    "float8_e5m2": 2.0**-16,
}


@lru_cache(256)
def epsilon_of(dtype: str) -> float:
    """The distance of 1 to the next number of a type, as dumps write it (``torch.bfloat16``, ``BFloat16``); 0 for whole
    numbers and truth values, that of float32 for floating-point types that are not known.
    """
    name = dtype.lower().rpartition(".")[2]
    if name in EPSILON:
        return EPSILON[name]
    if "float8" in name:
        return FLOAT8
    return EPSILON["float32"] if "float" in name or "complex" in name else 0.0


#: The largest number that a type holds.
LARGEST = {
    "float64": (2.0 - 2.0**-52) * 2.0**1023,
    "float32": (2.0 - 2.0**-23) * 2.0**127,
    "float16": (2.0 - 2.0**-10) * 2.0**15,
    "bfloat16": (2.0 - 2.0**-7) * 2.0**127,
}


def type_at_its_end(value: object) -> str | None:
    """The type of which a plain number is the largest or the smallest (``torch.finfo(dtype).min``), as masks use it."""
    if not isinstance(value, float):
        return None
    return next((name for name, largest in LARGEST.items() if abs(value) == largest), None)
