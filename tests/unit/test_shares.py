"""Which rows of long tables are for each change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.shares import ONE_OF, TESTS, chosen

NAMES = st.lists(st.text(min_size=1), unique=True, min_size=1)


@given(NAMES, st.integers(1, 9))
def test_a_share_is_one_row_of_so_many_and_never_none(names: list[str], one_of: int) -> None:
    share = chosen(names, one_of)
    assert share <= set(names)
    assert len(names) <= len(share) * one_of < len(names) + one_of


@given(NAMES, st.integers(1, 9), st.randoms(use_true_random=False))
def test_it_depends_on_names_alone(names: list[str], one_of: int, random: object) -> None:
    mixed = sorted(names, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert chosen(mixed, one_of) == chosen(names, one_of)


def test_a_file_that_has_a_share_is_there() -> None:
    assert [name for name in ONE_OF if not (TESTS / name).is_file()] == []
