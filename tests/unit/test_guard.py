"""The guard: errors of ours end in it, errors of the program's pass."""

from __future__ import annotations

import ast
import functools
import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import msprobe
from msprobe import guard
from msprobe.capture.identity import IdentityMap, IdentitySet
from msprobe.errors import InvalidInputError


class Noted:
    """A reporter that keeps what it is given."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, BaseException]] = []

    def fault(self, what: str, error: BaseException) -> None:
        self.faults.append((what, error))


@pytest.fixture
def noted() -> Noted:
    found = Noted()
    guard.report_to(found)
    return found


def fails() -> None:
    raise ZeroDivisionError


def test_what_fails_is_noted_and_gives_none(noted: Noted) -> None:
    assert guard.attempt(fails) is None
    assert guard.guarded(fails)() is None
    assert guard.answers_user(fails)() is None
    assert [type(error) for _, error in noted.faults] == [ZeroDivisionError] * 3
    assert {what for what, _ in noted.faults} == {"fails"}


def test_what_works_gives_its_result(noted: Noted) -> None:
    assert guard.attempt(max, 1, 2) == 2
    assert guard.guarded(lambda x: x + 1)(1) == 2
    assert noted.faults == []


def test_a_user_is_reported_what_is_wrong_and_may_interrupt(noted: Noted) -> None:
    def refuses() -> None:
        raise InvalidInputError("no")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(InvalidInputError):
        guard.answers_user(refuses)()
    assert guard.guarded(refuses)() is None
    with pytest.raises(KeyboardInterrupt):
        guard.guarded(interrupted)()


def test_a_reporter_that_fails_or_is_gone_costs_nothing() -> None:
    class Broken(Noted):
        def fault(self, what: str, error: BaseException) -> None:
            raise ValueError

    broken = Broken()
    guard.report_to(broken)
    assert guard.attempt(fails) is None
    del broken
    gc.collect()
    assert guard.attempt(fails) is None


class Odd:
    """An object that can be compared with nothing."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("ambiguous")


def test_collections_say_objects_apart_by_what_they_are_and_keep_none_alive() -> None:
    one, other = Odd(), Odd()
    members, counts = IdentitySet([one]), IdentityMap[int]()
    counts[one] = 1
    counts[one] = counts.get(one, 0) + 1
    assert one in members
    assert other not in members
    assert (counts.get(one), counts.get(other, 0), len(counts)) == (2, 0, 1)
    assert counts.setdefault(other, 7) == 7
    assert counts.pop(other) == 7
    del one
    gc.collect()
    assert (len(members), len(counts)) == (0, 0)


# ---------------------------------------------------------------- signals


class TimeIsOverError(Exception):
    """What a program's handler raises."""


class Watch:
    def over(self, number: int, frame: Any) -> None:
        raise TimeIsOverError

    def __call__(self, *given: Any) -> None:
        raise TimeoutError


def deeper(number: int, frame: Any) -> None:
    fails()


def walks(number: int, frame: Any) -> None:
    while frame is not None:
        frame = frame.f_back
    raise TimeIsOverError


def once(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise TimeIsOverError


HANDLERS: dict[str, tuple[Callable[..., Any], type[BaseException]]] = {
    "method": (Watch().over, TimeIsOverError),
    "object, an error of the system": (Watch(), TimeoutError),
    "partial": (functools.partial(Watch.over, None), TimeIsOverError),
    "what it calls": (deeper, ZeroDivisionError),
    "one that walks through the frames": (walks, TimeIsOverError),
    "one that is set back": (once, TimeIsOverError),
}


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("name", HANDLERS)
def test_what_a_signal_handler_raises_while_we_work_is_the_program_s(noted: Noted, handler: None, name: str) -> None:
    raises, error = HANDLERS[name]

    def work() -> None:
        signal.raise_signal(signal.SIGUSR1)

    def file_work() -> None:
        try:
            work()
        except OSError as problem:
            raise InvalidInputError("no file") from problem

    for ours in (work, file_work):
        for called in (ours, guard.guarded(functools.partial(guard.attempt, ours)), guard.answers_user(ours)):
            signal.signal(signal.SIGUSR1, raises)
            with pytest.raises(error):
                guard.attempt(called)
    assert noted.faults == []


def test_an_error_of_ours_with_a_frame_in_it_is_no_signal(noted: Noted) -> None:
    def looks_at(number: int, frame: Any) -> None:
        raise ZeroDivisionError

    assert guard.attempt(looks_at, 10, None) is None
    assert [type(error) for _, error in noted.faults] == [ZeroDivisionError]


#: Files whose wide ``except`` clauses are not around what a training waits for.
_NOT_IN_TRAINING = (
    "capture/native.py",
    "capture/torch/calls/names.py",
    "capture/torch/devices/row_kernels.py",
    "capture/torch/operators/kernel_dump.py",
    "launcher/runscript.py",
)


def test_whoever_catches_errors_in_the_recorder_lets_signals_pass() -> None:
    """Each ``except Exception`` asks :func:`msprobe.guard.pass_on`, or gives the error to who does."""
    folder = Path(msprobe.__file__).parent
    lost: list[str] = []
    for path in sorted((*(folder / "capture").rglob("*.py"), *(folder / "launcher").rglob("*.py"))):
        name = path.relative_to(folder).as_posix()
        if name.startswith("capture/mindspore/") or name in _NOT_IN_TRAINING:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception":
                body = ast.unparse(ast.Module(node.body, []))
                if not any(word in body for word in ("pass_on(", "fault(", "report(", "failed(", "_drop(", "raise")):
                    lost.append(f"{name}:{node.lineno}")
    assert lost == []
