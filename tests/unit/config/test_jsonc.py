from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coded_texts import raising
from support.row_by_row import for_each

from msprobe.config.jsonc import MAX_DEPTH, DuplicateKey, JsonSyntaxError, Position, parse
from msprobe.errors import InvalidInputError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
INDENTS = st.sampled_from([None, 0, 3, "\t"])
COMMENTS = (" ", "\n", "\r\n", '// one, {two} "three"\n', '/* a "b" // c\n * d */', "/**/", "//\n")
# Where json.dumps puts a token's end, outside of texts: a comment may stand on either side of these.
PUNCTUATION = "{}[],:"


@given(VALUES, INDENTS, st.booleans())
def test_every_output_of_json_dumps_parses_to_the_same_value(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert parse(text).value == value


@given(VALUES, INDENTS)
def test_bytes_of_every_unicode_encoding_parse_to_the_same_value(value, indent):
    text = json.dumps(value, indent=indent)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert parse(text.encode(encoding)).value == value


@given(VALUES, INDENTS, st.integers(0, 2**32))
def test_comments_between_tokens_change_nothing(value, indent, seed):
    assert parse(_with_comments(json.dumps(value, indent=indent), random.Random(seed))).value == value


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6))
def test_a_comma_before_a_closing_bracket_changes_nothing(value):
    text = json.dumps({"only": [value]})
    assert parse(text[:-2] + " , /* */ ], }").value == {"only": [value]}


@given(VALUES, INDENTS)
def test_every_field_stands_where_its_position_says(value, indent):
    text = json.dumps(value, indent=indent)
    document = parse(text)
    lines = text.split("\n")
    assert set(document.positions) == set(_paths(value))
    for path, position in document.positions.items():
        rest = lines[position.line - 1][position.column - 1 :]
        inner = value
        for step in path:
            inner = inner[step]
        expected = json.dumps(path[-1]) if path and isinstance(path[-1], str) else json.dumps(inner)[:1]
        assert rest.startswith(expected)


@given(st.text(max_size=30))
def test_whatever_is_no_json_is_an_error_with_a_place_inside_the_text(text):
    problem = None
    try:
        parse(text)
    except JsonSyntaxError as caught:
        problem = caught
    if problem is not None:
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1


@given(st.text(alphabet='{}[],:"\\/* \n01-.eEntrufalsN', max_size=12))
def test_nothing_is_taken_that_json_refuses_unless_it_has_comments_or_a_last_comma(text):
    try:
        expected = json.loads(text)
    except json.JSONDecodeError:
        if "//" in text or "/*" in text or "," in text:
            return
        with pytest.raises(JsonSyntaxError):
            parse(text)
    else:
        assert json.dumps(parse(text).value) == json.dumps(expected)


def test_slashes_and_stars_inside_texts_stay():
    text = '{"url": "http://host//a", "glob": "/*.py", "end": "*/ // x", "quote": "\\"// no comment"}'
    assert parse(text).value == json.loads(text)


def test_not_a_number_and_infinities_are_taken_as_python_writes_them():
    value = parse("[NaN, Infinity, -Infinity, 1e999]").value
    assert math.isnan(value[0])
    assert value[1:] == [math.inf, -math.inf, math.inf]


def test_a_byte_order_mark_does_not_count_as_a_column():
    assert parse("\ufeff[1]").positions[(0,)] == Position(1, 2)
    assert parse(b"\xef\xbb\xbf[1]").positions[(0,)] == Position(1, 2)


def test_positions_count_all_line_ends_and_characters():
    document = parse('{\r\n "é": 1,\r /* two\nlines */ "b": {"c": [5,\n6]}\n}')
    assert document.positions[("é",)] == Position(2, 2)
    assert document.positions[("b",)] == Position(4, 10)
    assert document.positions[("b", "c")] == Position(4, 16)
    assert document.positions[("b", "c", 1)] == Position(5, 1)


def test_the_position_of_a_field_that_is_not_there_is_that_of_the_nearest_around_it():
    document = parse('{\n"a": {"b": []}}')
    assert document.position(("a", "x", 3)) == Position(2, 1)
    assert document.position(("a", "b", 7)) == document.positions[("a", "b")]
    assert document.position(("z",)) is None


def test_of_a_key_that_stands_twice_the_last_counts_and_both_places_are_reported():
    document = parse('{"a": {"old": 1},\n "b": 2,\n "a": {"new": 3}}')
    assert document.value == {"a": {"new": 3}, "b": 2}
    assert document.duplicates == (DuplicateKey(("a",), Position(1, 2), Position(3, 2)),)
    assert ("a", "old") not in document.positions
    assert document.positions[("a", "new")] == Position(3, 8)


@for_each(
    ("text", "line", "column", "told"),
    [
        ("", 1, 1, "the end of the file"),
        (" \n ", 2, 2, "the end of the file"),
        ("{", 1, 2, '"}" for the bracket opened in line 1, column 1'),
        ('{\n"a": [1, 2', 2, 11, '"]" for the bracket opened in line 2, column 6'),
        ('{"a": 1', 1, 8, '"}" for the bracket'),
        ('{"a": 1 "b": 2}', 1, 9, '"," or "}"'),
        ('{"a" 1}', 1, 6, '":" after the field name "a"'),
        ("{a: 1}", 1, 2, "a field name in double quotes"),
        ("{'a': 1}", 1, 2, "a field name in double quotes"),
        ("{,}", 1, 2, "a field name in double quotes"),
        ("[,]", 1, 2, "a value"),
        ("[1,,2]", 1, 4, "a value"),
        ("[1 2]", 1, 4, '"," or "]"'),
        ("[1}", 1, 3, '"," or "]"'),
        ('{"a": True}', 1, 7, "found True; expected true"),
        ('{"a": None}', 1, 7, "found None; expected null"),
        ('{"a": mix}', 1, 7, "texts stand in double quotes"),
        ("{} x", 1, 4, "the end of the file"),
        ("[01]", 1, 2, "found 01"),
        ("[1.]", 1, 2, "found 1."),
        ("[+1]", 1, 2, "found +1"),
        ("[.5]", 1, 2, "found .5"),
        ("[-]", 1, 2, "a value"),
        ("[0x10]", 1, 2, "found 0x10"),
        ("[1" + "0" * 5000 + "]", 1, 2, "a number of 5001 digits"),
        ('["a\nb"]', 1, 4, "a line break or tab inside a text"),
        ('["a\tb"]', 1, 4, "a line break or tab inside a text"),
        ('["abc', 1, 2, "a text that never ends"),
        (r'["a\qb"]', 1, 4, "escapes"),
        (r'["\u12"]', 1, 3, "escapes"),
        ("[1 /* 2]", 1, 4, "a comment that never ends"),
        ("[1] /", 1, 5, "the end of the file"),
        ("[\u00a01]", 1, 2, "U+00A0"),
        ("[\x001]", 1, 2, "U+0000"),
        ("[" * (MAX_DEPTH + 5), 1, MAX_DEPTH + 2, "nested brackets"),
    ],
)
def test_broken_json_says_line_column_and_what_was_expected(text, line, column, told):
    with pytest.raises(JsonSyntaxError) as caught:
        parse(text, "config.json")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.message.startswith(f"config.json:{line}:{column}: ")
    assert told in caught.value.message


def test_broken_json_is_caught_as_runtime_error_and_as_our_own():
    for kind in (RuntimeError, InvalidInputError):
        with pytest.raises(kind):
            parse("{")


def test_bytes_that_are_no_text_are_reported_with_their_place():
    with raising(JsonSyntaxError, "json-text-not-utf8", line=2, column=7, encoding="UTF-8", byte=255):
        parse(b'{\n"\xc3\xa9": "\xff"}')


def _paths(value, path=()):
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in members:
        yield from _paths(inner, (*path, step))


def _with_comments(text, choice):
    """Comments and blanks on both sides of brackets, commas and colons, and around the whole."""

    def comments():
        return "".join(choice.choices(COMMENTS, k=choice.randrange(3)))

    result, in_text, escaped = [comments()], False, False
    for character in text:
        if in_text:
            result.append(character)
            in_text = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character in PUNCTUATION:
            result.append(comments() + character + comments())
        else:
            in_text = character == '"'
            result.append(character)
    return "".join([*result, comments()])
