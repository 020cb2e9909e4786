"""Arguments and tensors of recorded calls, as the checks look at them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msprobe.diagnose.differences.records import fingerprint, is_floating, numbers
from msprobe.diagnose.steps.timeline import Slot, is_tensor
from msprobe.statistics_table import KEYS


def tensors(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """The tensors among slots."""
    return [leaf for _, leaf in slots if is_tensor(leaf)]


def floats(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """The tensors of floating-point numbers among slots."""
    return [leaf for _, leaf in slots if is_floating(leaf)]


def is_constant(leaf: dict[str, Any]) -> bool:
    """True if all elements are one value, or nothing is known of them: many tensors look like that."""
    statistics = numbers(leaf)
    return statistics is None or statistics[0] == statistics[1]


def distinct(leaf: Any) -> bool:
    """True if a tensor's values can distinguish it from others."""
    return is_tensor(leaf) and not is_constant(leaf) and fingerprint(leaf) is not None


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """True if two tensors hold the same values, or look alike in all that was recorded."""
    return left.get("shape") == right.get("shape") and fingerprint(left) == fingerprint(right)


def has_values(leaf: Any) -> bool:
    """True if a tensor has finite statistics."""
    statistics = numbers(leaf) if is_tensor(leaf) else None
    return statistics is not None and all(map(math.isfinite, statistics))


def measured(leaf: Any) -> Any:
    """A tensor as evidence: type, shape and statistics."""
    if not is_tensor(leaf):
        return leaf
    keys = ("dtype", "shape", *KEYS, "nan", "inf", "zero")
    return {key: leaf[key] for key in keys if key in leaf}


def in_its_model(name: str) -> str:
    """The name of a parameter without the number of its model in a list of models."""
    number, _, rest = name.partition(".")
    return rest if number.isdigit() else name
