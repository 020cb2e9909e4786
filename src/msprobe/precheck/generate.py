"""Values that fit what a record says of a tensor: the same on every machine, for any order of calls and workers.

Each tensor has a generator of its own, seeded by the call, the argument and the user's seed.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np

from msprobe.messages import said
from msprobe.precheck.arguments import ArgumentTensor
from msprobe.precheck.domains import Domain
from msprobe.precheck.metrics import Array

_LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": float(np.finfo(np.float32).max),
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}
_ANY = Domain()


class CannotGenerateError(ValueError):
    """A record says too little of a tensor to make values for it."""


def generator_for(key: str, path: str, seed: int) -> np.random.Generator:
    """The generator of one tensor."""
    digest = hashlib.blake2b(f"{key}\0{path}\0{seed}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def values_for(info: ArgumentTensor, random: np.random.Generator, domain: Domain = _ANY) -> Array:
    """Values of the recorded shape: float64 (complex128, int64, uint64 or bool), to be converted by who asked.

    Extremes are met exactly, by the first and the last element; in between, mean, norm and number of zeros are met on
    average. NaN and infinities are as many as were recorded, or one each where their number was not. What was
    uninitialised is zeros. Raises CannotGenerateError.
    """
    if info.numel == 0 or info.is_unset:
        return np.zeros(info.shape)
    if domain.name == "overwritten" and (info.low is None or info.high is None):
        return np.zeros(info.shape)
    if domain.low is not None:
        info = replace(info, low=domain.low, high=domain.high)
    if info.dtype.startswith("complex"):
        return _complex(info, random)
    if info.dtype == "bool":
        return _truth(info, random)
    if info.low is None or info.high is None:
        raise CannotGenerateError(said("no-extremes-recorded"))
    if info.dtype.startswith(("int", "uint")):
        return domain.adjusted(_whole(info, random).reshape(info.shape), random)
    if info.dtype.startswith(("float", "bfloat")):
        return _floats(info, random, domain).reshape(info.shape)
    raise CannotGenerateError(said("values-cannot-be-made", info.dtype))


def _complex(info: ArgumentTensor, random: np.random.Generator) -> Array:
    # Records have no extremes of complex numbers; the norm is that of the sizes.
    typical = 1.0
    if info.norm is not None and math.isfinite(info.norm) and info.norm > 0:
        typical = info.norm / math.sqrt(info.numel)
    parts = random.standard_normal((2, *info.shape)) * typical / math.sqrt(2)
    return np.asarray(parts[0] + 1j * parts[1])


def _truth(info: ArgumentTensor, random: np.random.Generator) -> Array:
    if info.low is not None and info.low == info.high:
        return np.full(info.shape, bool(info.low))
    share = 0.5 if info.zeros is None else 1 - info.zeros / info.numel
    values = random.random(info.numel) < share
    values[0], values[-1] = False, True
    return values.reshape(info.shape)


def _whole(info: ArgumentTensor, random: np.random.Generator) -> Array:
    assert info.low is not None
    assert info.high is not None
    if not (math.isfinite(info.low) and math.isfinite(info.high)):
        raise CannotGenerateError(said("extremes-not-finite"))
    low, high = int(info.low), int(info.high)
    kind: Any = np.uint64 if info.dtype == "uint64" else np.int64
    limits = np.iinfo(kind)
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    if low > high:
        raise CannotGenerateError(said("min-above-max", low, high))
    values = random.integers(low, high, info.numel, dtype=kind, endpoint=True)
    values[0], values[-1] = low, high
    return values


def _floats(info: ArgumentTensor, random: np.random.Generator, domain: Domain) -> Array:
    assert info.low is not None
    assert info.high is not None
    limit = _LARGEST.get(info.dtype, float(np.finfo(np.float64).max))
    low, high = _finite_bounds(info, limit)
    if low > high:
        raise CannotGenerateError(said("min-above-max-of-floats", low, high))
    nan = infinite = np.arange(0)
    if info.nan or info.infinite:
        nan, infinite = _special_places(info, random)
    is_finite = np.ones(info.numel, dtype=bool)
    is_finite[nan] = is_finite[infinite] = False
    values = np.full(info.numel, low)
    values[is_finite] = _finite(info, low, high, int(is_finite.sum()), random)
    values = domain.adjusted(values.reshape(info.shape), random).reshape(-1)
    values = _with_specials(values, info, nan, infinite)
    if domain.name == "sorted":
        values = domain.adjusted(values.reshape(info.shape), random).reshape(-1)
    return values


def _finite(info: ArgumentTensor, low: float, high: float, count: int, random: np.random.Generator) -> Array:
    """The finite elements: the ends first and last, and zeros as many as were recorded."""
    zeros = min(info.zeros, count) if info.zeros is not None and low <= 0 <= high else 0
    values = np.zeros(count)
    filled = random.permutation(count)[zeros:] if zeros else np.arange(count)
    values[filled] = _between(info, low, high, len(filled), random)
    if count and (zeros < count - 1 or zeros == 0):
        values[0], values[-1] = low, high
    return values


def _finite_bounds(info: ArgumentTensor, limit: float) -> tuple[float, float]:
    low = info.finite_low if info.finite_low is not None else info.low
    high = info.finite_high if info.finite_high is not None else info.high
    assert low is not None
    assert high is not None
    finite = [bound for bound in (low, high) if math.isfinite(bound)]
    # Only what is not finite was recorded: any usual size does for the rest.
    if not finite:
        return -1.0, 1.0
    low = low if math.isfinite(low) else min(-1.0, finite[0])
    high = high if math.isfinite(high) else max(1.0, finite[-1])
    return max(float(low), -limit), min(float(high), limit)


def _between(info: ArgumentTensor, low: float, high: float, count: int, random: np.random.Generator) -> Array:
    """Numbers in an interval with the recorded mean and norm, of a beta distribution; uniform where none has them."""
    width = high - low
    if width == 0 or count == 0:
        return np.full(count, low)
    if not math.isfinite(width):
        return np.asarray(random.uniform(-1, 1, count) * high)
    form = _beta_form(info, low, width, count)
    drawn = random.random(count) if form is None else random.beta(*form, count)
    return np.clip(low + width * drawn, low, high)


def _beta_form(info: ArgumentTensor, low: float, width: float, count: int) -> tuple[float, float] | None:
    """The two parameters of the beta distribution by the method of moments."""
    if info.mean is None or info.norm is None or not (math.isfinite(info.mean) and math.isfinite(info.norm)):
        return None
    all_of = info.numel / count  # zeros are put in apart: what is left has all of the sum
    mean = info.mean * all_of
    try:
        variance = (info.norm**2 / info.numel) * all_of - mean**2
    except OverflowError:
        return None
    mean, variance = (mean - low) / width, variance / width**2
    if not (0 < mean < 1 and 0 < variance < mean * (1 - mean)):
        return None
    common = mean * (1 - mean) / variance - 1
    first, second = mean * common, (1 - mean) * common
    # A distribution of nearly nothing but its ends is no test.
    return (first, second) if min(first, second) > 1e-2 and max(first, second) < 1e8 else None


def _special_places(info: ArgumentTensor, random: np.random.Generator) -> tuple[Array, Array]:
    """Where NaN are, and where infinities: as many of each as were recorded, away from the ends where there is room."""
    count = info.numel
    nan, infinite = info.nan or 0, info.infinite or 0
    inner = 1 + random.permutation(count - 2) if count > 2 else np.arange(0)
    places = np.concatenate([inner, np.arange(count)[:: max(1, count - 1)]])
    nan = min(nan, count)
    return places[:nan], places[nan : min(nan + infinite, count)]


def _with_specials(values: Array, info: ArgumentTensor, nan: Array, infinite: Array) -> Array:
    """Recorded NaN and infinities: at these places; where no number of them is recorded one each, away from the
    extremes where there is room.
    """
    if nan.size or infinite.size:
        values[nan] = math.nan
        signs = [sign for sign, end in ((-math.inf, info.low), (math.inf, info.high)) if end == sign]
        signs = signs or [-math.inf, math.inf]  # unknown where NaN hides the extremes
        values[infinite] = np.resize(signs, infinite.size)
        return values
    specials = [bound for bound in (info.low, info.high) if bound is not None and not math.isfinite(bound)]
    for place, special in enumerate(dict.fromkeys("nan" if s != s else str(s) for s in specials)):
        if special == "nan":
            values[1 + place if values.size > 2 + place else 0] = math.nan
        else:
            values[-1 if special == "inf" else 0] = float(special)
    return values
