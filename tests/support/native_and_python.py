"""The recorder without its C extension, in this process, and what may differ between both: last digits of sums."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from msprobe.capture import native
from msprobe.statistics_table import TABLE

# Classes that others were derived from when they were loaded; without the functions nobody makes any.
_BASES = frozenset({"Info"})

# The C extension adds up in double, torch as it likes: relative to the number, or to the largest element for a mean.
_ROUNDING = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
    "float8_e4m3fn": 0.13,
    "float8_e4m3fnuz": 0.13,
    "float8_e5m2": 0.26,
    "float8_e5m2fnuz": 0.26,
}
_USUAL_ROUNDING = 2e-5
_OF_SUMS = frozenset(one.key for one in TABLE if one.rounding != "none")


def python_only() -> ModuleType:
    """A second :mod:`msprobe.capture.native`, loaded as ``MSPROBE_NATIVE=0`` would have it."""
    assert native.__spec__ is not None
    spec = importlib.util.spec_from_file_location("native_without_extension", native.__spec__.origin)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSPROBE_NATIVE", "0")
        spec.loader.exec_module(made)
    return made


def use_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take everything away that the C extension does: encoder, memo, statistics."""
    other = python_only()
    assert not other.built
    for name, value in vars(native).items():
        if not name.startswith("__") and name not in _BASES and value is not getattr(other, name, value):
            monkeypatch.setattr(native, name, getattr(other, name))


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two JSON trees differ by more than the rounding of a mean or a norm; the order of keys counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            yield f"{place}: {list(one)} and {list(other)}"
            return
        for key in one:
            if not (key in _OF_SUMS and _is_rounding(key, one, other[key])):
                yield from differences(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (ours, theirs) in enumerate(zip(one, other, strict=True)):
            yield from differences(ours, theirs, f"{place}/{number}")
    elif type(one) is not type(other) or one != other:
        yield f"{place}: {one!r} and {other!r}"


def _is_rounding(key: str, info: dict[str, Any], theirs: Any) -> bool:
    ours = info[key]
    if not isinstance(ours, float) or not isinstance(theirs, float):
        return False
    if key == "Mean":
        bounds = [info.get("Max"), info.get("Min")]
        if not all(isinstance(bound, int | float) for bound in bounds):
            return False
        scale = max(abs(bound) for bound in bounds if bound is not None)
    else:
        scale = abs(ours)
    kind = str(info.get("dtype")).removeprefix("torch.")
    return abs(ours - theirs) <= scale * _ROUNDING.get(kind, _USUAL_ROUNDING)
