from __future__ import annotations

import threading
import time

import pytest

from msprobe.view.remembered import RecentlyUsed


def memory(most: int) -> tuple[RecentlyUsed[list[int]], list[list[int]]]:
    closed: list[list[int]] = []
    return RecentlyUsed(most, len, closed.append), closed


def test_many_who_ask_at_once_wait_for_one_who_makes_it() -> None:
    found, _ = memory(10)
    made = []

    def make() -> list[int]:
        made.append(1)
        time.sleep(0.05)
        return [1]

    def ask() -> None:
        with found.get("a", make) as value:
            assert value == [1]

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_one_that_takes_long_does_not_keep_others_waiting() -> None:
    found, _ = memory(10)
    go = threading.Event()

    def slow() -> list[int]:
        assert go.wait(30)
        return [1]

    def ask() -> None:
        with found.get("slow", slow):
            pass

    thread = threading.Thread(target=ask)
    thread.start()
    with found.get("fast", lambda: [2]) as value:
        assert value == [2]
    go.set()
    thread.join()


def test_what_was_asked_for_last_stays() -> None:
    found, closed = memory(2)
    for key in "abc":
        with found.get(key, lambda: [0]):
            pass
        with found.get("a", lambda: [1]):
            pass
    assert closed == [[0]]
    with found.get("a", lambda: [9]) as value:
        assert value == [0]


def test_nothing_is_closed_while_somebody_looks_at_it() -> None:
    found, closed = memory(1)
    with found.get("a", lambda: [0]):
        found.forget("a")
        with found.get("b", lambda: [1]):
            pass
        assert [0] not in closed
    assert [0] in closed


def test_the_only_one_stays_whatever_its_size() -> None:
    found, closed = memory(1)
    with found.get("a", lambda: [0] * 100):
        pass
    assert closed == []
    found.close()
    assert closed == [[0] * 100]


def test_what_could_not_be_made_is_tried_again() -> None:
    found, _ = memory(1)

    def fail() -> list[int]:
        raise ValueError

    with pytest.raises(ValueError), found.get("a", fail):
        pass
    with found.get("a", lambda: [3]) as value:
        assert value == [3]
