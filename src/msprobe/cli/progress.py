"""A progress bar on the terminal, for work that takes a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from msprobe.foreign.letters import printable
from msprobe.messages import arguments_of, said, translated

# A display for less is only a flicker.
_LONG_SECONDS = 1.0

Work = Literal["comparing", "checking", "searching", "reading"]


class Bar:
    """Shows what is being done, once it has taken a while, on a terminal alone, in the language that is asked for.

    A message with the arguments ``number`` and ``total`` moves the bar there: so many are done but that one.
    """

    def __init__(self, work: Work) -> None:
        self._work = said(f"work-{work}")
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
            self._text = text
            if self._bar is not None:
                self._bar.update(self._task, **self._state())

    def _state(self) -> dict[str, Any]:
        """What the bar shows: the text, and how much of the whole is done."""
        from rich.markup import escape

        words = translated(said("work-at", self._work, self._text) if self._text else self._work)
        place = arguments_of(self._text)
        total = place.get("total")
        done = 0 if total is None else place["number"] - 1
        return {"description": escape(printable(words)), "completed": done, "total": total}

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
def progress(work: Work = "comparing") -> Iterator[Bar]:
    """A bar that ends with the work."""
    bar = Bar(work)
    try:
        yield bar
    finally:
        bar.stop()
