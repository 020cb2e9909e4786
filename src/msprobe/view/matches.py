"""Pairs made by hand, kept in a side-car file that the TensorBoard plugin of mindstudio-probe reads, too.

A ``*.vis.config`` file holds one JSON object: names of the candidate, and the names of the reference they answer to.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.messages import said
from msprobe.paths import check_readable_file, write_atomically

SUFFIX = ".vis.config"
MOST_BYTES = 1 << 24
MOST_PAIRS = 100_000


class Matches:
    """The pairs of one place, in one file. Safe for several threads; the last of two users who write at once wins."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()

    def read(self) -> dict[str, str]:
        """The pairs; none if there is no file. Raises InvalidInputError for a file that holds something else."""
        if not self.file.exists():
            return {}
        try:
            matches = read_json(check_readable_file(self.file, SUFFIX, MOST_BYTES))
        except InvalidInputError as problem:
            raise InvalidInputError(said("hand-pairs-broken", self.file)) from problem
        if not isinstance(matches, dict) or not all(isinstance(value, str) for value in matches.values()):
            raise InvalidInputError(said("hand-pairs-are-no-object", self.file))
        return matches

    def change(self, added: dict[str, str], removed: set[str]) -> dict[str, str]:
        """Add pairs, take those of some candidates away, and write the file; returns all pairs.

        Nothing of one side has two partners: older pairs of the names that are added go.
        """
        with self._lock:
            taken = set(added.values())
            kept = {
                event_name: other
                for event_name, other in self.read().items()
                if event_name not in removed and event_name not in added and other not in taken
            }
            pairs = {**kept, **added}
            if len(pairs) > MOST_PAIRS:
                raise InvalidInputError(said("too-many-hand-pairs", MOST_PAIRS))
            text = json.dumps(pairs, ensure_ascii=False, indent=2)
            write_atomically(self.file, f"{text}\n".encode("utf-8", "surrogatepass"), fsync=False)
            return pairs
