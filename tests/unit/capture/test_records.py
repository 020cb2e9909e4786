"""How values are described in a record: each kind its encoding, nothing fails, nothing is changed."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from collections import ChainMap, OrderedDict, defaultdict, deque, namedtuple
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.capture.native import encode
from msprobe.capture.records import DEPTH_LIMIT, PLAIN, Describer, describe_array


class Tensor:
    """Stands for a framework's tensor."""

    def __init__(self, name: str) -> None:
        self.name = name


class Info:
    def __init__(self, tensor: Tensor) -> None:
        self.text = json.dumps({"type": "Tensor", "name": tensor.name}).encode()


class OwnKind:
    pass


@pytest.fixture
def describer() -> Describer:
    own = {OwnKind: lambda value: {"type": "OwnKind"}, Tensor: Info}
    return Describer(Info, lambda value: isinstance(value, Tensor), own)


def written(tree: Any) -> Any:
    """The tree as a reader of the file gets it."""
    return json.loads(encode(tree, 0))


def typed(kind: str, value: object) -> dict[str, object]:
    return {"type": kind, "value": value}


Point = namedtuple("Point", "x y")


class Typed(NamedTuple):
    left: int
    right: Any = None


@dataclasses.dataclass
class Options:
    scale: float
    mask: Any = None
    hidden: list[int] = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("x",)


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Flag(enum.Flag):
    A = 1
    B = 2


class Whole(int):
    pass


class Text(str):
    pass


def function() -> None:
    """A function among the arguments."""


one = Tensor("one")
ONE = {"type": "Tensor", "name": "one"}


class Proxy:
    """Makes up any attribute, can be called, and has no truth value: as where `torch.fx` traces a model."""

    def __getattr__(self, name: str) -> Proxy:
        return Proxy()

    def __call__(self) -> Proxy:
        return Proxy()

    def __bool__(self) -> bool:
        raise TypeError("symbolically traced variables cannot be used as inputs to control flow")


ENCODINGS: dict[str, tuple[Any, Any]] = {
    "None": (None, None),
    "True": (True, typed("bool", True)),
    "False": (False, typed("bool", False)),
    "int": (5, typed("int", 5)),
    "a negative int": (-3, typed("int", -3)),
    "a large int": (2**70, typed("int", 2**70)),
    "float": (2.5, typed("float", 2.5)),
    "str": ("text", typed("str", "text")),
    "text with quotes": ('a "b" \\ \n é', typed("str", 'a "b" \\ \n é')),
    "slice": (slice(1, 5, 2), typed("slice", [1, 5, 2])),
    "an open slice": (slice(None, 3), typed("slice", [None, 3, None])),
    "a slice of other things": (slice("a", 1.5), typed("slice", ["'a'", "1.5", None])),
    "ellipsis": (..., typed("ellipsis", "...")),
    "complex": (1 + 2j, typed("complex", [1.0, 2.0])),
    "set": ({1}, None),
    "frozenset": (frozenset((1,)), None),
    "bytes": (b"x", None),
    "range": (range(3), None),
    "an object": (object(), None),
    "a slotted object": (Slotted(), None),
    "list": ([1, "a"], [typed("int", 1), typed("str", "a")]),
    "tuple": ((1, [2.0]), [typed("int", 1), [typed("float", 2.0)]]),
    "an empty list": ([], []),
    "dict": ({"k": 1, 2: None}, {"k": typed("int", 1), "2": None}),
    "an empty dict": ({}, {}),
    "OrderedDict": (OrderedDict(b=1, a=2), {"b": typed("int", 1), "a": typed("int", 2)}),
    "defaultdict": (defaultdict(int, k=1), {"k": typed("int", 1)}),
    "mapping proxy": (MappingProxyType({"k": 1}), {"k": typed("int", 1)}),
    "ChainMap": (ChainMap({"k": 1}), {"k": typed("int", 1)}),
    "namedtuple": (Point(1, one), {"x": typed("int", 1), "y": ONE}),
    "NamedTuple": (Typed(1), {"left": typed("int", 1), "right": None}),
    "dataclass": (Options(0.5, one), {"scale": typed("float", 0.5), "mask": ONE, "hidden": []}),
    "a dataclass itself": (Options, typed("function", f"{__name__}.Options")),
    "tensor": (one, ONE),
    "a tensor in a tuple in a dict": ({"k": (one,)}, {"k": [ONE]}),
    "an own type": (OwnKind(), {"type": "OwnKind"}),
    "function": (function, typed("function", f"{__name__}.function")),
    "lambda": (lambda: None, typed("function", f"{__name__}.<lambda>")),
    "builtin": (len, typed("function", "builtins.len")),
    "method": ("".join, typed("function", "str.join")),
    "class": (dict, typed("function", "builtins.dict")),
    "partial": (functools.partial(function), None),
    "a stand-in of a trace": (Proxy(), None),
    "enum": (Colour.RED, typed("enum", "Colour.RED")),
    "int enum": (Level.HIGH, typed("enum", "Level.HIGH")),
    "flag": (Flag.A, typed("enum", "Flag.A")),
    "an int of another class": (Whole(4), typed("int", 4)),
    "a str of another class": (Text("t"), typed("str", "t")),
    "np.float32": (np.float32(1.5), typed("float32", 1.5)),
    "np.int64": (np.int64(7), typed("int64", 7)),
    "np.bool_": (np.bool_(True), typed(type(np.bool_(True)).__name__, True)),
    "np.str_": (np.str_("s"), None),
    "deque": (deque([1]), None),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_kind_has_its_encoding(describer: Describer, name: str) -> None:
    value, expected = ENCODINGS[name]
    assert written(describer.describe(value)) == expected
    assert written(describer.describe([value])) == [expected]
    assert written(describer.describe({"k": value})) == {"k": expected}
    assert written(describer.describe_kept(value, "p", lambda tensor, info, path: info)) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_keep_the_form_that_readers_know(describer: Describer, value: float) -> None:
    found = written(describer.describe(value))
    assert found["type"] == "float"
    assert repr(found["value"]) == repr(value)


@pytest.mark.parametrize("count", [-17, -16, 0, 1, 1023, 1024, 1025])
def test_whole_numbers_are_reported_alike_whether_small_or_large(describer: Describer, count: int) -> None:
    assert written(describer.describe(count)) == typed("int", count)


def test_true_is_no_one(describer: Describer) -> None:
    assert written(describer.describe([1, True, 0, False])) == [
        typed("int", 1),
        typed("bool", True),
        typed("int", 0),
        typed("bool", False),
    ]


# ---------------------------------------------------------------- index paths


def test_tensors_are_kept_under_their_index_path(describer: Describer) -> None:
    found: list[tuple[str, str]] = []

    def keep(tensor: Tensor, info: Any, path: str) -> Any:
        found.append((path, tensor.name))
        return {"kept": path}

    value = [Tensor("a"), {"k": (Tensor("b"), 1)}, Point(Tensor("c"), 2), Options(1.0, [Tensor("d")])]
    tree = written(describer.describe_kept(value, "forward.input.0", keep))
    assert found == [
        ("forward.input.0.0", "a"),
        ("forward.input.0.1.k.0", "b"),
        ("forward.input.0.2.x", "c"),
        ("forward.input.0.3.mask.0", "d"),
    ]
    assert tree[0] == {"kept": "forward.input.0.0"}
    assert tree[1]["k"][1] == typed("int", 1)


# ---------------------------------------------------------------- odd containers


def test_what_holds_itself_is_cut_off(describer: Describer) -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    ring: dict[str, Any] = {}
    ring["again"] = (ring,)
    for value in (loop, ring):
        assert "unsupported" in json.dumps(written(describer.describe(value)))


@dataclasses.dataclass(eq=False)
class Node:
    number: int
    neighbours: list[Any] = dataclasses.field(default_factory=list)


def test_objects_that_refer_to_each_other_are_cut_off_in_time(describer: Describer) -> None:
    nodes = [Node(n) for n in range(40)]
    for node in nodes:
        node.neighbours = [other for other in nodes if other is not node]
    text = encode(describer.describe(nodes[0]), 0)
    assert b"contains itself" in text
    assert b"more than 50000 values" in text
    twice: list[Any] = []
    twice += [twice, twice]
    assert written(describer.describe(twice)) == [{"unsupported": "contains itself"}] * 2


def test_a_container_may_be_there_twice(describer: Describer) -> None:
    inner = [1]
    assert written(describer.describe([inner, inner])) == [[typed("int", 1)]] * 2


def test_a_very_long_list_is_cut_off(describer: Describer) -> None:
    assert written(describer.describe([[1.5] * 60_000, [1]])) == [
        {"unsupported": "more than 50000 values"},
        [typed("int", 1)],
    ]
    assert len(written(describer.describe(list(range(40_000))))) == 40_000


@pytest.mark.parametrize("depth", [1, 49, 50, DEPTH_LIMIT - 1, DEPTH_LIMIT, DEPTH_LIMIT + 1, 5000])
def test_deep_containers_keep_what_is_within_the_limit(describer: Describer, depth: int) -> None:
    value: Any = one
    for _ in range(depth):
        value = [value]
    text = json.dumps(written(describer.describe(value)))
    assert ('"name": "one"' in text) == (depth <= DEPTH_LIMIT)
    assert ("unsupported" in text) == (depth > DEPTH_LIMIT)


class LyingList(list):  # type: ignore[type-arg]
    """A list that fails when it is looked at."""

    def __iter__(self) -> Any:
        raise RuntimeError("not today")


class LyingClass:
    """An object that fails when it is asked for its class."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not today")


@dataclasses.dataclass
class LyingField:
    fine: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "fine":
            raise RuntimeError("not today")
        return super().__getattribute__(name)


@pytest.mark.parametrize("kind", [LyingList, LyingClass, LyingField])
def test_what_fails_when_it_is_looked_at_costs_itself_only(describer: Describer, kind: type) -> None:
    told: list[Exception] = []
    describer.failed = told.append
    found = written(describer.describe([1, kind(), {"k": one}]))
    assert found == [typed("int", 1), {"unsupported": "RuntimeError: not today"}, {"k": ONE}]
    assert [str(error) for error in told] == ["not today"]
    assert written(describer.describe(kind())) == {"unsupported": "RuntimeError: not today"}


def test_a_namedtuple_of_another_length_is_a_list(describer: Describer) -> None:
    class Longer(Point):
        def __new__(cls) -> Any:
            return tuple.__new__(cls, (1, 2, 3))

    assert written(describer.describe(Longer())) == [typed("int", n) for n in (1, 2, 3)]


def test_a_dataclass_without_one_of_its_fields(describer: Describer) -> None:
    options = Options(1.0)
    del options.mask
    assert written(describer.describe(options))["mask"] is None


def test_describing_changes_nothing(describer: Describer) -> None:
    value = {"a": [1, (2.0, one)], "b": Options(0.5, {"x": one})}
    before = repr(value)
    tree = describer.describe(value)
    encode(tree, 0)
    assert repr(value) == before


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(one),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=30,
)


@given(trees)
def test_any_nesting_is_written_and_read_back(value: Any) -> None:
    describer = Describer(Info, lambda v: isinstance(v, Tensor), {Tensor: Info})

    def expected(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Tensor):
            return ONE
        if isinstance(value, (list, tuple)):
            return [expected(v) for v in value]
        if isinstance(value, dict):
            return {key: expected(v) for key, v in value.items()}
        return typed(type(value).__name__, value)

    # As text: a NaN is not equal to itself, and lone surrogates are written as what they are.
    found = json.loads(encode(describer.describe(value), 0).decode("utf-8", "surrogatepass"))
    assert json.dumps(found) == json.dumps(json.loads(encode(expected(value), 0).decode("utf-8", "surrogatepass")))


# ---------------------------------------------------------------- numpy


@for_each(
    ("array", "statistics"),
    [
        (np.array([[1, 2], [3, 4]], np.int32), (4, 1, 2.5, math.sqrt(30))),
        (np.array([1.5, -2.5], np.float16), (1.5, -2.5, -0.5, math.sqrt(8.5))),
        (np.array([2**40 + 1]), (2**40 + 1, 2**40 + 1, float(2**40 + 1), float(2**40 + 1))),
        (np.array([1e300]), (1e300, 1e300, 1e300, math.inf)),
        (np.array([True, False]), (True, False, None, None)),
        (np.array(["a"]), (None,) * 4),
        (np.array([object()]), (None,) * 4),
        (np.array([]), (None,) * 4),
        (np.array(3.5), (3.5,) * 4),
    ],
)
def test_arrays_have_exact_statistics(array: Any, statistics: tuple[Any, ...]) -> None:
    found = describe_array(array)
    assert found["type"] == "numpy.ndarray"
    assert found["dtype"] == str(array.dtype)
    assert found["shape"] == list(array.shape)
    assert tuple(found[key] for key in ("Max", "Min", "Mean", "Norm")) == statistics


def test_an_array_among_the_arguments(describer: Describer) -> None:
    assert written(describer.describe([np.ones(2, np.float32)]))[0]["Max"] == 1.0


def test_a_nan_in_an_array_is_in_its_statistics() -> None:
    found = describe_array(np.array([1.0, math.nan]))
    assert all(math.isnan(found[key]) for key in ("Max", "Min", "Mean", "Norm"))


@pytest.mark.filterwarnings("error")
def test_memory_that_nobody_wrote_brings_no_warning() -> None:
    """Bits of a signalling NaN, as they may stand in it, are one that numpy warns of."""
    found = describe_array(np.full(100_000, 0x7FA00001, np.uint32).view(np.float32))
    assert math.isnan(found["Mean"])


def test_plain_types_are_known_by_their_exact_type() -> None:
    assert type(Whole(1)) not in PLAIN
    assert bool in PLAIN
