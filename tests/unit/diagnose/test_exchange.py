"""What is kept of ranks to follow what they exchange: little, and once for all that run one program."""

from __future__ import annotations

from msprobe.diagnose.check.exchange import Exchange, RankCalls
from msprobe.diagnose.steps.communication import Key


def rank(number: int, *keys: tuple[Key, ...], group: int = 64) -> RankCalls:
    """A rank with a call for each key; collectives are over all ``group`` ranks."""
    members = tuple(range(group))
    return RankCalls(
        rank=number,
        names=tuple(f"Distributed.{place}.forward" for place in range(len(keys))),
        words=tuple("all_reduce" if len(key[0]) == 1 else _word(number, key[0]) for key in keys),
        places=tuple(range(len(keys))),
        keys=keys,
        groups=tuple(members if len(key[0]) == 1 else () for key in keys),
        forms=("",) * len(keys),
    )


def _word(number: int, key: Key) -> str:
    return "send" if key[1][0] == number else "recv"


def message(source: int, target: int) -> tuple[Key, ...]:
    return (("message", (source, target), 0),)


SUM: tuple[Key, ...] = (("all_reduce",),)


def test_ranks_of_one_program_share_their_columns() -> None:
    exchange = Exchange(rank(number, SUM, SUM) for number in range(64))
    for column in ("names", "words", "places", "keys", "forms"):
        assert len({id(getattr(one, column)) for one in exchange.calls}) == 1, column
    assert exchange.groups == [tuple(range(64))]
    assert [len(node) for node in exchange.nodes] == [64, 64]


def test_each_call_comes_once_and_nothing_before_what_it_waits_for() -> None:
    """A pipeline of 64 stages whose last one begins: each rank is reached by the next above it."""
    stages = [rank(63, message(63, 62), SUM)]
    stages += [
        rank(number, message(number + 1, number), message(number, number - 1), SUM) for number in range(62, 0, -1)
    ]
    stages.append(rank(0, message(1, 0), SUM))
    exchange = Exchange(sorted(stages, key=lambda one: one.rank if isinstance(one.rank, int) else -1))
    order = [exchange.names(node) for node in exchange.in_order()]
    assert len(order) == 64
    assert [max(names) for names in order[:-1]] == list(range(63, 0, -1))
    assert set(order[-1]) == set(range(64))


def test_calls_that_wait_in_a_circle_come_all_the_same() -> None:
    exchange = Exchange([rank(0, message(1, 0), SUM, group=2), rank(1, SUM, message(1, 0), group=2)])
    assert len(list(exchange.in_order())) == 2
