"""From *when* to *where*: the step that fires an alert is recorded, those before it that are kept, and the next one.

Whether a step fires is known when it is over. So each step that rules look at is recorded, and what no alert asked for
is dropped when its step is over: nothing but a journal is written of it. What is kept is bounded by ``keep`` steps and
``times`` alerts; after the last of them nothing is recorded any more.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.messages import said, text_of
from msprobe.store import layout

#: What is recorded where the configuration leaves it open; in the folder of the run unless it names another.
DEFAULTS: Mapping[str, Any] = {"task": "statistics", "level": "mix"}
DUMP = "behind_alert"
#: Whole steps that are kept up to an alert, itself among them, where the configuration leaves it open.
KEPT_STEPS = 1
MOST_KEPT_STEPS = 100


class RecordSteps:
    """Records steps with a debugger of its own, beside that of the program.

    ``debugger``: the class of the PrecisionDebugger. ``settings``: fields of config.json, or the path of one; ``times``
    among them: how many alerts; ``keep``: how many steps are kept, the one that fires the last of them; 0: the next
    step alone is recorded, and nothing before an alert. ``folder``: of the run.
    """

    def __init__(
        self, debugger: Any, models: Sequence[Any], settings: Mapping[str, Any] | str | bool, folder: str | None
    ) -> None:
        self._program_debugger = debugger
        self._class = debugger.beside(self.stand_aside)
        self._models = models
        given: dict[str, Any] = {}
        if isinstance(settings, str):
            given = {"config_path": settings}
        elif isinstance(settings, Mapping):
            given = {**DEFAULTS, "dump_path": os.path.join(folder or ".", DUMP), **settings}
        else:
            given = {**DEFAULTS, "dump_path": os.path.join(folder or ".", DUMP)}
        self._times = int(given.pop("times", 1))
        self._keep = int(given.pop("keep", KEPT_STEPS))
        self._settings = given
        self._debugger: Any = None
        # The step that is recorded now, and whether it is kept whatever comes: it is the one behind an alert.
        self._step: int | None = None
        self._is_behind = False
        # What the step that runs has had so far: passes without gradients, or one that has them.
        self._evaluates = self._trains = False
        # An alert was raised in it.
        self._why = ""
        # Whole steps that no alert has asked for so far, oldest first.
        self._whole: deque[Path] = deque()

    @property
    def keeps_steps(self) -> bool:
        """True as long as steps are recorded before an alert is raised."""
        return self._keep > 0 and self._times > 0

    def want(self, alerts: Sequence[Any]) -> None:
        """Alerts were raised in the step that runs. Called in the thread that writes."""
        if self._times > 0 and not self._why and alerts:
            self._why = text_of(getattr(alerts[0], "text", alerts[0]))

    def begin(self, step: int, is_watched: bool) -> None:
        """The first step begins. ``is_watched``: rules will look at it."""
        if self.keeps_steps and is_watched:
            self._begin(step)

    def between_steps(self, next_step: int, is_watched: bool) -> None:
        """A step is over: it is kept or dropped; begin the next where that is wanted or watched."""
        why, self._why = self._why, ""
        if self._step is not None:
            self._finish(self._step, bool(why))
        self._is_behind = bool(why) and self._times > 0
        if self._is_behind:
            self._times -= 1
            log.warning(said("step-recorded-because", next_step, why))
        if self._is_behind or (self.keeps_steps and is_watched):
            self._begin(next_step)

    def begin_again(self) -> None:
        """What the optimizer was to do in this step was left out: the same step comes once more."""
        step = self._step
        if step is None:
            return
        if self._why or self._is_behind:
            # It stays as it is; the step that is taken at last has no place beside it.
            self._debugger.stop()
            return
        self._drop()
        self._begin(step)

    def begin_pass(self, has_gradients: bool) -> None:
        """A pass of a whole model begins. Of passes without gradients (an evaluation) before the first one that has
        them nothing is kept but the last: an evaluation may be long, and is none of the step.
        """
        if self._step is None or self._trains:
            return
        self._trains = has_gradients
        if self._evaluates and not self._why:
            session = self._debugger.recorder.session
            if session.recording:
                session.give_up_step()
                session.start()
        self._evaluates = not has_gradients

    def stand_aside(self) -> None:
        """The program begins to record the step itself."""
        if self._step is not None:
            self._say_who_records(self._step)
            self._step = None
            self._drop()

    def end(self) -> None:
        """The training ends. A step that was not finished is kept where it has raised an alert."""
        step, self._step = self._step, None
        if step is not None and (self._why or self._is_behind):
            self._report(step, bool(self._why))
        elif step is not None:
            self._drop()
        for folder in self._whole if not self._why else ():
            _remove(folder)
        self._whole.clear()
        self._class.reset()
        debugger, self._debugger = self._debugger, None
        if debugger is not None:
            with contextlib.suppress(OSError):
                os.rmdir(debugger.settings.dump_path)  # where nothing was kept

    # ---------------------------------------------------------------- one step

    def _finish(self, step: int, has_fired: bool) -> None:
        debugger, self._step = self._debugger, None
        if not has_fired and not self._is_behind and self._keep < 2:
            self._drop()
            debugger.step()
            return
        debugger.stop()
        folder = _folder_of(debugger, step)
        debugger.step()
        if has_fired or self._is_behind:
            self._report(step, has_fired)
            self._whole.clear()
            return
        self._whole.append(folder)
        while len(self._whole) >= self._keep:
            _remove(self._whole.popleft())

    def _report(self, step: int, has_fired: bool) -> None:
        role = said("step-of-the-alert") if has_fired else said("step-after-the-alert")
        place = self._debugger.settings.dump_path
        log.warning(said("step-recorded-for-alert", role, step, place, shlex.quote(place)))

    def _drop(self) -> None:
        """What is recorded of this step is not wanted."""
        self._debugger.recorder.detach()
        self._debugger.recorder.session.give_up_step()

    def _begin(self, step: int) -> None:
        try:
            if self._is_recorded_by_program():
                self._say_who_records(step)
                return
            if self._debugger is None:
                self._debugger = self._class(**self._settings)
            debugger = self._debugger
            debugger.set_init_step(step)
            debugger.start(list(self._models) if len(self._models) > 1 else self._models[0])
        except MsprobeError as error:
            self._times = 0
            log.error(said("step-not-recorded", step, error.message))
            return
        if debugger.recorder.session.recording:
            self._step = step
            self._evaluates = self._trains = False

    def _is_recorded_by_program(self) -> bool:
        known = self._program_debugger.existing()
        return known is not None and bool(known.recorder.session.recording)

    def _say_who_records(self, step: int) -> None:
        log.once(("monitor", "recorded", id(self)), "info", said("step-recorded-by-program", step))


def _folder_of(debugger: Any, step: int) -> Path:
    session = debugger.recorder.session
    return layout.rank_folder(layout.step_folder(Path(debugger.settings.dump_path), step), session.rank())


def _remove(folder: Path) -> None:
    try:
        layout.remove(folder)
    except MsprobeError as error:
        log.once(("monitor", "kept step"), "warning", said("kept-step-stays", error.message))
