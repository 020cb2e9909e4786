"""One journal for many steps: when a step is finished, its journal becomes that of the next.

Making a journal anew for each step costs a file created, filled, mapped and removed again: some hundred
microseconds, and more where a file system remembers what was removed of late. Emptying it and renaming it costs
ten.

A journal that is done with stays where it is, beside the finished files, which readers prefer. The next step
takes it; if none comes within two seconds, or the process ends, it is removed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from msprobe.store import durable, journal, layout

# One can be on its way to the disk while the next step writes another.
_MOST_KEPT = 2


class _Spares:
    """Finished journals, each with the time at which it was done with, oldest first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: list[tuple[float, journal.MappedJournal]] = []


_spares = _Spares()


def start(folder: str, kind: layout.FileKind, first: bytes) -> journal.Journal:
    """A journal of this process in ``folder``, which exists; ``first`` is its first frame. Raises OSError."""
    path, generation = layout.new_journal(folder, kind)
    spares = _spares
    with spares.lock:
        spare = spares.kept.pop()[1] if spares.kept else None
    if spare is not None:
        try:
            spare.recycle(path, generation, first)
            return spare
        except OSError:
            # On another file system, or removed with its folder.
            remove(spare)
    return journal.create(path, generation, first)


def retire(done: journal.Journal) -> None:
    """Take a journal of which nothing is needed any more; it will be used again, or is removed."""
    if isinstance(done, journal.MappedJournal) and done.can_be_recycled:
        spares = _spares
        with spares.lock:
            if len(spares.kept) < _MOST_KEPT:
                spares.kept.append((time.monotonic(), done))
                return
    remove(done)


def forget_after_fork() -> None:
    """In a child: the journals are the parent's."""
    global _spares
    inherited, _spares = _spares, _Spares()
    for _, spare in inherited.kept:
        with contextlib.suppress(OSError):
            spare.abandon()


def _remove_idle(at_least: float) -> float | None:
    """Remove the journals that nobody took for so many seconds; when to look again, if any are left."""
    spares = _spares
    now = time.monotonic()
    with spares.lock:
        idle = [spare for since, spare in spares.kept if now - since >= at_least]
        spares.kept = [(since, spare) for since, spare in spares.kept if now - since < at_least]
        left = spares.kept[0][0] + at_least - now if spares.kept else None
    for spare in idle:
        remove(spare)
    return left


def remove(done: journal.Journal) -> None:
    """Take away a journal of which nothing is needed any more, at once."""
    with contextlib.suppress(OSError):
        os.unlink(done.path)
    with contextlib.suppress(OSError):
        done.abandon()


durable.when_idle(_remove_idle)
