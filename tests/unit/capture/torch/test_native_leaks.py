"""Functions of the C extension keep no reference, also where they fail."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from msprobe.capture import native
from msprobe.capture.torch.tensors import statistics as statistics_module
from msprobe.capture.torch.tensors.statistics import TensorStatistics

pytestmark = pytest.mark.skipif(not native.built, reason="the C extension was not built")


#: One reference to None may come and go by chance; a leak would be a whole one for each step.
LEAK = 0.5


def counts(singletons: tuple[Any, ...]) -> list[int]:
    gc.collect()
    return [
        sys.getallocatedblocks(),
        len(gc.get_objects()),
        *(sys.getrefcount(value) for value in singletons),
    ]


def growth(step: Callable[[], None], singletons: tuple[Any, ...]) -> list[float]:
    """What each step adds, after some that fill what is kept once; the least of three times at most, as the process
    has other threads, and things that are made once and late.
    """
    gc.collect()
    gc.freeze()  # what is older than this test is not looked through each time
    for _ in range(8):
        step()
    steps, found, least = 100, [], [1.0]
    try:
        while len(found) < 3 and not all(number < LEAK for number in least):
            before = counts(singletons)
            for _ in range(steps):
                step()
            found.append([abs(now - then) / steps for now, then in zip(counts(singletons), before, strict=True)])
            least = [min(numbers) for numbers in zip(*found, strict=True)]
    finally:
        gc.unfreeze()
    return least


def test_functions_that_fail_keep_no_reference() -> None:
    from msprobe.capture import _native

    class Odd:
        text = 1

    odd, tree = Odd(), {"a": [1.5, "b", {"c": None}], 3: (b"1", True)}
    name = "a name that nobody else has"
    array = torch.ones(3)

    def once() -> None:
        _native.encode(tree, 1)
        for work in (
            lambda: _native.encode([odd], 0),
            lambda: _native.encode({odd: odd}, 0),
            lambda: _native.numbers(array.data_ptr(), 3, 99, 0, 0),
            lambda: _native.pattern((1, 2), (1, name)),
            lambda: _native.gather(array.data_ptr(), (3,), (1, 2), 4),
            lambda: _native.write_files(-1, 0, "x", [(b"a", b"1", name, b"2")]),
        ):
            try:
                work()
            except (TypeError, ValueError, AttributeError):
                continue

    found = growth(once, (None, True, odd, tree, name, array, int, Odd))
    assert all(number < LEAK for number in found), found


def test_a_fault_keeps_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("planted")

    def failing(*arguments: Any) -> bytes:
        raise error.with_traceback(None)

    class Never(list[str]):
        def append(self, text: str) -> None:
            """Counts nothing: the C code is to fail again and again."""

    monkeypatch.setattr(statistics_module, "_digest_of", failing)
    monkeypatch.setattr(native, "_faults", Never())
    monkeypatch.setattr(native, "_MOST_FAULTS", 9)
    statistics, whole = TensorStatistics(), torch.arange(5)

    def once() -> None:
        statistics.describe(whole, False)
        error.__traceback__ = error.__context__ = None

    found = growth(once, (None, True, error, whole, ValueError))
    assert all(number < LEAK for number in found), found
    statistics.close()
