"""Items handed to a thread come in their order, within a bound, and are the parent's after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from msprobe.store.background import Background

SECONDS = 30.0


class Worker:
    """Notes what it is given; goes on with each item when it may."""

    def __init__(self, most: int = 10) -> None:
        self.done: list[int] = []
        self.may = threading.Semaphore(0)
        self.background = Background("test", self.work, most)

    def work(self, items: Iterator[int]) -> None:
        for item in items:
            assert self.may.acquire(timeout=SECONDS)
            self.done.append(item)

    def go(self, count: int) -> None:
        for _ in range(count):
            self.may.release()


def test_items_are_done_in_their_order_and_flush_waits_for_them() -> None:
    worker = Worker()
    assert all(worker.background.put(number, 1) for number in range(5))
    assert not worker.background.flush(0.01)
    worker.go(5)
    assert worker.background.flush(SECONDS)
    assert worker.done == [0, 1, 2, 3, 4]


def test_what_waits_is_bounded_and_a_single_large_item_is_taken() -> None:
    worker = Worker(most=10)
    assert worker.background.put(0, 1000)
    assert not worker.background.put(1, 1, patience=0.01)
    worker.go(1)
    assert worker.background.put(2, 10, patience=SECONDS)
    worker.go(1)
    assert worker.background.flush(SECONDS)
    assert worker.done == [0, 2]


def test_close_does_what_waits_and_takes_nothing_more() -> None:
    worker = Worker()
    worker.go(2)
    assert worker.background.put(0, 1)
    assert worker.background.put(1, 1)
    worker.background.close(SECONDS)
    assert worker.done == [0, 1]
    assert not worker.background.put(2, 1)


def test_drop_lets_go_of_what_waits() -> None:
    worker = Worker()
    worker.background.put(0, 1)
    worker.background.put(1, 1)
    worker.background.drop()
    worker.go(2)
    assert worker.background.flush(SECONDS)
    assert 1 not in worker.done
    assert not worker.background.put(2, 1)


def test_nothing_is_taken_once_the_work_has_ended() -> None:
    background = Background[int]("test", lambda items: None, 10)
    background.put(0, 1)
    assert background.flush(SECONDS)
    background.close(SECONDS)
    assert not background.put(1, 1, patience=0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_takes_nothing_over_and_does_not_wait() -> None:
    worker = Worker()
    worker.background.put(0, 10)
    child = os.fork()
    if child == 0:
        is_quiet = not worker.background.put(1, 10) and worker.background.flush(SECONDS) and not worker.done
        os._exit(0 if is_quiet else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    worker.go(1)
    assert worker.background.flush(SECONDS)
    assert worker.done == [0]


def test_where_nothing_comes_for_a_while_the_idle_item_does() -> None:
    given: list[int] = []
    idle = threading.Event()

    def work(items: Iterator[int]) -> None:
        for item in items:
            given.append(item)
            if item < 0:
                idle.set()

    background = Background("test", work, 10, (0.01, -1))
    assert background.put(1, 1)
    assert idle.wait(SECONDS)
    assert background.close(SECONDS)
    assert (given[0], set(given[1:])) == (1, {-1})


def test_closing_says_whether_the_thread_has_ended() -> None:
    worker = Worker()
    assert worker.background.put(1, 1)
    assert not worker.background.close(0.01)
    worker.go(1)
    assert worker.background.close(SECONDS)
