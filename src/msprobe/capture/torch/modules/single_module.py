"""``module_dump``: for a while, record one module and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.torch.debugger import PrecisionDebugger
from msprobe.capture.torch.modules.module_hooks import watch_passes
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.errors import InvalidInputError
from msprobe.messages import said

_active: SingleModule | None = None


def module_dump(module: nn.Module, name: str) -> None:
    """Until :func:`module_dump_end`, record only the passes of ``module``:
    ``Module.{name}.{Class}.forward.{n}`` and ``.backward.{n}``, with its direct parameters; no calls and no
    other modules.

    Nothing happens, with a line in the log, if the module is watched already (levels L0 and mix), or if
    there is no PrecisionDebugger. A second call ends the first. Raises InvalidInputError for a wrong
    argument.
    """
    if not isinstance(module, nn.Module):
        raise InvalidInputError(said("module-dump-of-wrong-class", type(module).__name__))
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidInputError(said("module-dump-of-script", type(module).__name__))
    if not isinstance(name, str) or not name:
        raise InvalidInputError(said("module-dump-name", name))
    global _active
    module_dump_end()
    debugger = PrecisionDebugger.existing()
    if debugger is None:
        log.warning(said("module-dump-without-debugger"))
        return
    recorder = debugger.recorder
    if recorder.level not in ("L0", "L1", "mix"):
        log.info(said("module-dump-at-level", recorder.level, name))
        return
    known = recorder.module_hooks.names.get(module)
    if known is not None:
        log.info(said("module-recorded-already", name, known))
        return
    _active = SingleModule(recorder, module, f"Module.{name}.{type(module).__name__}")


def module_dump_end() -> None:
    """End :func:`module_dump`: everything is recorded again. Without one, nothing happens."""
    global _active
    active, _active = _active, None
    if active is not None:
        active.end()


class SingleModule:
    """Mutes this thread's recording but for the passes of one module."""

    def __init__(self, recorder: TorchRecorder, module: nn.Module, name: str) -> None:
        self._recorder = recorder
        self.thread = recorder.session.thread
        self.thread.muted += 1
        self._watched = watch_passes(self, name, module)

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The module is about to run."""
        thread = self.thread
        muted, thread.muted = thread.muted, 0
        try:
            return self._recorder.targets.passes.enter(name, module, args, kwargs)
        finally:
            thread.muted = muted

    def leave(self, name: str, module: nn.Module, result: Any, error: BaseException | None = None) -> Any:
        """The module has run, or raised ``error``."""
        return self._recorder.targets.passes.leave(name, module, result, error)

    def end(self) -> None:
        """Watch the module no more and let everything be recorded again."""
        self._watched.remove()
        self.thread.muted = max(0, self.thread.muted - 1)
