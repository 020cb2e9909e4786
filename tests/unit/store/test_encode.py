from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_text import in_one_line, written

from msprobe.capture import native
from msprobe.messages import said
from msprobe.store.encode import DEEPEST, encode, quote, strict

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))  # lone surrogates too
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=25,
)


def dumped(tree: Any, depth: int) -> bytes:
    return written(tree, depth).encode("utf-8", "backslashreplace")


@given(trees, st.integers(0, 5))
def test_text_is_that_of_the_standard_library(tree: Any, depth: int) -> None:
    assert encode(tree, depth) == dumped(tree, depth)


@given(trees, st.integers(0, 5))
def test_the_recorder_s_encoder_gives_the_same(tree: Any, depth: int) -> None:
    assert encode(tree, depth) == native.encode(tree, depth) == native.encode_python(tree, depth)


@given(trees, trees, st.integers(0, 3))
def test_finished_pieces_stand_in_one_line(piece: Any, other: Any, depth: int) -> None:
    @dataclass(frozen=True)
    class Info:
        text: bytes

    text = in_one_line(piece).encode("utf-8", "backslashreplace")
    found = encode({"a": [text, {"b": text}], "c": other}, depth)
    assert json.loads(found) == json.loads(dumped({"a": [piece, {"b": piece}], "c": other}, depth))
    assert found.count(b"\n") == dumped({"a": [0, {"b": 0}], "c": other}, depth).count(b"\n")
    assert encode({"a": [Info(text), {"b": Info(text)}], "c": other}, depth) == found


def test_each_argument_of_a_record_is_one_line() -> None:
    tensor = {"type": "torch.Tensor", "shape": [2, 3], "Max": 1.0}
    record = {"input_args": [tensor, [tensor, None]], "input_kwargs": {}, "output": [tensor], "msprobe": {"order": 7}}
    one = '{"type":"torch.Tensor","shape":[2,3],"Max":1.0}'
    assert encode(record, 2).decode().split("\n") == [
        "{", '   "input_args": [', f"    {one},", f"    [{one},null]", "   ],", '   "input_kwargs": {},',
        '   "output": [', f"    {one}", "   ],", '   "msprobe": {', '    "order": 7', "   }", "  }",
    ]  # fmt: skip


def test_a_record_with_our_keys_is_no_larger_than_the_published_form_without_them() -> None:
    tensor = {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 32, 64], "Max": 3.739976406097412,
        "Min": -3.153724431991577, "Mean": 0.010074092075228691, "Norm": 63.7303466796875, "requires_grad": True,
    }  # fmt: skip
    published = {"input": [tensor], "output": [tensor, tensor, tensor]}
    row = {**tensor, "stride": [2048, 64, 1], "row": 123456}
    ours = {"input": [row], "output": [row] * 3, "msprobe": {"order": 123456, "source": "/train.py:103"}}
    assert len(encode(ours, 2)) < len(json.dumps(published, indent=1).replace("\n", "\n  "))


def test_subclasses_count_as_their_base() -> None:
    class Level(IntEnum):
        HIGH = 3

    class Name(str):
        def __str__(self) -> str:
            return "not this"

    class Number(float):
        def __repr__(self) -> str:
            return "not this"

    assert encode({"a": Level.HIGH, "b": Name("x"), "c": Number(1.5)}, 0) == b'{\n "a": 3,\n "b": "x",\n "c": 1.5\n}'


def test_keys_that_are_no_strings_become_strings() -> None:
    assert encode({1: 2, None: 3}, 0) == b'{\n "1": 2,\n "None": 3\n}'


def test_too_deep_and_endless_trees_end_in_a_mark() -> None:
    tree: list[Any] = []
    for _ in range(DEEPEST):
        tree = [tree]
    found = json.loads(encode(tree, 0))
    for _ in range(DEEPEST):
        (found,) = found
    assert found == {"unsupported": f"nested deeper than {DEEPEST}"}

    endless: dict[str, Any] = {"a": 1}
    endless["b"] = [endless]
    assert json.loads(encode(endless, 2)) == {"a": 1, "b": [{"unsupported": "contains itself"}]}


def test_a_value_that_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(TypeError, match=said("value-not-recordable", "set")):
        encode({"a": {1}}, 0)
    with pytest.raises(TypeError, match="object"):
        encode([object()], 0)


@given(trees)
def test_strict_text_differs_only_in_the_tokens_that_json_does_not_know(tree: Any) -> None:
    def replaced(value: Any) -> Any:
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        if isinstance(value, (list, tuple)):
            return [replaced(item) for item in value]
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        return value

    assert strict(encode(tree, 0)) == encode(replaced(tree), 0)


def test_strict_text_leaves_such_words_inside_strings_alone() -> None:
    text = encode({"NaN": 'a "NaN" \\', "-Infinity": [float("nan"), "Infinity"]}, 0)
    assert json.loads(strict(text)) == {"NaN": 'a "NaN" \\', "-Infinity": ["NaN", "Infinity"]}


@given(st.text(st.characters(exclude_categories=())))
def test_a_quoted_name_reads_back(text: str) -> None:
    assert json.loads(quote(text)) == json.loads(json.dumps(text))
