"""Signs of life in a shared folder: a file that says which process has left it, and that is touched while it lives."""

from __future__ import annotations

import json
import time
from pathlib import Path

from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.paths import write_atomically
from msprobe.precheck.online.schema import RANK_END
from msprobe.store import heartbeat, processes
from msprobe.store.processes import Owner

#: A process of another machine is taken for dead when it has given no sign for so long; it gives six of them in it.
SILENT_SECONDS = 6 * heartbeat.SECONDS
_MOST_BYTES = 4096
#: Numbers of processes are below this on every system.
PROCESS_END = 1 << 31


def leave_sign(path: Path, rank: int) -> None:
    """Write the file of this process, and touch it every few seconds until it is gone or the process ends."""
    content = {"rank": rank, "process": processes.this_process().as_dict()}
    write_atomically(path, json.dumps(content).encode(), fsync=False)
    heartbeat.keep(str(path))


class Life:
    """The process behind a sign. Raises PathError, OSError, ValueError, KeyError or TypeError for a file that is no
    sign, which a stranger may have left.

    On the machine that it runs on, the system says whether it lives, and elsewhere its sign does: by the clock of who
    looks, since those of machines differ.
    """

    def __init__(self, path: Path) -> None:
        with open_regular(path, follow_links=False) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(said("mark-too-large", _MOST_BYTES))
        try:
            content = json.loads(text)
        except RecursionError:
            raise ValueError(said("mark-nested")) from None
        self.rank: int = content["rank"]
        if type(self.rank) is not int or not 0 <= self.rank < RANK_END:
            raise TypeError(said("mark-rank-wrong"))
        #: Whether it has lived at any look.
        self.was_alive = False
        self._process = Owner.of(content["process"])
        if not 0 < self._process.pid < PROCESS_END:
            raise ValueError(said("mark-names-no-process"))
        self._path = path
        self._state = heartbeat.state(path)
        self._since = time.monotonic()

    def end(self) -> str:
        """Why it is taken for dead; "" while it is not."""
        process = self._process.pid, self._process.host
        if processes.can_be_asked(self._process):
            lives = processes.runs(self._process)
            self.was_alive |= lives
            return "" if lives else said("process-is-gone", *process)
        state = heartbeat.state(self._path)
        if state != self._state:
            self._state, self._since, self.was_alive = state, time.monotonic(), True
        is_silent = time.monotonic() - self._since > SILENT_SECONDS
        return said("process-is-silent", *process, SILENT_SECONDS) if is_silent else ""
