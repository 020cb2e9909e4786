"""Event files of TensorBoard. Needs the package ``tensorboard`` (an extra), neither TensorFlow nor torch."""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
import time
from collections.abc import Iterable
from typing import Any

from msprobe.distribution import install
from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.paths import StrPath, create_file, make_folder

_numbers = itertools.count()


def check_installed() -> None:
    """Raises NotAvailableError where the package is missing."""
    try:
        is_installed = importlib.util.find_spec("tensorboard") is not None
    except (ImportError, ValueError):
        is_installed = False
    if not is_installed:
        raise NotAvailableError(said("tensorboard-missing", install("tensorboard")))


class EventFile:
    """One event file with scalars, in a folder that is made if it is not there.

    All numbers of a step are one event. Raises NotAvailableError without ``tensorboard``, PathError and OSError.
    """

    def __init__(self, folder: StrPath) -> None:
        check_installed()
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self._file = create_file(make_folder(folder) / name)
        self._records: Any = RecordWriter(self._file)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, step: int, scalars: Iterable[tuple[str, float]]) -> None:
        """Add the numbers of a step, each with its tag."""
        value = self._summary.Value
        values = [value(tag=tag, simple_value=number) for tag, number in scalars]
        if values:
            self._write(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def flush(self) -> None:
        """Let readers see what was added."""
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
