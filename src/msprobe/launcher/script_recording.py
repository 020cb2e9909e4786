"""What `msprobe run` records a process with: that of the script, and those of the ranks that it starts."""

from __future__ import annotations

import functools
import os
import re
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import process
from typing import Any, ClassVar

import torch
from torch import nn

from msprobe import log
from msprobe.capture.outcome import named_numbers
from msprobe.capture.step_on import StepOn
from msprobe.capture.torch import private
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.errors import NotAvailableError
from msprobe.guard import attempt, pass_on
from msprobe.launcher.script_optimizers import when_made
from msprobe.launcher.script_steps import ScriptSteps
from msprobe.messages import said
from msprobe.store import durable, layout


class ScriptRecording:
    """Records this process until the script constructs a debugger of its own."""

    #: That of this process.
    active: ClassVar[ScriptRecording | None] = None

    def __init__(
        self,
        config_path: str | None,
        first_step: int | None,
        overrides: Mapping[str, Any],
        step_on: str | None = None,
    ) -> None:
        self._given = config_path, first_step, dict(overrides), step_on
        self._since = time.time()
        self.debugger = PrecisionDebugger(config_path=config_path, **overrides)
        if self.debugger.settings.gradient_probe is not None:
            PrecisionDebugger.reset()
            raise NotAvailableError(said("grad-probe-by-run"))
        if first_step is not None:
            PrecisionDebugger.set_init_step(first_step)
        self.steps = ScriptSteps(self.debugger, step_on=StepOn.parse(step_on) if step_on is not None else None)
        self.steps.attach()
        PrecisionDebugger._give_way = self._give_way
        ScriptRecording.active = self

    def words(self) -> list[str]:
        """The options of ``msprobe run`` that record another process like this one, wherever it runs."""
        config_path, first_step, overrides, step_on = self._given
        given = {
            "config": os.path.abspath(config_path) if config_path is not None else None,
            **overrides,
            "dump_path": os.path.abspath(self.debugger.settings.dump_path),
            "first_step": first_step,
            "step_on": step_on,
        }
        words: list[str] = []
        for name, value in given.items():
            if value is not None:
                words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return words

    def _give_way(self, what: str) -> None:
        log.warning(said("script-records-itself", what))
        ScriptRecording.active = None
        self.steps.detach()
        outcome = self.debugger.recorder.session.outcome
        if outcome.is_empty:
            outcome.forget()
        PrecisionDebugger.reset()

    def end(self, has_children: bool = False, scripts: Mapping[str, int] = types.MappingProxyType({})) -> None:
        """The program ends. ``has_children``: others may have recorded what this process did not. ``scripts``: Python
        scripts that it has started, which nobody recorded, and how often.
        """
        if ScriptRecording.active is not self:
            return
        ScriptRecording.active = PrecisionDebugger._give_way = None
        attempt(self.steps.detach)
        attempt(self._look_at_ranks, has_children)
        attempt(_say_not_recorded, scripts)
        PrecisionDebugger.reset()

    def _look_at_ranks(self, has_children: bool) -> None:
        outcome = self.debugger.recorder.session.outcome
        if outcome.is_empty and has_children and (any(self._new_folders()) or any(self._new_folders("*/"))):
            outcome.forget()
        self._warn_of_missing_ranks()

    def leave(self) -> None:
        """This is a fork of the process that records: there the recording goes on, here nothing of it stays."""
        ScriptRecording.active = PrecisionDebugger._give_way = None
        self.steps.detach()
        PrecisionDebugger.reset()

    def _warn_of_missing_ranks(self) -> None:
        """Say which ranks have left no file, if this is the first one."""
        settings, outcome = self.debugger.settings, self.debugger.recorder.session.outcome
        # Other machines may write on disks of their own.
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        here = min(int(local), outcome.world) if local.isdecimal() else outcome.world
        if outcome.rank != 0 or here < 2 or outcome.is_empty:
            return
        written = set(self._new_folders())
        missing = [rank for rank in range(here) if settings.wants_rank(rank) and f"rank{rank}" not in written]
        if missing:
            log.warning(said("ranks-without-files", outcome.world, named_numbers("rank", missing), settings.dump_path))

    def _new_folders(self, below: str = "") -> Iterator[str]:
        """The names of ranks' folders, of any step, in which something was written since this recording began.
        ``below``: "*/" for those of processes that are no ranks.
        """
        return layout.ranks_written_since(self.debugger.settings.dump_path, self._since, below)


def _say_not_recorded(scripts: Mapping[str, int]) -> None:
    """Say which Python scripts were started and not recorded, if any: how often each."""
    if scripts:
        names = sorted({os.path.basename(path) for path in scripts})
        count = sum(scripts.values())
        started = said("one-script") if count == 1 else said("several-scripts", count)
        log.info(said("scripts-not-recorded", started, ", ".join(names[:4]), ", ..." if len(names) > 4 else ""))


def _folder_of_process() -> str:
    """The name of this process of multiprocessing, as that of a folder."""
    return re.sub(r"[^\w-]", "_", process.current_process().name)[:100]


def _is_member() -> bool:
    """True if this process is a rank of a process group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def follow_child(words: Sequence[str]) -> Callable[[int], None] | None:
    """Record this process of multiprocessing once it is a rank; gives what ends that, with the process's status.

    ``words``: options of ``msprobe run``. None for a process that a rank has started: it is a worker.
    """
    recording = ScriptRecording.active
    if recording is not None:
        recording.leave()
    if _is_member():
        return None
    return _Expected(words).end


def _given_by(words: Sequence[str]) -> dict[str, Any]:
    """The arguments that :meth:`ScriptRecording.words` says in options; True where one has no value."""
    given: dict[str, Any] = {}
    name = ""
    for word in words:
        if not name or (given[name] is True and word.startswith("--")):
            name = word.removeprefix("--")
            given[name] = True
        else:
            given[name], name = word, ""
    return given


class _Expected:
    """Waits until a process is a rank of a process group. One that makes an optimizer and is no rank (hogwild) is
    recorded into a folder of its own below ``dump_path``; one that only computes gradients is not, and a line says so.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._recording: ScriptRecording | None = None
        self._patches = Patches()
        self._patches.add(nn.Module, "__call__", self._watched)
        self._patches.add(torch.autograd, private.RUN_BACKWARD, self._watched_backward)
        self._patches.add(torch.optim.Optimizer, "__init__", when_made(self._made))
        self._patches.attach()
        self._functions = FunctionCalls()
        joins = getattr(torch.distributed, "init_process_group", None)
        self._functions.add(joins, self._joins)
        self._functions.attach()

    def _joins(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        attempt(self._begins)
        return result

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            has_begun = attempt(self._begins)
            if has_begun:
                return nn.Module.__call__(module, *args, **kwargs)
            return original(module, *args, **kwargs)

        return __call__

    def _begins(self) -> bool:
        """True if this process is a rank by now: what it does is recorded from here on."""
        if not _is_member():
            return False
        self._begin()
        return True

    def _made(self, optimizer: Any) -> None:
        if self._recording is not None:
            return
        self._begin(folder="" if _is_member() else _folder_of_process())
        if self._recording is not None:
            self._recording.steps.rule.made(optimizer)

    def _watched_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            attempt(self._say_if_no_rank)
            return original(*args, **kwargs)

        return run_backward

    def _say_if_no_rank(self) -> None:
        if not _is_member() and PrecisionDebugger.existing() is None:
            log.once(
                "no rank",
                "warning",
                said("process-is-no-rank", process.current_process().name),
            )

    def _stop_waiting(self) -> None:
        self._patches.detach()
        self._functions.detach()

    def _begin(self, folder: str = "") -> None:
        self._stop_waiting()
        if PrecisionDebugger.existing() is not None:
            # The script's own.
            return
        given = _given_by(self._words)
        first_step, step_on = given.pop("first_step", None), given.pop("step_on", None)
        config = given.pop("config", None)
        given["dump_path"] = os.path.join(given["dump_path"], folder) if folder else given["dump_path"]
        try:
            self._recording = ScriptRecording(
                config, int(first_step) if first_step is not None else None, given, step_on
            )
        except Exception as error:
            pass_on(error)
            log.error(said("rank-not-recorded", error))

    def end(self, status: int) -> None:
        """The process ends."""
        self._stop_waiting()
        if self._recording is not None:
            self._recording.steps.failed |= status != 0
            self._recording.end()
            # Processes of multiprocessing end without what is registered at exit.
            durable.drain()
