"""Whose calls are recorded: those of the thread that called ``start``, and those of autograd's own threads.

What is watched for all threads at once (functions whose code is exchanged, replaced attributes, hooks on all
optimizers) asks here. A thread of the user's - one that loads data, saves a checkpoint, averages weights - then neither
gets records nor takes numbers from those of the training. Modules are recorded wherever they run.
"""

from __future__ import annotations

import threading

from msprobe.capture.torch import private

_graph_task = private.graph_task


class RecordedThread:
    """The thread that records."""

    def __init__(self) -> None:
        self._number = threading.get_ident()

    def begin(self) -> None:
        """It is the one that runs now."""
        self._number = threading.get_ident()

    def is_here(self) -> bool:
        """True in the recorded thread, and in a thread that autograd has made for a backward pass."""
        number = threading.get_ident()
        if number == self._number:
            return True
        # The engine's threads (one for each device) were not made by Python. Not asked for by `current_thread()`: that
        # would add them to the threads that Python knows.
        return _graph_task() != -1 and not any(
            thread.ident == number and not isinstance(thread, threading._DummyThread)
            for thread in threading.enumerate()
        )
