"""One part of a dump as the rows of the comparison sheet, in columns.

Source of the rules: the sheet of mindstudio-probe 8.1.1. Every input, parameter, output and parameter gradient
is a row, and so is every argument that is no tensor.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.compare.problems import DamagedDataError, TooDeepError
from msprobe.compare.rank_runs import group_text
from msprobe.foreign.letters import short_repr
from msprobe.messages import said
from msprobe.statistics_table import USUAL, USUAL_KEYS
from msprobe.store.columns import FurtherColumn, FurtherRows
from msprobe.store.part import DumpPart

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float64]

STATISTICS = tuple(statistic.name for statistic in USUAL)
_MAX, _MIN, _MEAN, _NORM = USUAL_KEYS
# What a statistic is; a row packs the four in one number, three bits each, max lowest.
FLOAT, WHOLE, NULL, BOOL, TEXT = range(5)
# What a row is, in the order of the rows of one API.
INPUT, PARAMETER, OUTPUT, GRADIENT, DEBUG = range(5)
STATES = ("input", "parameters", "output", "parameters_grad", "debug")

NO_DIGEST = "N/A"
_EMPTY_DIGEST = "00000000"
_ALL_NULL, _ALL_WHOLE, _ALL_BOOL, _ALL_TEXT = (kind * 0o1111 for kind in (NULL, WHOLE, BOOL, TEXT))
_NAN = float("nan")
_FOUR_NANS = (_NAN,) * 4
# A float64 holds all whole numbers up to here.
_EXACT = 1 << 53
_MOST_DEPTH = 10
_WORDS = {"NaN": _NAN, "Infinity": float("inf"), "-Infinity": float("-inf")}
# The parts of a record that hold values: the key, the word in the name, what the row is. In the order of the rows.
_PARTS = (
    ("input_args", "input", INPUT),
    ("input_kwargs", "input", INPUT),
    ("input", "input", INPUT),
    ("parameters", "parameters", PARAMETER),
    ("output", "output", OUTPUT),
)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one dump, in its order. All columns have the same length.

    ``entries`` are the names of the records that have rows and ``entry`` the record of each row; ``slot`` is the
    place in it (``input.0``) and ``name`` what the sheet shows. ``state`` is one of :data:`STATES`. The words of
    ``dtype`` and ``shape`` stand in ``dtypes`` and ``shapes``, as the sheet writes them.

    ``numbers`` has shape (4, rows) in the order of :data:`STATISTICS`: NaN where the statistic is no number,
    booleans as 0 and 1. ``kinds`` packs what each statistic is (see :meth:`kind`). ``texts`` has the value of
    rows that hold a text, ``exact`` whole numbers that float64 cannot hold, by statistic and row.

    ``requires_grad`` is 1, 0, or -1 where nothing is said. ``md5`` is None where a tensor has none, ``data_name``
    None where there is no file. ``further``: the statistics beyond the usual ones that some tensor has.
    """

    entries: list[str]
    entry: Codes
    slot: list[str]
    name: list[str]
    state: npt.NDArray[np.uint8]
    dtypes: list[str]
    dtype: Codes
    shapes: list[str]
    shape: Codes
    elements: npt.NDArray[np.int64]
    numbers: Numbers
    kinds: npt.NDArray[np.uint16]
    texts: dict[int, str]
    exact: dict[tuple[int, int], int]
    requires_grad: npt.NDArray[np.int8]
    md5: list[str | None]
    has_md5: bool
    data_name: list[str | None]
    further: tuple[FurtherColumn, ...] = ()

    def __len__(self) -> int:
        return len(self.name)

    def kind(self, statistic: int) -> npt.NDArray[np.uint16]:
        """FLOAT, WHOLE, NULL, BOOL or TEXT for each row."""
        return (self.kinds >> np.uint16(3 * statistic)) & np.uint16(7)

    def numeric(self, statistic: int) -> npt.NDArray[np.bool_]:
        """True where the statistic is a number (NaN and infinities too), and not a boolean."""
        numeric: npt.NDArray[np.bool_] = self.kind(statistic) <= WHOLE
        return numeric

    @cached_property
    def is_tensor(self) -> npt.NDArray[np.bool_]:
        """True for rows of tensors, false for other arguments and nulls."""
        known = np.array([not _is_value(word) for word in self.dtypes], dtype=np.bool_)
        return known[self.dtype] if len(known) else np.zeros(0, np.bool_)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each entry that has rows, in the order of the rows."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.concatenate(([0], np.flatnonzero(np.diff(self.entry)) + 1)).astype(np.int64)


def read_rows(part: DumpPart) -> Rows:
    """Read the rows of a part.

    Raises TooDeepError for values nested deeper than ten levels, DamagedDataError for a tensor whose description
    cannot be, and what the reader raises for broken files.
    """
    collector = _Collector(str(part.path))
    for name, record in part.records():
        collector.add(name, record)
    return collector.finish()


def slots_of(name: str, record: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The slot of each row that :func:`read_rows` makes of a record, and the object that describes its value. Rows of
    nulls and of bare values have no such object, and are left out.
    """
    special = _special(name)
    if special is not None:
        yield from _slots_below("", record, special == GRADIENT)
    elif isinstance(record, dict):
        for key, word, _ in _PARTS:
            yield from _slots_below(word, record.get(key), False)


def _slots_below(slot: str, value: Any, lists_are_one: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            yield slot, value
            return
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return
    for key, item in items:
        below = slot if lists_are_one and isinstance(value, list) else f"{slot}.{key}" if slot else str(key)
        yield from _slots_below(below, item, lists_are_one)


def _is_value(dtype: str) -> bool:
    """True for the word of what is no tensor: a class, a null, or one of the types that keep their word."""
    return dtype.startswith("<class ") or dtype in ("None", "torch.Size", "slice", "ellipsis", "torch.ProcessGroup")


def _special(name: str) -> int | None:
    """GRADIENT or DEBUG, by the last parts of the record's name: a module may have such a name, too.

    >>> _special("Module.fc.Linear.parameters_grad"), _special("loss.0.debug"), _special("Module.debug.Fc.forward.0")
    (3, 4, None)
    """
    words = name.rsplit(".", 2)
    if "parameters_grad" in words[-2:]:
        return GRADIENT
    return DEBUG if words[-1] == "debug" else None


class _Collector:
    """Columns that grow; 2 µs a row (bench/compare)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._entries: list[str] = []
        self._entry = array("i")
        self._slot: list[str] = []
        self._name: list[str] = []
        self._state = bytearray()
        self._dtypes: dict[str, int] = {}
        self._dtype = array("i")
        self._shapes: dict[str, int] = {}
        self._shape = array("i")
        self._shape_of: dict[tuple[int, ...], tuple[int, int]] = {}
        self._elements = array("q")
        self._numbers = array("d")
        self._kinds = array("H")
        self._texts: dict[int, str] = {}
        self._exact: dict[tuple[int, int], int] = {}
        self._requires_grad = array("b")
        self._md5: list[str | None] = []
        self._has_md5 = False
        self._data_name: list[str | None] = []
        self._further = FurtherRows()

    def add(self, name: str, record: Any) -> None:
        """Add the rows of one record."""
        before = len(self._name)
        number = len(self._entries)
        special = _special(name) if name.endswith("debug") or "parameters_grad" in name else None
        if special is not None:
            self._walk(number, name, "", special, record, 1)
        elif isinstance(record, dict):
            for key, word, state in _PARTS:
                if key in record:
                    self._walk(number, name, word, state, record[key], 1)
        else:
            raise DamagedDataError(said("record-is-no-object", self._path, name, short_repr(record)))
        if len(self._name) > before:
            self._entries.append(name)

    def _walk(self, entry: int, name: str, slot: str, state: int, value: Any, depth: int) -> None:
        if depth > _MOST_DEPTH + 1:
            raise TooDeepError(said("record-too-deep", self._path, name, slot or "its value", _MOST_DEPTH))
        if isinstance(value, dict):
            if isinstance(value.get("type"), str):
                if isinstance(value.get("dtype"), str):
                    self._tensor(entry, name, slot, state, value)
                else:
                    self._value(entry, name, slot, state, value)
                return
            for key, item in value.items():
                self._walk(entry, name, f"{slot}.{key}" if slot else key, state, item, depth + 1)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                below = slot if state == GRADIENT else f"{slot}.{number}" if slot else str(number)
                self._walk(entry, name, below, state, item, depth + 1)
        elif value is None:
            self._row(entry, name, slot, state, "None", self._shape_code("None"), 0, None)
            self._numbers.extend(_FOUR_NANS)
            self._kinds.append(_ALL_NULL)
            self._requires_grad.append(-1)
            self._md5.append(NO_DIGEST)
        else:
            # A bare value, as nobody writes it; shown as what it is.
            self._value(entry, name, slot, state, {"type": type(value).__name__, "value": value})

    def _tensor(self, entry: int, name: str, slot: str, state: int, leaf: dict[str, Any]) -> None:
        get = leaf.get
        shape = get("shape")
        try:
            code, elements = self._shape_of[tuple(shape)]  # type: ignore[arg-type]
        except (KeyError, TypeError):
            code, elements = self._new_shape(name, slot, shape)
        data_name = get("data_name")
        if not isinstance(data_name, str) or data_name == "-1":
            data_name = None
        digest = get("md5")
        if digest is not None:
            digest = str(digest)
            self._has_md5 = True
        high, low, mean, norm = get(_MAX), get(_MIN), get(_MEAN), get(_NORM)
        if type(high) is type(low) is type(mean) is type(norm) is float:
            self._numbers.extend((high, low, mean, norm))
            self._kinds.append(0)
        else:
            self._unusual(name, slot, (high, low, mean, norm))
        grad = get("requires_grad")
        self._requires_grad.append(-1 if grad is None else grad is True)
        self._md5.append(digest)
        self._further.add(len(self._name), leaf)
        self._row(entry, name, slot, state, leaf["dtype"], code, elements, data_name)

    def _value(self, entry: int, name: str, slot: str, state: int, leaf: dict[str, Any]) -> None:
        """An argument that is no tensor: its value is all four statistics."""
        kind = leaf["type"]
        value = leaf.get("value")
        digest = f"{zlib.crc32(str(value).encode(errors='replace')):08x}" if "value" in leaf else _EMPTY_DIGEST
        dtype, shape = kind, "[]"
        if kind == "torch.Size":
            shape, value = str(value), None
        elif kind == "slice":
            shape, value = f"({len(value) if isinstance(value, list) else 0},)", None
        elif kind == "torch.ProcessGroup":
            value = str(group_text(leaf.get("group_ranks")))
        elif kind != "ellipsis":
            dtype = str(type(value))
        self._same_value(value)
        self._requires_grad.append(-1)
        self._md5.append(digest)
        self._row(entry, name, slot, state, dtype, self._shape_code(shape), 0, None)

    def _same_value(self, value: Any) -> None:
        row = len(self._name)
        number = _NAN
        if value is None:
            kinds = _ALL_NULL
        elif isinstance(value, bool):
            number, kinds = float(value), _ALL_BOOL
        elif isinstance(value, float):
            number, kinds = value, 0
        elif isinstance(value, int):
            number, kinds = _as_float(value), _ALL_WHOLE
            if not -_EXACT <= value <= _EXACT:
                for statistic in range(4):
                    self._exact[statistic, row] = value
        else:
            kinds = _ALL_TEXT
            self._texts[row] = str(value)
        self._numbers.extend((number, number, number, number))
        self._kinds.append(kinds)

    def _unusual(self, name: str, slot: str, statistics: tuple[Any, ...]) -> None:
        """The statistics of a tensor of which some are no floats."""
        row = len(self._name)
        kinds = 0
        for statistic, value in enumerate(statistics):
            number = _NAN
            if isinstance(value, float):
                number, kind = value, FLOAT
            elif value is None:
                kind = NULL
            elif isinstance(value, bool):
                number, kind = float(value), BOOL
            elif isinstance(value, int):
                number, kind = _as_float(value), WHOLE
                if not -_EXACT <= value <= _EXACT:
                    self._exact[statistic, row] = value
            elif isinstance(value, str) and value in _WORDS:
                # ``strict_json`` writes NaN and the infinities as strings.
                number, kind = _WORDS[value], FLOAT
            else:
                raise DamagedDataError(
                    said(
                        "record-statistic-wrong",
                        self._path,
                        name,
                        slot or "its value",
                        STATISTICS[statistic],
                        short_repr(value),
                    )
                )
            self._numbers.append(number)
            kinds |= kind << 3 * statistic
        self._kinds.append(kinds)

    def _row(
        self,
        entry: int,
        name: str,
        slot: str,
        state: int,
        dtype: str,
        shape: int,
        elements: int,
        data_name: str | None,
    ) -> None:
        self._entry.append(entry)
        self._slot.append(slot)
        if data_name is None:
            self._name.append(f"{name}.{slot}" if slot else name)
        else:
            self._name.append(data_name.rpartition(".")[0] or data_name)
        self._data_name.append(data_name)
        self._state.append(state)
        code = self._dtypes.get(dtype)
        if code is None:
            code = self._dtypes[dtype] = len(self._dtypes)
        self._dtype.append(code)
        self._shape.append(shape)
        self._elements.append(elements)

    def _shape_code(self, text: str) -> int:
        return self._shapes.setdefault(text, len(self._shapes))

    def _new_shape(self, name: str, slot: str, shape: Any) -> tuple[int, int]:
        if shape is None:
            return self._shape_code("None"), 0
        if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape):
            raise DamagedDataError(said("record-shape-wrong", self._path, name, slot or "its value", short_repr(shape)))
        code_and_size = self._shape_code(str(shape)), min(prod(shape), (1 << 63) - 1)
        self._shape_of[tuple(shape)] = code_and_size
        return code_and_size

    def finish(self) -> Rows:
        return Rows(
            entries=self._entries,
            entry=np.array(self._entry, np.int32),
            slot=self._slot,
            name=self._name,
            state=np.frombuffer(bytes(self._state), np.uint8),
            dtypes=list(self._dtypes),
            dtype=np.array(self._dtype, np.int32),
            shapes=list(self._shapes),
            shape=np.array(self._shape, np.int32),
            elements=np.array(self._elements, np.int64),
            numbers=np.ascontiguousarray(np.array(self._numbers, np.float64).reshape(-1, 4).T),
            kinds=np.array(self._kinds, np.uint16),
            texts=self._texts,
            exact=self._exact,
            requires_grad=np.array(self._requires_grad, np.int8),
            md5=self._md5,
            has_md5=self._has_md5,
            data_name=self._data_name,
            further=self._further.finish(len(self._name)),
        )


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
