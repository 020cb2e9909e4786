from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest
from rich.progress import Progress

from msprobe.cli import progress
from msprobe.messages import in_language, said


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the test itself: pytest puts its own stderr there after the fixtures."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    return screen


def shown(screen: Terminal, words: str) -> bool:
    for _ in range(200):
        if words in screen.getvalue():
            return True
        time.sleep(0.02)
    return False


def test_long_work_is_shown_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with progress.progress() as bar:
        bar(said("job-of-jobs", "rank [1]", 4, 8))
        assert shown(terminal, said("work-at", said("work-comparing"), said("job-of-jobs", "rank [1]", 4, 8)))
        bar("tables")
        assert shown(terminal, said("work-at", said("work-comparing"), "tables"))


def test_it_is_shown_in_the_language_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    terminal = a_terminal(monkeypatch)
    with progress.progress("checking") as bar:
        bar(said("job-of-jobs", said("step", 3), 4, 8))
        text = said("work-at", said("work-checking"), said("job-of-jobs", said("step", 3), 4, 8))
        assert shown(terminal, in_language(text, "zh"))


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_LONG_SECONDS", 60.0)
    with progress.progress() as bar:
        bar(said("job-of-jobs", "step 3", 4, 8))
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.01)
    with progress.progress() as bar:
        bar(said("job-of-jobs", "step 3", 4, 8))
        time.sleep(0.1)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "done", "total"),
    [
        (said("job-of-jobs", "step 3", 4, 8), 3, 8),
        (said("count-of-total", 1, 1), 0, 1),
        ("step 3, 4 of 8", 0, None),  # text alone has no place
        ("", 0, None),
    ],
)
def test_a_message_with_a_place_moves_the_bar(
    text: str, done: int, total: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_terminal(monkeypatch)
    tasks: list[tuple[float, float | None]] = []
    add_task = Progress.add_task

    def added(self: Progress, description: str, **state: Any) -> Any:
        tasks.append((state["completed"], state["total"]))
        return add_task(self, description, **state)

    monkeypatch.setattr(Progress, "add_task", added)
    with progress.progress() as bar:
        bar(text)
        for _ in range(200):
            if tasks:
                break
            time.sleep(0.02)
    assert tasks == [(done, total)]
