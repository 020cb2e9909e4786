"""Who sends frames, as the receiver knows it: what came of each sender, and whether it counts as a rank that trains.

A sender has a name that nobody else knows, and keeps it when it connects anew; one without a name is its connection.
What a sender says is held against what it said itself before, and against nothing else, so that a stranger who names
the rank, step and number of an honest sender changes nothing for that one.
"""

from __future__ import annotations

import threading
import time

from msprobe.messages import said
from msprobe.precheck.online.frames import WireFrame

Key = tuple[int, int]


class Delivery:
    """A frame on its way to who takes it; None: nothing, but all before it has been taken when this comes by.

    ``is_awaited``: somebody waits until it has been taken, or will not be.
    """

    __slots__ = ("_is_taken", "frame")

    def __init__(self, frame: WireFrame | None, is_awaited: bool = False) -> None:
        self.frame = frame
        self._is_taken = threading.Event() if is_awaited else None

    def end(self) -> None:
        """It has been taken, or will not be."""
        if self._is_taken is not None:
            self._is_taken.set()

    def wait(self) -> None:
        """Until it has ended, if it is awaited."""
        if self._is_taken is not None:
            self._is_taken.wait()


class Sender:
    """One sender. ``lock`` is held while one of its frames is taken; the rest belongs to the lock of the receiver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()
        #: Why something of it was lost; "" if nothing was.
        self.problem = ""
        self.connections = 0
        self.lost_since: float | None = None
        self.has_said_farewell = False
        #: (rank, step) of those that have begun and not ended.
        self.open: set[Key] = set()
        #: Those of them of which a record has come.
        self._recorded: set[Key] = set()
        #: Ranks of which a record has come, and those of which a step with records has come whole.
        self.known_ranks: set[int] = set()
        self.whole: set[int] = set()
        #: Ranks of which something could not be put on the disk: nothing whole is to come of them.
        self.unkept: set[int] = set()
        self._spoke = 0.0
        self._last: tuple[int, bytes, Delivery | None] | None = None

    @property
    def known(self) -> set[int]:
        """Ranks that count: of which a record has come, or would have been kept."""
        return self.known_ranks | self.unkept

    def place_of(self, sequence: int, head: bytes) -> tuple[bool, Delivery | None]:
        """Whether this frame is the last one once more, and its delivery then. Raises ValueError for an earlier one."""
        if self._last is None or sequence > self._last[0]:
            return False, None
        if sequence == self._last[0] and head == self._last[1]:
            return True, self._last[2]
        raise ValueError(said("frame-out-of-order", sequence, self._last[0]))

    def remember(self, sequence: int, head: bytes, delivery: Delivery | None) -> None:
        """This frame was the last one."""
        self._last = sequence, head, delivery

    def note(self, frame: WireFrame) -> None:
        """Take notice of a frame that is taken."""
        key = frame.rank, frame.step
        self._spoke = time.monotonic()
        if frame.what == "begin":
            self.open.add(key)
            self._recorded.discard(key)
        elif frame.what == "record":
            self._recorded.add(key)
            self.known_ranks.add(frame.rank)
        elif frame.what == "end":
            if key in self._recorded:
                self.whole.add(frame.rank)
            self.open.discard(key)
            self._recorded.discard(key)

    def is_training(self, grace: float) -> bool:
        """True while it is connected, has sent a frame in the last ``grace`` seconds, and has not said farewell."""
        is_silent = time.monotonic() - self._spoke > grace
        return bool(self.known) and self.connections > 0 and not self.has_said_farewell and not is_silent

    def is_lost(self, patience: float) -> bool:
        """True if its connection broke more than ``patience`` seconds ago."""
        return self.lost_since is not None and time.monotonic() - self.lost_since > patience
