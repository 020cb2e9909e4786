"""The values of a dump as columns: one row for each tensor, or for each argument."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.statistics_table import FURTHER, USUAL_KEYS, USUAL_WORDS, Statistic
from msprobe.store.rows import number_of

STATISTICS = USUAL_WORDS
_MAX, _MIN, _MEAN, _NORM = USUAL_KEYS
# A float64 holds all whole numbers up to here.
_EXACT = 1 << 53
_MOST_NESTING = 400
_NAN = float("nan")

# The parts of a record that hold values, in the order of the rows, and the first word of the slot.
_PARTS = (
    ("input_args", "input"),
    ("input_kwargs", "input"),
    ("input", "input"),
    ("output", "output"),
    ("parameters", "parameters"),
)


@dataclass(frozen=True)
class Columns:
    """Rows in the order of the dump. All columns have the same length.

    ``entry`` is the record's name and ``slot`` the place in it: ``input.0``, ``input.other``, ``output.1.2``,
    ``parameters.weight``; in ``parameters_grad`` and debug records the path alone. ``entry.slot`` is the name
    of the row in comparison sheets.

    ``dtype`` is the text of the file (``torch.float32``, ``Float32``); for what is no tensor, the type of the
    value. ``shape`` is a tuple, None where there is none. The statistics are float64; a null in the file is
    NaN and has its bit in ``nulls`` (1, 2, 4, 8 for max, min, mean, norm). Booleans are 0 and 1. A whole
    number that float64 cannot hold is in ``exact`` under ``(statistic, row)``. ``requires_grad`` is 1, 0, or
    -1 where nothing is said. ``md5`` is the digest that mindstudio-probe writes too, ``digest`` our own, with
    its kind before a colon. ``value`` is what an argument that is no tensor holds, and None for tensors. ``row``: the
    number of the tensor's row (:mod:`msprobe.store.rows`), -1 where it has none. ``further``: the statistics beyond the
    usual ones that some tensor has, in the order of the table.
    """

    entry: list[str]
    slot: list[str]
    dtype: list[str]
    shape: list[tuple[int, ...] | None]
    max: npt.NDArray[np.float64]
    min: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    norm: npt.NDArray[np.float64]
    nulls: npt.NDArray[np.uint8]
    requires_grad: npt.NDArray[np.int8]
    md5: list[str | None]
    digest: list[str | None]
    data_name: list[str | None]
    value: list[Any]
    exact: dict[tuple[str, int], int]
    row: npt.NDArray[np.int64]
    further: tuple[FurtherColumn, ...] = ()

    def __len__(self) -> int:
        return len(self.entry)


@dataclass(frozen=True, eq=False)
class FurtherColumn:
    """A statistic that is not written unless it is asked for. ``values``: float64, NaN where it was not recorded or is
    null, which ``known`` distinguishes from a recorded NaN.
    """

    statistic: Statistic
    values: npt.NDArray[np.float64]
    known: npt.NDArray[np.bool_]


class FurtherRows:
    """Grows the columns of statistics beyond the usual ones, which few tensors have."""

    def __init__(self) -> None:
        self._numbers: dict[Statistic, dict[int, float]] = {}

    def add(self, row: int, leaf: dict[str, Any]) -> None:
        """What the description of a tensor, that of this row, has of them."""
        for statistic in FURTHER:
            if statistic.key in leaf:
                numbers = self._numbers.setdefault(statistic, {})
                number = _number(leaf[statistic.key])
                if number is not None:
                    numbers[row] = number

    def finish(self, rows: int) -> tuple[FurtherColumn, ...]:
        """The columns of so many rows."""
        columns = []
        for statistic in FURTHER:
            if statistic in self._numbers:
                values, known = np.full(rows, _NAN), np.zeros(rows, np.bool_)
                numbers = self._numbers[statistic]
                places = np.fromiter(numbers, np.int64, len(numbers))
                values[places] = np.fromiter(numbers.values(), np.float64, len(numbers))
                known[places] = True
                columns.append(FurtherColumn(statistic, values, known))
        return tuple(columns)


def columns(records: Iterable[tuple[str, Any]], with_values: bool = False) -> Columns:
    """The rows of all tensors of ``records``; ``with_values`` adds those of arguments that are no tensors."""
    rows = _Rows()
    for name, record in records:
        for slot, leaf in leaves(name, record):
            if is_tensor(leaf):
                rows.add_tensor(name, slot, leaf)
            elif with_values:
                rows.add_value(name, slot, leaf)
    return rows.finish()


def leaves(name: str, record: Any) -> list[tuple[str, Any]]:
    """Slot and value of each argument, result, parameter or gradient of a record.

    A value is an object with a ``type`` (a tensor, if it also has ``dtype``), None, or what else stands
    there. The value of a record that is itself null has the empty slot.
    """
    slots: list[tuple[str, Any]] = []
    if "parameters_grad" in name and "parameters_grad" in name.split("."):
        _walk("", record, False, 0, slots)
    elif not isinstance(record, dict) or ("debug" in name and "debug" in name.split(".")):
        _walk("", record, True, 0, slots)
    else:
        for key, first in _PARTS:
            part = record.get(key)
            if part is not None or key in record:
                _walk(first, part, True, 0, slots)
    return slots


def is_tensor(leaf: Any) -> bool:
    """True for the object that describes a tensor or a numpy array."""
    return isinstance(leaf, dict) and isinstance(leaf.get("dtype"), str) and isinstance(leaf.get("type"), str)


def _walk(slot: str, value: Any, lists_count: bool, level: int, slots: list[tuple[str, Any]]) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            slots.append((slot, value))
        elif level < _MOST_NESTING:
            for key, item in value.items():
                _walk(f"{slot}.{key}" if slot else key, item, lists_count, level + 1, slots)
    elif isinstance(value, list):
        if level < _MOST_NESTING:
            for number, item in enumerate(value):
                below = slot if not lists_count else f"{slot}.{number}" if slot else str(number)
                _walk(below, item, lists_count, level + 1, slots)
    else:
        slots.append((slot, value))


class _Rows:
    """Columns that grow; 2 µs a row."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}  # slots, types and shapes repeat: keep one of each
        self._entry: list[str] = []
        self._slot: list[str] = []
        self._dtype: list[str] = []
        self._shape: list[tuple[int, ...] | None] = []
        self._max = array("d")
        self._min = array("d")
        self._mean = array("d")
        self._norm = array("d")
        self._nulls = bytearray()
        self._requires_grad = array("b")
        self._md5: list[str | None] = []
        self._digest: list[str | None] = []
        self._data_name: list[str | None] = []
        self._value: list[Any] = []
        self._exact: dict[tuple[str, int], int] = {}
        self._row_numbers = array("q")
        self._further = FurtherRows()

    def add_tensor(self, entry: str, slot: str, leaf: dict[str, Any]) -> None:
        get = leaf.get
        shape = get("shape")
        if not isinstance(shape, list) or any(type(length) is not int for length in shape):
            sizes = None
        else:
            sizes = tuple(shape)
        grad = get("requires_grad")
        self._md5.append(_text(get("md5")))
        self._digest.append(_text(get("digest")))
        self._data_name.append(_text(get("data_name")))
        self._requires_grad.append(-1 if grad is None else int(grad is True))
        self._value.append(None)
        self._row_numbers.append(number_of(leaf))
        self._further.add(len(self._entry), leaf)
        self._row(entry, slot, leaf["dtype"], sizes, get(_MAX), get(_MIN), get(_MEAN), get(_NORM))

    def add_value(self, entry: str, slot: str, leaf: Any) -> None:
        kind = leaf.get("type") if isinstance(leaf, dict) else type(leaf).__name__
        value = _value_of(leaf) if isinstance(leaf, dict) else leaf
        number = value if isinstance(value, (int, float)) else None
        self._md5.append(None)
        self._digest.append(None)
        self._data_name.append(None)
        self._requires_grad.append(-1)
        self._value.append(value)
        self._row_numbers.append(-1)
        self._row(entry, slot, str(kind), None, number, number, number, number)

    def _row(self, entry: str, slot: str, dtype: str, shape: tuple[int, ...] | None, *statistics: Any) -> None:
        share = self._known.setdefault
        self._entry.append(entry)
        self._slot.append(share(slot, slot))
        self._dtype.append(share(dtype, dtype))
        self._shape.append(share(shape, shape))
        high, low, mean, norm = statistics
        nulls = 0
        if not (type(high) is type(low) is type(mean) is type(norm) is float):
            (high, low, mean, norm), nulls = self._unusual(statistics)
        self._max.append(high)
        self._min.append(low)
        self._mean.append(mean)
        self._norm.append(norm)
        self._nulls.append(nulls)

    def _unusual(self, statistics: tuple[Any, ...]) -> tuple[list[float], int]:
        """The four statistics as floats, and which of them are null; keeps large whole numbers."""
        row = len(self._entry) - 1
        numbers, nulls = [], 0
        for bit, (name, statistic) in enumerate(zip(STATISTICS, statistics, strict=True)):
            number = _number(statistic)
            if number is None:
                nulls |= 1 << bit
                number = _NAN
            elif type(statistic) is int and not -_EXACT <= statistic <= _EXACT:
                self._exact[name, row] = statistic
            numbers.append(number)
        return numbers, nulls

    def finish(self) -> Columns:
        return Columns(
            entry=self._entry,
            slot=self._slot,
            dtype=self._dtype,
            shape=self._shape,
            max=np.array(self._max),
            min=np.array(self._min),
            mean=np.array(self._mean),
            norm=np.array(self._norm),
            nulls=np.frombuffer(bytes(self._nulls), np.uint8),
            requires_grad=np.array(self._requires_grad, np.int8),
            md5=self._md5,
            digest=self._digest,
            data_name=self._data_name,
            value=self._value,
            exact=self._exact,
            row=np.array(self._row_numbers, np.int64),
            further=self._further.finish(len(self._entry)),
        )


def _number(statistic: Any) -> float | None:
    """A statistic as a float; None for null. ``strict_json`` writes NaN and the infinities as strings."""
    if isinstance(statistic, (int, float)):
        try:
            return float(statistic)
        except OverflowError:
            return float("inf") if statistic > 0 else float("-inf")
    if isinstance(statistic, str) and statistic in ("NaN", "Infinity", "-Infinity"):
        return float(statistic.replace("Infinity", "inf"))
    return None


def _text(statistic: Any) -> str | None:
    return statistic if isinstance(statistic, str) else None


def _value_of(leaf: dict[str, Any]) -> Any:
    for key in ("value", "group_ranks", "format"):
        if key in leaf:
            return leaf[key]
    return None
