"""A progress bar on the terminal, for work that takes a while."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msprobe.report.letters import printable

# A display for less is only a flicker.
_LONG_SECONDS = 1.0
_PLACE = re.compile(r"(?:, )?(?P<number>\d+) of (?P<whole>\d+)$")


class Teller:
    """Tells what is being done, once it has taken a while, on a terminal alone.

    A text that ends with a place (``step 3, 4 of 8``) moves the bar there.
    """

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._text = ""
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(_LONG_SECONDS, self._show)
        self._timer.daemon = True
        if sys.stderr.isatty():
            self._timer.start()

    def __call__(self, text: str) -> None:
        with self._lock:
            self._text = printable(text)
            if self._bar is not None:
                self._bar.update(self._task, **self._state())

    def _state(self) -> dict[str, Any]:
        """What the bar shows: the text without its place, and the place."""
        from rich.markup import escape

        found = _PLACE.search(self._text)
        if found is None:
            return {"description": escape(f"{self._verb} {self._text}".rstrip()), "completed": 0, "total": None}
        number, whole = int(found["number"]), int(found["whole"])
        text = f"{self._verb} {self._text[: found.start()]}".rstrip()
        return {"description": escape(f"{text} ({number} of {whole})"), "completed": number - 1, "total": whole}

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._timer.finished.is_set():
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            state = self._state()
            self._task = self._bar.add_task(state["description"], total=state["total"], completed=state["completed"])
            self._bar.start()

    def stop(self) -> None:
        """End the display; nothing of it is left."""
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


@contextmanager
def progress(verb: str = "comparing") -> Iterator[Teller]:
    """A teller that ends with the work."""
    teller = Teller(verb)
    try:
        yield teller
    finally:
        teller.stop()
