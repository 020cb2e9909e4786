"""When two values of settings are one value, whatever type they were written in."""

from __future__ import annotations

import math
import re
from typing import Any

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_MOST_DIGITS = 300
_WORDS = {"true": True, "false": False, "none": None, "null": None, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def is_same(first: Any, second: Any) -> bool:
    """True for 1e-5 and "0.00001", True and "true" and 1, None and "null", "a,b" and ["a", "b"]."""
    ours, two = _meaning(first), _meaning(second)
    if isinstance(ours, list) != isinstance(two, list):
        ours, two = _as_list(ours), _as_list(two)
    if isinstance(ours, list) and isinstance(two, list):
        return len(ours) == len(two) and all(map(is_same, ours, two))
    if isinstance(ours, dict) and isinstance(two, dict):
        return ours.keys() == two.keys() and all(is_same(ours[name], two[name]) for name in ours)
    if isinstance(ours, float) and isinstance(two, float) and math.isnan(ours):
        return math.isnan(two)
    return bool(ours == two) if type(ours) is type(two) or _are_numbers(ours, two) else False


def _are_numbers(first: Any, two: Any) -> bool:
    return isinstance(first, (int, float)) and isinstance(two, (int, float))


def _meaning(value: Any) -> Any:
    """What a text stands for: a number, a truth, nothing; other values as they are."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    if len(text) > 1 and text[0] + text[-1] in ("[]", "()"):
        return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]
    return text


def _as_list(value: Any) -> Any:
    if isinstance(value, str) and ("," in value or " " in value):
        return [part.strip() for part in re.split(r"[,\s]+", value) if part.strip()]
    return value
