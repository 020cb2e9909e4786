"""JSON of a stranger: any text gives a value or a sentence with its path, within the budget."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.budget import Budget, BudgetError, Limits
from msprobe.foreign.json_text import parse_json, read_json

DEEP = 100_000


def written(folder: Path, data: bytes) -> Path:
    path = folder / "some.json"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, "x", null, true, -2.5]}', {"a": [1, "x", None, True, -2.5]}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ('{"a": "\u00e9"}'.encode("utf-16"), {"a": "\u00e9"}),
        ('{"a": 1}'.encode("utf-32"), {"a": 1}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'"\\ud800"', "\ud800"),
        (b"[" * 100 + b"]" * 100, None),
    ],
    ids=["plain", "mark", "utf16", "utf32", "twice", "surrogate", "hundred"],
)
def test_what_python_writes_is_read(tmp_path: Path, data: bytes, value: Any) -> None:
    found = read_json(written(tmp_path, data))
    assert value is None or found == value


def test_bare_infinities_are_read(tmp_path: Path) -> None:
    one, two, three = read_json(written(tmp_path, b"[NaN, Infinity, -Infinity]"))
    assert math.isnan(one)
    assert (two, three) == (math.inf, -math.inf)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a": 1,}',
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'[{"a":' * DEEP + b"0" + b"}]" * DEEP,
        b"[" + b"[],[]," * 10_000 + b"[" * 500 + b"]" * 500 + b"]",
        b"9" * 5000,
        b"[-" + b"1" * 5000 + b"]",
        b"\xff\xfe\xff",
        b'"\x80"',
        b"\x00",
        b"nan",
        b'{1: "a"}',
        b'"a\nb"',
        b"1 2",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_other_texts_end_in_a_sentence_with_the_path(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InvalidInputError, match="some"):
        read_json(path)


def test_brackets_in_texts_are_no_containers() -> None:
    texts = ["[" * 3000, '\\"[[' * 300, "\\", "{\\\\" * 500, '"', "]" * 300]
    assert parse_json(json.dumps([texts] * 300), "a text") == [texts] * 300


def test_escaped_quotes_do_not_hide_depth() -> None:
    with raising(InvalidInputError, "reading-over-budget", shown="a text", limit=200):
        parse_json('["\\\\",' * 500 + "0" + "]" * 500, "a text")


def test_whole_numbers_outside_of_64_bits_are_floats_unless_asked() -> None:
    assert parse_json("[18446744073709551615, -9223372036854775808]", "a text") == [2**64 - 1, -(2**63)]
    found = parse_json("[1" + "0" * 30 + ", 1" + "0" * 400 + "]", "a text")
    assert found == [1e30, math.inf]
    assert all(isinstance(one, float) for one in found)
    assert parse_json("1" + "0" * 30, "a text", exact=True) == 10**30


def test_the_budget_counts_values_and_bytes() -> None:
    small = Limits(bytes=100, items=5, depth=3)
    with pytest.raises(BudgetError):
        parse_json("[1,2,3,4,5,6,7,8]", "a text", Budget("a text", small))
    with pytest.raises(BudgetError):
        parse_json('"' + "x" * 200 + '"', "a text", Budget("a text", small))
    with pytest.raises(BudgetError):
        parse_json("[[[[]]]]", "a text", Budget("a text", small))


def test_what_is_missing_or_no_file_is_a_path_error(tmp_path: Path) -> None:
    with raising(PathError, "database-missing", path=str(tmp_path / "none.json")):
        read_json(tmp_path / "none.json")
    with raising(PathError, "special-file", mode="a folder"):
        read_json(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    with raising(PathError, "special-file", mode="a pipe"):
        read_json(tmp_path / "pipe.json")


def test_a_file_that_is_always_small_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        read_json(written(tmp_path, b" " * 200 + b"1"), most_bytes=100)
