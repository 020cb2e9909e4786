from __future__ import annotations

import io
import subprocess
import sys
import time
from typing import Any

import pytest

from msprobe.cli import progress
from msprobe.cli.progress import Teller


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


def test_long_work_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with progress.progress() as tell:
        tell("step 3, rank [1], 4 of 8")
        assert shown(terminal, "comparing step 3, rank [1] (4 of 8)")
        tell("tables")
        assert shown(terminal, "comparing tables")


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_LONG_SECONDS", 60.0)
    with progress.progress() as tell:
        tell("step 3, 4 of 8")
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.01)
    with progress.progress() as tell:
        tell("step 3, 4 of 8")
        time.sleep(0.1)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("step 3, 4 of 8", {"description": "comparing step 3 (4 of 8)", "completed": 3, "total": 8}),
        ("1 of 1", {"description": "comparing (1 of 1)", "completed": 0, "total": 1}),
        ("out of range", {"description": "comparing out of range", "completed": 0, "total": None}),
        ("", {"description": "comparing", "completed": 0, "total": None}),
    ],
)
def test_a_place_at_the_end_moves_the_bar(text: str, state: dict[str, Any]) -> None:
    teller = Teller("comparing")
    teller(text)
    assert teller._state() == state
    teller.stop()


@pytest.mark.process
def test_showing_progress_loads_nothing_of_what_is_waited_for() -> None:
    script = (
        "import sys, msprobe.cli.progress as p; p.Teller('checking')('step 1, 1 of 2');"
        "print([name for name in sys.modules if name.startswith(('msprobe.diagnose', 'msprobe.compare', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
