"""The rank of this process and how many there are: of the framework's communication, else what the launcher says."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """Where a framework's programs find their rank.

    ``communication``: rank and number of ranks, None while it is not initialised. ``rank_name``, ``world_names``:
    environment variables by which launchers say the same; of several for the number the first that has one counts.
    """

    communication: Callable[[], tuple[int, int] | None]
    rank_name: str
    world_names: Sequence[str]

    def current(self) -> int | None:
        """The rank of this process; None for a single process."""
        known = self._known()
        return None if known is None else known[0]

    def world(self) -> int:
        """How many ranks there are, as far as this process can know; 1 where it has no rank."""
        known = self._known()
        return 1 if known is None else known[1]

    def _known(self) -> tuple[int, int] | None:
        known = self.communication()
        if known is not None:
            return known
        rank = os.environ.get(self.rank_name, "")
        values = (os.environ.get(name, "") for name in self.world_names)
        world = next((int(text) for text in values if text.isdecimal()), 1)
        return (int(rank), world) if rank.isdecimal() and world > 1 else None
