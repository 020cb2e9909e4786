"""The functions of MindSpore that are recorded as calls: which they are, and what takes their place while recording.

MindSpore has no means to be notified of calls, so the functions are replaced between start and stop in the modules and
classes where programs look them up. Whoever imported a function itself earlier calls the original. Of nested calls the
outermost counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from msprobe.capture.mindspore.calls.collectives import is_collective, recorded_collective
from msprobe.capture.mindspore.calls.in_place import reading_first, writes
from msprobe.capture.mindspore.patches import Patches
from msprobe.capture.targets import Targets
from msprobe.capture.units import UnitRecorder, recorded, run_recorded


class ApiRecorder:
    """Replaces functions while recording: the listed ones or all, and those that users register."""

    def __init__(
        self,
        units: UnitRecorder,
        targets: Targets,
        read: Callable[[], None],
    ) -> None:
        self.units = units
        self.targets = targets
        # (holder, attribute, key of its entries) of each; and of those whose inner calls are recorded, too.
        self.functions: Iterable[tuple[Any, str, str]] = ()
        self.transparent: Iterable[tuple[Any, str, str]] = ()
        # Reads what waits to be read: before a call that writes into its arguments.
        self.read = read
        self.patches = Patches()
        # Communication between ranks, which may be wanted where no other call is.
        self.collectives = Patches()
        self.replaced: set[tuple[int, str]] = set()
        # (holder, attribute, key of its entries) of those that users have registered.
        self.registered: list[tuple[Any, str, str]] = []
        self._is_filled = False

    def find(self, functions: Callable[[], tuple[Iterable[Any], Iterable[Any]]]) -> None:
        """Ask which functions there are, if that is not known."""
        if not self.functions and not self._is_filled:
            self.functions, self.transparent = functions()

    def attach(self, calls: bool = True) -> None:
        """Put the recording functions in place; ``calls`` False: those of collectives only."""
        if not self._is_filled:
            self._is_filled = True
            for holder, name, key in self.functions:
                patches = self.collectives if is_collective(key) else self.patches
                patches.add(holder, name, functools.partial(self._recorded, key))
                self.replaced.add((id(holder), name))
            for holder, name, key in self.transparent:
                if (id(holder), name) not in self.replaced:
                    self.patches.add(holder, name, functools.partial(self._recorded_transparently, key))
                    self.replaced.add((id(holder), name))
        self.collectives.attach()
        if calls:
            self.patches.attach()

    def detach(self) -> None:
        """Put the originals back."""
        self.patches.detach()
        self.collectives.detach()

    def add(self, holder: Any, name: str, key: str) -> None:
        """Record ``holder.name`` too, as ``key``."""
        self.remove(holder, name)
        self.registered.append((holder, name, key))
        self.patches.add(holder, name, functools.partial(self._recorded, key))

    def remove(self, holder: Any, name: str) -> bool:
        """Record it no more; False if it was not recorded."""
        self.registered = [entry for entry in self.registered if entry[0] is not holder or entry[1] != name]
        return self.patches.remove(holder, name) or self.collectives.remove(holder, name)

    def _recorded_transparently(self, key: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if writes(key.rpartition(".")[2]):
            original = reading_first(self.read, original)
        units, session = self.units, self.units.session

        def listening(*args: Any, **kwargs: Any) -> Any:
            session.thread.muted -= 1
            try:
                return original(*args, **kwargs)
            finally:
                session.thread.muted += 1

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if session.thread.muted or not session.recording:
                return original(*args, **kwargs)
            return run_recorded(units, key, listening, args, kwargs)

        return replacement

    def _recorded(self, key: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if writes(key.rpartition(".")[2]):
            original = reading_first(self.read, original)
        units = self.units
        if is_collective(key):
            return recorded_collective(units.session, self.targets, key, original, self.read, lambda: units.wait)
        return recorded(units, key, original)
