"""``dump_enable``: recording is turned on and off by editing the configuration while the training runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msprobe import log
from msprobe.config.settings import Settings
from msprobe.errors import MsprobeError
from msprobe.foreign.opening import state_of
from msprobe.messages import said

# How often the file is looked at, in seconds.
INTERVAL_ON = 0.5
INTERVAL_OFF = 3.0


class LiveSwitch:
    """Reads the configuration again when its file has changed.

    ``load`` reads it, with the arguments that were given in the script. Each process looks for itself, so
    the ranks of a job may turn on or off a step apart.
    """

    def __init__(self, path: Path, load: Callable[[], Settings], enabled: bool) -> None:
        self.path = path
        self.enabled = enabled
        self._load = load
        self._state = state_of(path)
        self._looked = time.monotonic()

    def look(self) -> Settings | None:
        """The new settings if the file has changed since the last look; None if not, or if they are wrong."""
        now = time.monotonic()
        if now - self._looked < (INTERVAL_ON if self.enabled else INTERVAL_OFF):
            return None
        self._looked = now
        state = state_of(self.path)
        # None: an editor may be replacing the file at this moment.
        if state is None or state == self._state:
            return None
        self._state = state
        try:
            settings = self._load()
        except MsprobeError as problem:
            log.warning(said("changed-config-not-used", problem.message))
            return None
        if settings.dump_enable is not False and not self.enabled:
            log.info(said("dump-enable-on", self.path))
        elif settings.dump_enable is False and self.enabled:
            log.info(said("dump-enable-off", self.path))
        self.enabled = settings.dump_enable is not False
        return settings
