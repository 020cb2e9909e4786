"""A process finds its rank: of the framework's communication, else what the launcher says in the environment."""

from __future__ import annotations

import pytest

from msprobe.capture.ranks import Ranks


@pytest.mark.parametrize(
    ("told", "rank", "world"),
    [
        ({}, None, 1),
        ({"ID": "3", "SIZE": "8"}, 3, 8),
        ({"ID": "3", "WORKERS": "4"}, 3, 4),
        ({"ID": "3", "SIZE": "", "WORKERS": "4"}, 3, 4),
        ({"ID": "0", "SIZE": "2", "WORKERS": "4"}, 0, 2),
        ({"ID": "0", "SIZE": "1"}, None, 1),
        ({"ID": "1"}, None, 1),
        ({"SIZE": "8"}, None, 1),
        ({"ID": "one", "SIZE": "8"}, None, 1),
    ],
)
def test_the_launcher_is_believed_where_it_says_rank_and_number(
    told: dict[str, str], rank: int | None, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ID", "SIZE", "WORKERS"):
        monkeypatch.delenv(name, raising=False)
    for name, text in told.items():
        monkeypatch.setenv(name, text)
    ranks = Ranks(lambda: None, "ID", ("SIZE", "WORKERS"))
    assert (ranks.current(), ranks.world()) == (rank, world)
    # What is initialised knows better.
    of_group = Ranks(lambda: (0, 1), "ID", ("SIZE", "WORKERS"))
    assert (of_group.current(), of_group.world()) == (0, 1)
