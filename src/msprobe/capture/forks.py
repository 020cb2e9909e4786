"""Recorders in a process that was forked: the dump belongs to the parent, and nothing is recorded in the child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from msprobe.guard import attempt


class Recorder(Protocol):
    """What may be at work when the process is forked."""

    def leave_to_parent(self) -> None:
        """After fork, in the child: leave nothing attached, and record nothing."""


_live: weakref.WeakSet[Recorder] = weakref.WeakSet()


def leave_to_parents(recorder: Recorder) -> None:
    """From now on, in each child that is forked: have ``recorder`` left to the parent, as long as it is alive."""
    _live.add(recorder)


def _after_fork() -> None:
    for recorder in list(_live):
        attempt(recorder.leave_to_parent)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
