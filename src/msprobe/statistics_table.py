"""What is said of a tensor's elements: one row for each statistic, for all who write and read dumps.

A recorder computes *numbers* (:data:`NUMBERS`) with the kernels of its framework, and the rows make statistics of them.
Settings, descriptions, readers, ``summary`` and sheets know statistics from here alone. How to add one:
``docs/how-to-add-a-statistic.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msprobe.messages import both

# What kernels compute of the elements, and what it is. A number that a kernel has no answer to is left out or None: of
# no elements there is the count alone, of bool no mean. Of complex numbers the magnitudes are the elements.
NUMBERS = (
    "count",  # how many elements there are
    "single",  # true of a tensor without dimensions, which is one value: its own mean, and nothing is counted for it
    "max",  # the greatest; of bool whether any is true. NaN left out or not, as the kernel likes
    "min",  # the least; of bool whether all are true
    "mean",  # their mean, rounded as the framework answers in the tensor's type
    "norm",  # the root of the sum of squares, rounded likewise; none of complex tensors of PyTorch
    "nan",  # how many are NaN
    "inf",  # how many are infinite; a complex number with a NaN in it is not
    "zero",  # how many are zero
    "second",  # the sum of the squares of element - mean, in a unit of the kernel's choice; none of bool or single
    "fourth",  # the sum of its fourth powers, in the same unit
)
# What a record says whatever is asked for: counts, and whether an element is not finite.
ALWAYS = frozenset({"count", "single", "nan", "inf", "zero"})

Numbers = Mapping[str, Any]
# "type": the kernel has rounded, as the framework answers in the tensor's type (half types at high precision: to
# float32). "single": to float32 whatever the type, so that sums in another order mostly give the same. "none": not.
Rounding = Literal["type", "single", "none"]


@dataclass(frozen=True)
class Statistic:
    """One row.

    ``name``: in settings and sheets. ``key``: in the file. ``word``: in the results of ``msprobe.open``, and
    ``meaning``, there, in a few words. ``needs``: what ``make`` is given, of :data:`NUMBERS`. ``make``: its value,
    not rounded yet; None (null in the file) where there is none. Of no elements there is none whatever the statistic.
    ``usual``: written if no list of statistics is asked for.
    """

    name: str
    key: str
    word: str
    meaning: str
    needs: frozenset[str]
    make: Callable[[Numbers], Any]
    rounding: Rounding
    # Columns of sheets.
    difference: str
    relative: str
    usual: bool = False

    def of(self, numbers: Numbers) -> Any:
        """The statistic of what a kernel has computed; None where there is none."""
        value = self.make(numbers) if numbers.get("count") else None
        return _to_single(value) if self.rounding == "single" and value is not None else value


def _to_single(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def _element_number(number: str) -> Callable[[Numbers], Any]:
    """The number itself, NaN where an element is."""

    def make(numbers: Numbers) -> Any:
        value = numbers.get(number)
        return value if value is None or not numbers.get("nan") else float("nan")

    return make


def _usual(name: str, key: str, number: str, meaning: str, rounding: Rounding) -> Statistic:
    return Statistic(
        name=name,
        key=key,
        word=number,
        meaning=meaning,
        needs=frozenset({number, "nan"}),
        make=_element_number(number),
        rounding=rounding,
        difference=f"{name.capitalize()} diff",
        relative=f"{key}RelativeErr",
        usual=True,
    )


def _kurtosis(numbers: Numbers) -> float | None:
    """Pearson's kurtosis, the fourth standardised moment: sum(d^4) / n / (sum(d^2) / n)^2 with d = element - mean; 3 of
    a normal distribution (K. Pearson, Skew variation, a rejoinder, Biometrika 4, 1905). None of bool, of a tensor
    without dimensions and where all elements are equal; NaN where one is not finite.
    """
    second, fourth = numbers.get("second"), numbers.get("fourth")
    if second is None or fourth is None:
        return None
    if numbers.get("nan") or numbers.get("inf"):
        return float("nan")
    if numbers["max"] == numbers["min"] or not second:
        return None
    return float(numbers["count"] * fourth / (second * second))


def _zeros(numbers: Numbers) -> float:
    """The share of elements that are zero, of either sign; NaN and infinities are not."""
    return float(numbers["zero"] / numbers["count"])


# In the order in which they are written.
TABLE = (
    _usual("max", "Max", "max", both("largest element", "最大元素"), "none"),
    _usual("min", "Min", "min", both("least element", "最小元素"), "none"),
    _usual("mean", "Mean", "mean", both("mean", "均值"), "type"),
    _usual("l2norm", "Norm", "norm", both("L2 norm", "L2 范数"), "type"),
    Statistic(
        name="kurtosis",
        key="Kurtosis",
        word="kurtosis",
        meaning=both("Pearson's kurtosis, 3 of a normal distribution", "Pearson 峰度，正态分布为 3"),
        needs=frozenset({"max", "min", "nan", "inf", "second", "fourth"}),
        make=_kurtosis,
        rounding="single",
        difference="Kurtosis diff",
        relative="KurtosisRelativeErr",
    ),
    Statistic(
        name="zeros",
        key="Zeros",
        word="zeros",
        meaning=both("share of elements that are zero, 0 to 1", "为零的元素比例，0 到 1"),
        needs=frozenset({"zero"}),
        make=_zeros,
        rounding="none",
        difference="Zeros diff",
        relative="ZerosRelativeErr",
    ),
)
NAMES = tuple(statistic.name for statistic in TABLE)
KEYS = tuple(statistic.key for statistic in TABLE)
USUAL = tuple(statistic for statistic in TABLE if statistic.usual)
# Readers have columns of their own for the usual ones; for the others where a dump has them.
FURTHER = tuple(statistic for statistic in TABLE if not statistic.usual)
USUAL_KEYS = tuple(statistic.key for statistic in USUAL)
USUAL_WORDS = tuple(statistic.word for statistic in USUAL)
# Of the usual ones, in sheets.
DIFFERENCES = tuple(statistic.difference for statistic in USUAL)
RELATIVE_ERRORS = tuple(statistic.relative for statistic in USUAL)
OF_BOTH_SIDES = tuple(f"{side} {statistic.name}" for side in ("NPU", "Bench") for statistic in USUAL)


def choose(names: Iterable[str] = ()) -> tuple[Statistic, ...]:
    """The statistics that a list in ``summary_mode`` asks for; the usual ones without a list. Names of others, digests
    among them, are none of this table's.
    """
    wanted = frozenset(names)
    return tuple(statistic for statistic in TABLE if statistic.name in wanted) if wanted else USUAL


def meanings(chosen: Iterable[Statistic]) -> dict[str, str]:
    """What the columns of the results say, by their words."""
    return {
        statistic.word: both("{}; None if not recorded", "{0}；没有采集时为 None", statistic.meaning)
        for statistic in chosen
    }


def needed(chosen: Iterable[Statistic]) -> frozenset[str]:
    """The numbers that kernels have to compute."""
    return ALWAYS.union(*(statistic.needs for statistic in chosen))
