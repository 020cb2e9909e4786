"""Processes as a dump names them, and whether one of them still runs."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
import time
from dataclasses import dataclass, field

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = re.compile(r"pid:\[(\d+)\]")


@dataclass(frozen=True)
class Owner:
    """A process: its number, its host, and its start in clock ticks since boot (0 where not known).

    ``boot`` distinguishes one start of a machine from every other (empty where not known): containers of one machine
    share it, whatever their host is called. ``namespace`` is the set of process numbers that the number is from, a
    container's own. ``beats``: its journal is touched every few seconds (:mod:`msprobe.store.heartbeat`).
    """

    pid: int
    host: str
    started: int
    boot: str = ""
    namespace: int = 0
    beats: bool = field(default=False, compare=False)

    def as_dict(self) -> dict[str, int | str]:
        return {
            "pid": self.pid,
            "host": self.host,
            "started": self.started,
            "boot": self.boot,
            "namespace": self.namespace,
        }

    @classmethod
    def of(cls, fields: dict[str, object]) -> Owner:
        """The process that a dump names, also one of an earlier version. Raises what a wrong form leads to."""
        return cls(
            pid=_whole(fields["pid"]),
            host=str(fields["host"]),
            started=_whole(fields["started"]),
            boot=str(fields.get("boot", "")),
            namespace=_whole(fields.get("namespace", 0)),
            beats=fields.get("beats") is True,
        )


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"no whole number: {value!r}")
    return value


def this_process() -> Owner:
    return _owner_of(os.getpid())


@functools.lru_cache(maxsize=4)
def _owner_of(pid: int) -> Owner:
    return Owner(pid, socket.gethostname(), _start_ticks(pid) or 0, _boot(), _namespace())


def can_be_asked(owner: Owner) -> bool:
    """True if the owner's number means the same here, so that the system knows whether it runs."""
    me = this_process()
    if owner.boot and me.boot:
        return owner.boot == me.boot and owner.namespace == me.namespace
    return owner.host == me.host


def runs(owner: Owner) -> bool:
    """Whether the process lives, of one that :func:`can_be_asked`; a number given to a new process does not count."""
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it lives, and is not ours to signal
    started = _start_ticks(owner.pid)
    return started is None or owner.started == 0 or started == owner.started


def seconds_since_start() -> float:
    """How long this process has been running; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        started = this_process().started
        if started > 0:
            return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))
    return 0.0


def _start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where the system does not say, or it is
    dead.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # A zombie is dead: it waits only for its parent to ask.
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


def _namespace() -> int:
    with contextlib.suppress(OSError):
        match = _NAMESPACE.fullmatch(os.readlink("/proc/self/ns/pid"))
        if match:
            return int(match[1])
    return 0
