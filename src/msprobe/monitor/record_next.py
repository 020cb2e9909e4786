"""From *when* to *where*: an alert has the next step of this rank recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msprobe import log
from msprobe.errors import MsprobeError

#: What is recorded where the configuration leaves it open; in the folder of the run unless it names another.
DEFAULTS: Mapping[str, Any] = {"task": "statistics", "level": "mix"}
DUMP = "behind_alert"


class RecordNext:
    """Records one step with a PrecisionDebugger behind an alert, at most ``times`` times.

    ``debugger``: its class. ``settings``: fields of config.json, or the path of one; ``times`` among them says how
    often. ``folder``: of the run.
    """

    def __init__(
        self, debugger: Any, models: Sequence[Any], settings: Mapping[str, Any] | str | bool, folder: str | None
    ) -> None:
        self._debugger = debugger
        self._models = models
        given: dict[str, Any] = {}
        if isinstance(settings, str):
            given = {"config_path": settings}
        elif isinstance(settings, Mapping):
            given = {**DEFAULTS, "dump_path": os.path.join(folder or ".", DUMP), **settings}
        else:
            given = {**DEFAULTS, "dump_path": os.path.join(folder or ".", DUMP)}
        self._times = int(given.pop("times", 1))
        self._settings = given
        self._why = ""
        self._recording: Any = None

    def want(self, alerts: Sequence[Any]) -> None:
        """Alerts were raised: the next step is to be recorded. Called in the thread that writes."""
        if self._times > 0 and not self._why and alerts:
            self._why = str(getattr(alerts[0], "text", alerts[0]))

    def between_steps(self, next_step: int) -> None:
        """A step is over: end what is recorded, begin where it is wanted."""
        if self._recording is not None:
            self.end()
        why, self._why = self._why, ""
        if why and self._times > 0:
            self._times -= 1
            self._begin(next_step, why)

    def end(self) -> None:
        """End a recording that runs."""
        debugger, self._recording = self._recording, None
        if debugger is not None:
            debugger.stop()
            debugger.step()
            log.info(f'Monitor: the step after the alert is recorded in "{debugger.settings.dump_path}".')

    def _begin(self, step: int, why: str) -> None:
        try:
            debugger = self._debugger.existing() or self._debugger(**self._settings)
            if debugger.recorder.session.recording:
                log.warning(f"Monitor: step {step} is recorded by the program itself; the alert begins nothing.")
                return
            debugger.set_init_step(step)
            debugger.start(list(self._models) if len(self._models) > 1 else self._models[0])
        except MsprobeError as error:
            log.error(f"Monitor: step {step} could not be recorded behind an alert. {error.message}")
            return
        self._recording = debugger
        log.warning(f"Monitor: step {step} is recorded, because: {why}")
