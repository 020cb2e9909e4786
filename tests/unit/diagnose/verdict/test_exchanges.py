"""What a rank says of a collective is taken back where the ranks of its group explain it together."""

from __future__ import annotations

import math
from typing import Any

import pytest

from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.measured.node import CollectiveInput, MeasuredResult, Node
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.verdict.conclusion import ComparedRank
from msprobe.diagnose.verdict.exchanges import settle_exchanges

_KEY = ("Distributed.all_reduce", (0, 1))
_NAME = "Distributed.all_reduce.0.forward"


def _rank(rank: int, put_in: float, key: Any = _KEY) -> ComparedRank:
    nobody: Any = None
    result = MeasuredResult("output.0", 0.1, 0.1 / 64, put_in / 10, put_in / 640, 4096, False, alone=4096, alike=4096.0)
    exchange = CollectiveInput(key, 0, put_in, put_in / 64, (10.0,))
    node = Node(nobody, "all_reduce", "forward", 2.0**-7, (result,), "", exchange=exchange)
    finding = Finding("collective", "it differs", where=_NAME, entry=_NAME, rank=rank)
    other = Finding("collective", "ranks differ", where=_NAME, entry=_NAME, rank=rank)
    suspects = [Suspect(finding, 1.0, clear=True, waits=True), Suspect(other, 2.0, clear=True)]
    empty: Any = ({}, {})
    return ComparedRank(
        0,
        rank,
        suspects,
        Reach(explained=True),
        0.0,
        {},
        [],
        [],
        empty,
        put_in={key: [put_in, put_in / 64]},
        waiting={_NAME: node},
    )


def _said(*ranks: ComparedRank) -> list[int]:
    return [len(result.suspects) for result in settle_exchanges(ranks)]


def _are_explained(*ranks: ComparedRank) -> set[bool]:
    return {result.reach.explained for result in settle_exchanges(ranks)}


def test_what_another_rank_puts_in_explains_it() -> None:
    assert _said(_rank(0, 0.01), _rank(1, 0.9)) == [1, 1]
    assert _are_explained(_rank(0, 0.01), _rank(1, 0.9)) == {True}


def test_what_nobody_puts_in_is_wrong_in_the_collective() -> None:
    assert _said(_rank(0, 0.01), _rank(1, 0.02)) == [2, 2]


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_what_a_rank_puts_in_may_be_unknown(unknown: float) -> None:
    assert _said(_rank(0, 0.01), _rank(1, unknown)) == [1, 1]
    assert _are_explained(_rank(0, 0.01), _rank(1, unknown)) == {False}


def test_of_a_group_with_a_rank_that_was_not_compared_nothing_is_said() -> None:
    assert _said(_rank(0, 0.01)) == [1]
    assert _are_explained(_rank(0, 0.01)) == {False}
    assert _said(_rank(0, 0.01), _rank(1, 0.9, ("Distributed.all_reduce", (1, 2)))) == [1, 1]
