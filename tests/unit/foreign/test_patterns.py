from __future__ import annotations

import pytest
from support.row_by_row import for_each

from msprobe.foreign.globs import Glob
from msprobe.foreign.patterns import PatternError, compile_pattern


@for_each(
    "text",
    [
        r"(a+)+$",
        r"(a*)*",
        r"(a|a)*b",
        r"(.*a){20}",
        r"((a{0,9}){0,9}){0,9}",
        r"(x+x+)+y",
        r"(a|b|ab)*c",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"(?:\w+\s?)+$",
        r"(a?){50}",
        "(" * 5000,
        "a" * 20_000,
        r"(a",
        r"a{99999999999999999999}",
    ],
)
def test_patterns_that_may_take_for_ever_or_are_none_are_refused(text: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(text, "mapping")


@pytest.mark.parametrize("text", [r"a?" * 30 + "a" * 30, r".*.*.*.*.*.*x"])
def test_a_match_that_may_take_too_long_is_refused(text: str) -> None:
    pattern = compile_pattern(text, "mapping")
    with pytest.raises(PatternError):
        pattern.search("a" * 5000 + "!")


@for_each(
    ("text", "name", "new", "found"),
    [
        (r"module\.(.*)", "module.layers.0.weight", r"\1", "layers.0.weight"),
        (r"layers\.(\d+)\..*weight", "layers.12.attn.weight", r"\1", "12"),
        (r"(\w+\.)*(\w+)", "a.b.c", r"\2", "c"),
        (r"(?:layer|linear)_(\d+)", "layer_3", r"\1", "3"),
        (r"(.+)\.(weight|bias)", "a.b.weight", r"\1/\2", "a.b/weight"),
        (r"(?i)(Q|K|V)_proj", "k_proj", r"\1", "k"),
    ],
)
def test_patterns_of_names_work_as_in_re(text: str, name: str, new: str, found: str) -> None:
    pattern = compile_pattern(text, "mapping")
    assert pattern.fullmatch(name)
    assert pattern.match(name)
    assert pattern.search(name)
    assert pattern.sub(new, name, count=1) == found


@for_each(
    ("pattern", "text", "is_match"),
    [
        ("*", "", True),
        ("*.py", "train.py", True),
        ("*.py", "train.pyc", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[a-c]*", "bx", True),
        ("[!a-c]*", "bx", False),
        ("[]x]", "]", True),
        ("a*b*c", "aXbYc", True),
        ("*a*a*a*a*a*a*a*a*b", "a" * 50_000, False),
        ("plain", "plain", True),
        ("plain", "plai", False),
    ],
)
def test_patterns_of_the_shell(pattern: str, text: str, is_match: bool) -> None:
    assert Glob(pattern).matches(text) is is_match


def test_the_ends_of_what_a_pattern_stands_for() -> None:
    assert list(Glob("a*b").ends("abab")) == [2, 4]
    assert list(Glob("*").ends("ab")) == [0, 1, 2]
    assert list(Glob("b*").reversed().ends("abab"[::-1])) == [1, 3]
