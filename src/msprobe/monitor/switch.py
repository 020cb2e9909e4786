"""Dynamic monitoring: the configuration file turns the monitor on and off while the training runs."""

from __future__ import annotations

import json
import os

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.foreign.json_text import read_json
from msprobe.messages import said
from msprobe.monitor.config import MonitorConfig, load
from msprobe.paths import write_atomically


class Switch:
    """Looks at the configuration file between steps. ``is_dynamic``: the variable DYNAMIC_MONITOR says so, and there
    is a file.
    """

    def __init__(self, path: str | os.PathLike[str] | None, config: MonitorConfig) -> None:
        self.path = "" if path is None else os.fspath(path)
        self.is_dynamic = path is not None and os.environ.get("DYNAMIC_MONITOR", "").strip().lower() == "true"
        self._is_on = config.dynamic_on
        self._seen = self._changed_at()

    def look(self) -> MonitorConfig | None:
        """The configuration, if the file has changed and is sound; one that switches off only where it was on."""
        changed_at = self._changed_at()
        if changed_at == self._seen:
            return None
        self._seen = changed_at
        try:
            config = load(self.path)
        except MsprobeError as error:
            log.error(said("monitor-switch-failed", error.message))
            return None
        if not config.dynamic_on and not self._is_on:
            return None
        self._is_on = config.dynamic_on
        return config

    def turn_off(self) -> None:
        """Everything asked for is measured: say so in the file."""
        self._is_on = False
        try:
            text = read_json(self.path)
            text["dynamic_on"] = False
            write_atomically(self.path, json.dumps(text, indent=2, ensure_ascii=False).encode())
        except (OSError, ValueError, TypeError, MsprobeError) as error:
            log.warning(said("dynamic-on-not-reset", self.path, error))
        self._seen = self._changed_at()

    def _changed_at(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
