"""That the files which are shown are still those that were opened."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msprobe.errors import PathError
from msprobe.foreign.opening import FileState, state_of
from msprobe.messages import said
from msprobe.paths import StrPath


class ChangedError(PathError):
    """A file changed, or vanished, since it was opened: open it again."""


class OpenedFiles:
    """The state of files when they were opened; a file that did not exist then must not exist later."""

    def __init__(self, paths: Iterable[StrPath] = ()) -> None:
        self._states: dict[str, FileState | None] = {}
        self.add(paths)

    def add(self, paths: Iterable[StrPath]) -> None:
        """Note the state of files that are opened now; what is known of a file already stays."""
        for path in paths:
            name = os.fspath(path)
            if name not in self._states:
                self._states[name] = state_of(name)

    def check(self, paths: Iterable[StrPath]) -> None:
        """Raises ChangedError if one of these files is not what it was."""
        for path in paths:
            name = os.fspath(path)
            before, now = self._states.get(name), state_of(name)
            if name not in self._states or before == now:
                continue
            what = "file-vanished" if now is None else "file-changed" if before is not None else "file-appeared"
            raise ChangedError(said("file-changed-since", Path(name), said(what)))
