"""Functions of the user's choice, recorded as one call: ``PrecisionDebugger.register_custom_api``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from msprobe import log
from msprobe.capture.method_arguments import check_api
from msprobe.capture.relayed import RelayedCalls
from msprobe.capture.torch.calls.function_mode import enter_mode, remove_mode
from msprobe.capture.torch.calls.recorded_call import run_call
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.guard import attempt
from msprobe.messages import said


def register(recorder: TorchRecorder, module: Any, api: Any, prefix: Any = None) -> None:
    """Record calls of ``module.api`` as ``{prefix}.{api}.{n}.forward`` and ``.backward``, at levels L1 and
    mix.

    The function is replaced between start and stop only. What it calls is not recorded for itself, as
    inside any recorded API. Whoever imported the function itself earlier calls the original.

    Raises InvalidInputError if there is no such function.
    """
    check_api(module, api, prefix)
    if recorder.level not in ("L1", "mix", "none"):
        log.info(said("custom-api-at-level", recorder.level, api))
        return
    part = _part_of(recorder)
    if (id(module), api) in part.registered:
        return
    name = f"{prefix or getattr(module, '__name__', None) or 'Custom'}.{api}"
    patches = Patches()
    patches.add(module, api, lambda original: _recorded(recorder, name, original, vars(module).get(api)))
    # The module is kept, so that its id stays its own.
    part.registered[id(module), api] = Registered(module, prefix, patches)
    if part.attached:
        patches.attach()


def restore(recorder: TorchRecorder, module: Any, api: Any) -> None:
    """Undo :func:`register`; a function that was not registered is left alone, with a warning."""
    check_api(module, api, None)
    part = _part_of(recorder)
    registered = part.registered.pop((id(module), api), None)
    if registered is not None:
        registered.patches.detach()
    elif recorder.level in ("L1", "mix"):
        log.warning(said("custom-api-not-registered", getattr(module, "__name__", module), api))


def register_again(old: TorchRecorder, new: TorchRecorder) -> None:
    """Have the functions that ``old`` watches watched by ``new``."""
    for (_, api), entry in _part_of(old).registered.items():
        register(new, entry.module, api, entry.prefix)


class Registered(NamedTuple):
    """One registered function."""

    module: Any
    prefix: str | None
    patches: Patches


class CustomApis:
    """The registered functions of one recorder: a part of it."""

    def __init__(self) -> None:
        self.registered: dict[tuple[int, str], Registered] = {}
        self.attached = False

    def attach(self) -> None:
        """Put the recording functions in place."""
        self.attached = True
        for entry in self.registered.values():
            entry.patches.attach()

    def detach(self) -> None:
        """Put the originals back."""
        self.attached = False
        for entry in reversed(self.registered.values()):
            entry.patches.detach()


def _part_of(recorder: TorchRecorder) -> CustomApis:
    for part in recorder.parts:
        if isinstance(part, CustomApis):
            return part
    part = CustomApis()
    part.attached = recorder.session.recording
    recorder.parts.add("call", part)
    return part


def _recorded(recorder: TorchRecorder, name: str, original: Any, stored: Any) -> Any:
    """``original`` with its calls recorded. ``stored``: how the holder keeps it, which distinguishes static and
    class methods.
    """
    inner = stored.__func__ if isinstance(stored, (classmethod, staticmethod)) else original
    session, targets, thread = recorder.session, recorder.targets, recorder.thread

    @functools.wraps(inner)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        is_recorded = attempt(records)
        if not is_recorded:
            return inner(*args, **kwargs)
        target = targets.calls
        # Who listens may call it again.
        again = (inner,) if type(target) is RelayedCalls else ()
        return run_call(target, name, run, args, kwargs, *again)

    def records() -> bool:
        return session.recording and not session.thread.muted and thread.is_here()

    def run(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        # As in any recorded API, what is called inside is part of it.
        outer = attempt(step_aside)
        try:
            return inner(*args, **kwargs)
        finally:
            attempt(come_back, outer)

    def step_aside() -> Any:
        mode = recorder.mode
        return mode if mode is not None and remove_mode(mode) else None

    def come_back(mode: Any) -> None:
        if mode is not None and session.recording:
            enter_mode(mode)

    if isinstance(stored, classmethod):
        return classmethod(replacement)
    if isinstance(stored, staticmethod):
        return staticmethod(replacement)
    return replacement
