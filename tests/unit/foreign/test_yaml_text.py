from __future__ import annotations

import datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.foreign.budget import BudgetError
from msprobe.foreign.yaml_text import YamlError, load, load_all

_KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | _KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_values_are_read_as_the_safe_loader_reads_them(value: object) -> None:
    text = yaml.safe_dump(value)
    assert load(text, "x.yaml") == yaml.safe_load(text)


@for_each(
    "text",
    [
        "base: &b {a: 1, c: 2}\nx:\n  <<: *b\n  c: 3\n",
        "b: &b {a: 1}\nc: &c {a: 2, d: 3}\nx: {<<: [*b, *c], e: 4}\n",
        "a: 1\na: 2\n",
        "when: 2001-12-14t21:59:43.10-05:00\nday: 2002-12-14\n",
        "a: 0x1F\nb: 0b11\nc: 1_000\nd: 190:20:30\ne: .inf\nf: 1e3\ng: 1.5e+3\n",
        "a: yes\nb: ~\nc: 'yes'\nd: !!str 5\ne: !!float 5\n",
        "a: !!binary aGVsbG8=\n",
        "a: !!set {x, y}\n",
        "text: |\n  one\n  two\nfolded: >\n  one\n  two\n",
        "- &a [1, 2]\n- *a\n",
        "",
        "# nothing\n",
    ],
)
def test_texts_are_read_as_the_safe_loader_reads_them(text: str) -> None:
    assert load(text, "x.yaml") == yaml.safe_load(text)


def test_documents_are_read_one_by_one() -> None:
    assert load_all("a: 1\n---\nb: 2001-01-01\n", "x") == [{"a": 1}, {"b": datetime.date(2001, 1, 1)}]
    with pytest.raises(YamlError):
        load("a: 1\n---\nb: 2\n", "x")


@for_each(
    "text",
    [
        "a: !!python/object/apply:os.system [x]",
        "a: !own x",
        "&a [*a]",
        "? [a]\n: b",
        "<<: 5",
        "a: !!int x",
        "a: !!timestamp x",
        "a: 2001-99-99",
        "a: [",
        b"\xff\xfe\xfd",
    ],
)
def test_what_is_no_plain_yaml_is_refused(text: str | bytes) -> None:
    with pytest.raises(YamlError):
        load(text, "x.yaml")


def test_tags_can_be_ignored() -> None:
    text = "a: !own {b: 1}\nc: !!python/tuple [1]\nd: !x 5"
    assert load_all(text, "x", ignores_tags=True) == [{"a": {"b": 1}, "c": [1], "d": "5"}]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1000,
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 400)),
        "a: " + "9" * 5000,
    ],
    ids=["depth", "aliases", "chain", "digits"],
)
def test_what_a_text_stands_for_is_counted(text: str) -> None:
    with pytest.raises(BudgetError):
        load(text, "x.yaml")
