"""What a record says of a call's arguments and results: a tree of JSON values whose leaves may be tensors.

A tree consists of dict, list, str, int, float, bool and None. A leaf may also be a ready JSON fragment
(``bytes``) or an object whose ``.text`` is one (a tensor's description, whose numbers may still be on the
device). Where a tensor stands in its record is its *index path*, e.g. ``input.0.1`` or ``kwargs.mask``; it
names the file that keeps the values.

No framework is known here: an adapter registers how it describes its own types.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from msprobe.capture.array_numbers import numbers_of
from msprobe.capture.statistics_text import StatisticsText

Tree = Any
Describe = Callable[[Any], Tree]
# (value, description, index path) -> the description that is written, naming the file that keeps the values
Keep = Callable[[Any, Any, str], Any]

# Deeper containers are cut off.
DEPTH_LIMIT = 100
# One argument with more values than this in its containers is cut off: objects that refer to each other can be walked
# in more ways than there is time for.
VALUE_LIMIT = 50_000

TRUE = b'{"type":"bool","value":true}'
FALSE = b'{"type":"bool","value":false}'
_SMALL_INTS = {n: b'{"type":"int","value":%d}' % n for n in range(-16, 1025)}


def _describe_bool(value: bool) -> bytes:
    return TRUE if value else FALSE


def _describe_int(value: int) -> Tree:
    return _SMALL_INTS.get(value) or {"type": "int", "value": value}


def _describe_float(value: float) -> Tree:
    return {"type": "float", "value": value}


def _describe_text(value: str) -> Tree:
    return {"type": "str", "value": value}


def _describe_slice(value: slice) -> Tree:
    ends = [v if v is None or isinstance(v, int) else repr(v) for v in (value.start, value.stop, value.step)]
    return {"type": "slice", "value": ends}


def _describe_function(value: Any) -> Tree:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return None  # what makes up any attribute that it is asked for, as stand-ins of a trace do, is no function
    return {"type": "function", "value": f"{module}.{name}" if isinstance(module, str) and module else name}


def _describe_nothing(value: object) -> Tree:
    return None


PLAIN: dict[type, Describe] = {
    type(None): _describe_nothing,
    bool: _describe_bool,
    int: _describe_int,
    float: _describe_float,
    str: _describe_text,
    slice: _describe_slice,
    type(Ellipsis): lambda value: {"type": "ellipsis", "value": "..."},
    complex: lambda value: {"type": "complex", "value": [value.real, value.imag]},
    types.FunctionType: _describe_function,
    types.BuiltinFunctionType: _describe_function,
    types.MethodType: _describe_function,
    set: _describe_nothing,
    frozenset: _describe_nothing,
    bytes: _describe_nothing,
    range: _describe_nothing,
}


def parts_of(value: Any) -> tuple[Sequence[Any] | None, Sequence[Any]] | None:
    """What a container holds: the names of its items, or None if they have places; the items. None: no container."""
    if isinstance(value, (list, tuple)):
        fields = getattr(type(value), "_fields", None)
        if fields is not None and isinstance(fields, tuple) and len(fields) == len(value):
            return fields, value
        return None, value
    if isinstance(value, Mapping):
        return list(value.keys()), list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return names, [getattr(value, name, None) for name in names]
    return None


class _Walk:
    """Where a walk through nested containers is: what lies above, and how many more values it may see."""

    __slots__ = ("above", "left")

    def __init__(self) -> None:
        self.above: list[int] = []
        self.left = VALUE_LIMIT

    def enter(self, container: Any) -> str:
        """Go into ``container``; if it cannot be entered, why."""
        if len(self.above) >= DEPTH_LIMIT:
            return f"nested deeper than {DEPTH_LIMIT}"
        if id(container) in self.above:
            return "contains itself"
        size = 1 + len(container) if isinstance(container, Sized) else 1
        if size > self.left:
            return f"more than {VALUE_LIMIT} values"
        self.left -= size
        self.above.append(id(container))
        return ""

    def leave(self) -> None:
        """Back to the container around."""
        self.above.pop()


class Describer:
    """Turns arguments and results into the tree that a record keeps.

    ``tensor`` describes one tensor (``is_tensor`` says what is one); ``own_types`` adds or replaces exact
    types. ``statistics``: what is said of numpy arrays.
    """

    def __init__(
        self,
        tensor: Describe,
        is_tensor: Callable[[Any], bool],
        own_types: Mapping[type, Describe],
        statistics: StatisticsText | None = None,
    ) -> None:
        self.statistics = statistics or StatisticsText()
        self.tensor = tensor
        self.is_tensor = is_tensor
        # Exact type -> how to describe it. Containers and types met for the first time take the long way
        # below.
        self.by_type: dict[type, Describe] = {**PLAIN, **own_types}
        # Notified of errors that cost a value; the rest of the record is kept.
        self.failed: Callable[[Exception], None] = lambda error: None

    def describe(self, value: Any) -> Tree:
        """The tree of one value. What has no encoding is null; what fails when it is looked at says so."""
        describe = self.by_type.get(type(value))
        if describe is not None:
            return describe(value)
        return self._walk(value, "", None, _Walk())

    def describe_kept(self, value: Any, path: str, keep: Keep) -> Tree:
        """As :meth:`describe`; each tensor is also handed to ``keep`` with its index path below ``path``."""
        return self._walk(value, path, keep, _Walk())

    def _walk(self, value: Any, path: str, keep: Keep | None, walk: _Walk) -> Tree:
        try:
            return self._look_into(value, path, keep, walk)
        except Exception as error:
            self.failed(error)
            return {"unsupported": f"{type(error).__name__}: {error}"[:200]}

    def _look_into(self, value: Any, path: str, keep: Keep | None, walk: _Walk) -> Tree:
        if self.is_tensor(value):
            description = self.tensor(value)
            return description if keep is None else keep(value, description, path)
        kind = type(value)
        describe = self.by_type.get(kind)
        if describe is not None:
            return describe(value)
        parts = parts_of(value)
        if parts is None:
            return self._describe_rare(value, kind)
        obstacle = walk.enter(value)
        if obstacle:
            return {"unsupported": obstacle}
        try:
            names, items = parts
            if names is None:
                return [
                    self._walk(item, path if keep is None else f"{path}.{i}", keep, walk)
                    for i, item in enumerate(items)
                ]
            return {
                str(name): self._walk(item, path if keep is None else f"{path}.{name}", keep, walk)
                for name, item in zip(names, items, strict=True)
            }
        finally:
            walk.leave()

    def _describe_rare(self, value: Any, kind: type) -> Tree:
        if isinstance(value, enum.Enum):
            return {"type": "enum", "value": f"{kind.__name__}.{value.name}"}
        if isinstance(value, np.generic):
            return {"type": kind.__name__, "value": value.item()} if value.dtype.kind in "biuf" else None
        if isinstance(value, np.ndarray):
            return describe_array(value, self.statistics)
        for base in (bool, int, float, str):
            if isinstance(value, base):
                return self.by_type[base](base(value))
        if isinstance(value, type) or callable(value):
            return _describe_function(value)
        return None


def describe_array(array: np.ndarray[Any, Any], statistics: StatisticsText | None = None) -> Tree:
    """A numpy array: dtype, shape and statistics (null for text, complex and object arrays, and for empty ones), in
    double precision.
    """
    statistics = statistics or StatisticsText()
    numbers = numbers_of(array, statistics.needs) if array.dtype.kind in "biuf" else {}
    record = {"type": "numpy.ndarray", "dtype": str(array.dtype), "shape": list(array.shape)}
    return record | statistics.values(numbers)
