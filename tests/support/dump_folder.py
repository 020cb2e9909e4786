"""The folder that a recording wrote, and who makes the debugger of a test: for every framework."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Dump:
    """The folder that a recording wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[str]:
        """Names of the step folders, in order of their numbers."""
        return sorted((f.name for f in self.folder.glob("step*")), key=lambda name: int(name[4:]))

    def file(self, step: int = 0, name: str = "dump.json", rank: str = "rank") -> dict[str, Any]:
        """One JSON file of a step."""
        found: dict[str, Any] = json.loads((self.folder / f"step{step}" / rank / name).read_text())
        return found

    def data(self, step: int = 0, rank: str = "rank") -> dict[str, Any]:
        """The records of a step."""
        found: dict[str, Any] = self.file(step, rank=rank)["data"]
        return found

    def names(self, step: int = 0, part: str = "") -> list[str]:
        """Names of the entries of a step, in order, that contain `part`."""
        return [name for name in self.data(step) if part in name]

    def saved(self, step: int = 0) -> dict[str, Any]:
        """What save() wrote."""
        found: dict[str, Any] = self.file(step, "debug.json")["data"]
        return found

    def errors(self) -> list[str]:
        """What could not be recorded."""
        return [f.read_text() for f in self.folder.glob("step*/*/dump_error_info.log")]


class Recorder:
    """Makes the debugger of a test; the dump goes to the test's own folder."""

    #: The framework's debugger and how its dump is looked at.
    debugger: Any
    dumps: type[Dump] = Dump

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dump = self.dumps(folder)

    def __call__(self, **settings: Any) -> Any:
        self.debugger.reset()
        return self.debugger(**{"dump_path": str(self.folder), **settings})

    def end(self) -> Any:
        """The program ends."""
        self.debugger.reset()
        return self.dump


class EditedConfig:
    """A configuration that is edited while the training runs, and the dump that comes of it."""

    def __init__(self, folder: Path, dumps: type[Dump]) -> None:
        self.path = folder / "config.json"
        self.dump: Any = dumps(folder / "dump")
        self.settings: dict[str, Any] = {"task": "statistics", "level": "L1", "dump_path": str(self.dump.folder)}
        self._time = 10**18

    def write(self, **changes: Any) -> None:
        """Change these fields, and save the file."""
        self.settings.update(changes)
        self.path.write_text(json.dumps(self.settings))
        # Two edits may fall into one tick of the file system's clock.
        self._time += 10**9
        os.utime(self.path, ns=(self._time, self._time))
