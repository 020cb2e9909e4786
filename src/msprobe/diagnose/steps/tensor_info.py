"""What a record says of one tensor, and what follows from that, worked out once.

Functions take any dictionary that describes a tensor; one of a timeline is a :class:`RecordedTensor`, which remembers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable
from functools import lru_cache
from math import isfinite, sqrt
from operator import itemgetter
from typing import Any

from msprobe.statistics_table import USUAL_KEYS

Statistics = tuple[Any, Any, Any, Any]
Numbers = tuple[float, float, float, float]

_recorded = itemgetter(*USUAL_KEYS)
_FACTS = ("count", "statistics", "numbers", "rms", "floating", "not_finite", "fingerprint", "plain")
#: Few words, which the parser makes anew for each tensor.
_WORDS = ("type", "dtype")
#: What a tensor of finite numbers in the memory of one process, all written and no file of it, has no word of.
_UNUSUAL = frozenset(("digest", "md5", "data_name", "unset", "nan", "inf", "layout"))


class RecordedTensor(dict[str, Any]):
    """The description of a tensor; ``numel`` and the other functions below answer from what was worked out once.

    Nothing but ``info[key] = value`` changes one. ``plain``: four finite numbers are all that is known of its values.
    """

    __slots__ = _FACTS

    count: int
    statistics: Statistics
    numbers: Numbers | None
    rms: float
    floating: bool
    not_finite: bool
    fingerprint: Hashable | None
    plain: bool

    def __getattr__(self, name: str) -> Any:
        """What is asked for the first time."""
        if name not in _FACTS:
            raise AttributeError(name)
        self._work_out()
        return object.__getattribute__(self, name)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key == "digest":  # of the facts, it is in these two
            self.plain, self.fingerprint = False, _fingerprint(self, self.statistics, self.count)
        else:
            self._work_out()

    def __reduce__(self) -> tuple[type[RecordedTensor], tuple[dict[str, Any]]]:
        """A copy, or one in another process, works out what it is asked."""
        return RecordedTensor, (dict(self),)

    def _work_out(self) -> None:
        self.count = count = _numel(self)
        self.floating = _is_floating(self["dtype"])
        for key in _WORDS:
            if type(word := self.get(key)) is str:
                dict.__setitem__(self, key, sys.intern(word))
        try:
            recorded = _recorded(self)
        except KeyError:
            recorded = _statistics(self)
        largest, least, mean, norm = self.statistics = recorded
        if (
            type(largest) is type(least) is type(mean) is type(norm) is float
            and isfinite(largest)
            and isfinite(least)
            and isfinite(mean)
            and isfinite(norm)
            and _UNUSUAL.isdisjoint(self)
        ):
            # Most are of this kind, and half a million of them are nothing unusual.
            self.plain, self.not_finite, self.numbers = True, False, recorded
            self.rms = norm / sqrt(count) if count > 0 else norm
            self.fingerprint = None if largest == least and count > 1 else (*recorded, count)
            return
        self.plain = False
        self.numbers = _numbers(recorded)
        self.rms = _rms(self.numbers, count)
        self.not_finite = _not_finite(self, recorded, self.numbers)
        self.fingerprint = _fingerprint(self, recorded, count)


def described(leaf: dict[str, Any]) -> RecordedTensor:
    """The same as one that remembers."""
    info = RecordedTensor(leaf)
    info._work_out()
    return info


#: Tensors that were described before, by their statistics.
Known = dict[Statistics, RecordedTensor]


def describe_tensors(record: Any, known: Known) -> None:
    """Make a :class:`RecordedTensor` of each description in a record; equal ones are one object, kept in ``known``.

    What one call makes the next takes, and the module around them, too: so half of what a step holds is reported twice.
    """
    items = record.items() if type(record) is dict else enumerate(record) if type(record) is list else ()
    for key, item in items:
        kind = type(item)
        if kind is dict:
            if type(item.get("type")) is not str:
                if item and key != "msprobe":
                    describe_tensors(item, known)
            elif type(item.get("dtype")) is str:
                record[key] = _described_once(item, known)
        elif kind is list and item:
            describe_tensors(item, known)


def _described_once(leaf: dict[str, Any], known: Known) -> RecordedTensor:
    try:
        info_known = known.get(_recorded(leaf))
    except (KeyError, TypeError):
        return described(leaf)
    if info_known is not None and info_known == leaf:
        return info_known
    info = described(leaf)
    # Zero has a sign, which equal numbers do not show.
    if info.plain and 0.0 not in info.statistics:
        known[info.statistics] = info
    return info


def tensors_of(slots: Iterable[tuple[str, Any]]) -> list[RecordedTensor]:
    """The tensors among slots and what is in them."""
    infos = []
    for _, leaf in slots:
        if type(leaf) is RecordedTensor:
            infos.append(leaf)
        elif is_tensor(leaf):
            infos.append(described(leaf))
    return infos


def is_tensor(leaf: Any) -> bool:
    """True for the object that describes a tensor."""
    return type(leaf) is RecordedTensor or (isinstance(leaf, dict) and isinstance(leaf.get("dtype"), str))


def statistics(leaf: dict[str, Any]) -> Statistics:
    """Max, min, mean and norm as they stand in the file."""
    return leaf.statistics if type(leaf) is RecordedTensor else _statistics(leaf)


def numel(leaf: dict[str, Any]) -> int:
    """How many elements a tensor has."""
    return leaf.count if type(leaf) is RecordedTensor else _numel(leaf)


def numbers(leaf: dict[str, Any]) -> Numbers | None:
    """The four statistics as floats; None where one is not recorded."""
    return leaf.numbers if type(leaf) is RecordedTensor else _numbers(_statistics(leaf))


def rms(leaf: dict[str, Any]) -> float:
    """Root mean square of the elements, from the norm."""
    return leaf.rms if type(leaf) is RecordedTensor else _rms(numbers(leaf), numel(leaf))


def not_finite(leaf: Any) -> bool:
    """True if a tensor is known to hold a NaN or an infinity."""
    if type(leaf) is RecordedTensor:
        return leaf.not_finite
    return is_tensor(leaf) and _not_finite(leaf, _statistics(leaf), numbers(leaf))


def fingerprint(leaf: Any) -> Hashable | None:
    """What distinguishes a tensor from others: its digest, or its statistics where it has none; None if nothing
    does.
    """
    if type(leaf) is RecordedTensor:
        return leaf.fingerprint
    return _fingerprint(leaf, _statistics(leaf), _numel(leaf)) if is_tensor(leaf) else None


def is_integer(leaf: dict[str, Any]) -> bool:
    """True for whole numbers and truth values."""
    return _is_integer(str(leaf.get("dtype", "")))


def is_floating(leaf: Any) -> bool:
    """True for a tensor of floating point or complex numbers."""
    if type(leaf) is RecordedTensor:
        return leaf.floating
    return is_tensor(leaf) and _is_floating(leaf["dtype"])


def spoken(value: Any) -> Any:
    """The number that a word of strict JSON stands for; anything else as it is."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _statistics(leaf: dict[str, Any]) -> Statistics:
    largest, least, mean, norm = map(leaf.get, USUAL_KEYS)
    return largest, least, mean, norm


def _numel(leaf: dict[str, Any]) -> int:
    shape = leaf.get("shape")
    if not isinstance(shape, list):
        return 1
    try:
        count = math.prod(shape)
        if type(count) is int:
            return count
    except TypeError:
        pass
    return math.prod(n for n in shape if isinstance(n, int))


def _numbers(recorded: Statistics) -> Numbers | None:
    first, two, three, four = recorded
    if type(first) is type(two) is type(three) is type(four) is float:
        return recorded
    as_floats = []
    for value in recorded:
        number = spoken(value)
        if isinstance(number, (int, float)):
            as_floats.append(float(number))
        else:
            as_floats.append(math.nan if value is not None else 0.0)
    return (as_floats[0], as_floats[1], as_floats[2], as_floats[3]) if any(v is not None for v in recorded) else None


def _rms(values: Numbers | None, count: int) -> float:
    return values[3] / sqrt(max(count, 1)) if values is not None else 0.0


def _not_finite(leaf: dict[str, Any], recorded: Statistics, values: Numbers | None) -> bool:
    if leaf.get("nan") or leaf.get("inf"):
        return True
    if values is None:
        return False
    return any(
        statistic is not None and not isfinite(value) for statistic, value in zip(recorded[:3], values[:3], strict=True)
    )


def _fingerprint(leaf: dict[str, Any], recorded: Statistics, count: int) -> Hashable | None:
    digest = leaf.get("digest") or leaf.get("md5")
    if isinstance(digest, str):
        return digest, count
    if recorded[0] is None:
        return None
    if recorded[0] == recorded[1] and count > 1:
        return None  # constant: too many look like it
    if any(isinstance(statistic, (list, dict)) for statistic in recorded):
        return None  # no statistics
    return (*recorded, count)


@lru_cache(256)
def _is_integer(dtype: str) -> bool:
    return "int" in dtype.lower() or "bool" in dtype.lower()


@lru_cache(256)
def _is_floating(dtype: str) -> bool:
    return "float" in dtype.lower() or "complex" in dtype.lower()
