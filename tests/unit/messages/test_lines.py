"""Lines of a terminal's width, in which a Chinese letter takes two columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.messages.lines import columns, lines


@pytest.mark.parametrize(("text", "wanted"), [("abc", 3), ("比对", 4), ("a，b", 4), ("", 0)])
def test_a_chinese_letter_takes_two_columns(text: str, wanted: int) -> None:
    assert columns(text) == wanted


@given(st.text(alphabet="ab 比对，。（）().,", max_size=60), st.integers(8, 30))
def test_nothing_is_lost_and_a_line_that_could_be_broken_is_not_too_wide(text: str, width: int) -> None:
    found = lines(text, width)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert [line for line in found if columns(line) > width and " " in line] == []


def test_no_line_begins_with_a_closing_mark_or_ends_with_an_opening_one() -> None:
    found = lines("比对两份（dump）。首个不同的调用，", 10)
    assert [line for line in found if line[0] in "，。）" or line[-1] in "（"] == []


def test_the_first_line_and_the_others_begin_as_asked() -> None:
    assert lines("one two three", 8, "- ", "  ") == ["- one", "  two", "  three"]
    assert lines("", 8, "- ") == []
