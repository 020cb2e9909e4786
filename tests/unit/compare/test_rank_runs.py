"""The ranks of a group in a cell."""

from __future__ import annotations

import pytest
from support.growth import calls_in

from msprobe.compare.rank_runs import MOST_LISTED, group_text


def test_a_group_of_many_ranks_takes_no_more_room_than_one_of_few() -> None:
    few = str(group_text(list(range(MOST_LISTED + 1))))
    assert few == str(list(range(MOST_LISTED + 1)))
    assert group_text(list(range(1024))) == "0-1023"
    assert group_text(list(range(0, 1024, 8))) == "0-1016/8"


@pytest.mark.parametrize("ranks", [None, "text", [1, 0] * 40, [*range(40), "x"], [*range(40), True]])
def test_what_is_no_ascending_row_of_ranks_stays_as_it_is(ranks: object) -> None:
    assert group_text(ranks) is ranks


def test_a_group_that_was_asked_for_costs_as_much_whatever_its_size() -> None:
    small, large = list(range(MOST_LISTED + 2)), list(range(4096))
    for ranks in (small, large):
        group_text(ranks)
    assert calls_in(lambda: group_text(list(large))) == calls_in(lambda: group_text(list(small)))
