"""YAML of people: what it says, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.config.yaml_source import parse_yaml, read_yaml
from msprobe.errors import InvalidInputError, PathError


def test_scalars_stay_the_texts_they_are() -> None:
    found = parse_yaml("on: yes\n1: 1e5\nlayers.0: '0'\n").document.value
    assert found == {"on": "yes", "1": "1e5", "layers.0": "0"}


@pytest.mark.parametrize("text", ["a:", "a: ~", "a: null", "a: NULL"])
def test_an_empty_value_is_none(text: str) -> None:
    assert parse_yaml(text).document.value == {"a": None}


def test_quoted_null_is_a_text() -> None:
    assert parse_yaml("a: 'null'").document.value == {"a": "null"}


def test_an_empty_file_is_none() -> None:
    assert parse_yaml("# only a comment\n").document.value is None


def test_fields_know_their_lines() -> None:
    source = parse_yaml("a: b\nc:\n  - d\n  - e: f\n", "m.yaml")
    assert source.where(("c", 1, "e")) == 'm.yaml:4: field "c[1].e"'
    assert source.where(("a",)) == 'm.yaml:1: field "a"'


def test_a_key_that_stands_twice_is_reported_and_the_last_counts() -> None:
    document = parse_yaml("a: {x: 1}\nb: 2\na: 3\n").document
    assert document.value == {"a": "3", "b": "2"}
    (twice,) = document.duplicates
    assert (twice.path, twice.first.line, twice.last.line) == (("a",), 1, 3)
    assert ("a", "x") not in document.positions


@for_each(
    ("text", "told"),
    [
        ("a: [", "m.yaml:2:1: broken YAML"),
        ("a:\n  b: 1\n c: 2", "m.yaml:3:2: broken YAML"),
        ("\ta: b", "m.yaml:1:1: broken YAML"),
        ("a: b\n---\nc: d", "m.yaml:2:1: broken YAML"),
        ("a: *nothing", "m.yaml:1:4: broken YAML"),
        ("a: !!python/object/apply:os.system [x]", "m.yaml:1:4: the tag"),
        ("a: !own x", "m.yaml:1:4: the tag"),
        ("? [a]\n: b", "m.yaml:1:3: the name before the colon"),
        ("a: &x [*x]", "m.yaml:1:8: broken YAML"),
        ("[" * 60 + "]" * 60, "more than 50 levels"),
        (b"\xff\xfe\xfd", "m.yaml"),
        (b"a: \xe4", "m.yaml"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_place(text: str | bytes, told: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_yaml(text, "m.yaml")
    assert told in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["m.json", "m"])
def test_the_ending_must_be_yaml(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("a: b")
    with pytest.raises(PathError, match=r"data mapping: file .* must end in .yaml or .yml"):
        read_yaml(path, "data mapping")


def test_a_missing_file_is_reported_with_what_it_is_for(tmp_path: Path) -> None:
    with pytest.raises(PathError, match=r"cell mapping: file .* does not exist"):
        read_yaml(tmp_path / "none.yaml", "cell mapping")


_TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12)
_VALUES = st.recursive(
    _TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3), max_leaves=8
)


@given(_VALUES, st.booleans())
def test_what_yaml_writes_is_read_back(value: object, block: bool) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=block)
    assert parse_yaml(text).document.value == value
