"""Custom ``torch.autograd.Function`` classes, recorded as one unit: ``Function.{Class}.{n}``.

The function mode sees the calls inside a Function's forward, but not the Function itself. So ``Function.apply`` is
watched while recording, also where it was bound long before (``square = Square.apply``). What runs inside is recorded
as well, under its own names. Newer torch (2.15 does) has ``apply`` compiled: there the attribute is replaced while
recording, and what was bound before is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.autograd import Function

from msprobe.capture.targets import Targets
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.foreign_code import ForeignCode
from msprobe.capture.torch.calls.recorded_call import run_call
from msprobe.capture.torch.patches import Patches
from msprobe.capture.torch.threads import RecordedThread
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.guard import attempt

# Calls in another thread than the recorded one, and calls that are not recorded, but may write to memory.
_ELSEWHERE, _NOTICED = object(), object()
_HARMLESS = frozenset(("BackwardHookFunction", "CheckpointFunction"))
_FRAMEWORK_CLASSES = frozenset(
    ("BackwardHookFunction", "CompiledFunction", "_PostBackward", "RegisterPostBackwardFunction")
)


class CustomFunctions:
    """Has ``Function.apply`` recorded while attached, or only noticed where no calls are recorded (``records``)."""

    def __init__(self, calls: CallRecorder, targets: Targets, thread: RecordedThread) -> None:
        self.targets = targets
        self.thread = thread
        self.records = False
        self.foreign = ForeignCode(calls, targets)
        self.session = calls.session
        self._watched = FunctionCalls()
        self._replaced = Patches()
        if not self._watched.add(getattr(Function.apply, "__func__", None), self._apply):
            self._replaced.add(Function, "apply", self._instead)

    def attach(self) -> None:
        """Begin to watch."""
        self._watched.attach()
        self._replaced.attach()

    def detach(self) -> None:
        """Leave nothing behind."""
        self._replaced.detach()
        self._watched.detach()

    def _instead(self, original: Any) -> Any:
        """What stands in for a compiled ``apply``."""
        bind_apply = vars(Function)["apply"].__get__

        def run(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
            return bind_apply(None, cls)(*args, **kwargs)

        def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
            return self._apply(run, (cls, *args), kwargs)

        apply.__doc__ = original.__doc__
        return classmethod(apply)

    def _apply(self, inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        application = attempt(self._way_of, args)
        if application is None:
            return inner(*args, **kwargs)
        if application is _ELSEWHERE:
            try:
                return inner(*args, **kwargs)
            finally:
                attempt(self.foreign.statistics.forget_all)
        if application is _NOTICED:
            return self.foreign.run(inner, args, kwargs)

        def run(given: Sequence[Any], words: dict[str, Any]) -> Any:
            return self.foreign.run(inner, (args[0], *given), words)

        return run_call(self.targets.calls, application, run, args[1:], kwargs)

    def _way_of(self, args: tuple[Any, ...]) -> Any:
        """How a call is treated: None as if nothing were watched, one of the ways below, or the key of its record."""
        session = self.session
        if not session.recording or not args or _is_harmless(args[0]):
            return None
        if not self.thread.is_here():
            return _ELSEWHERE
        if not self.records or session.thread.muted or _is_framework(args[0]):
            return _NOTICED
        return f"Function.{args[0].__name__}"


def _is_harmless(cls: Any) -> bool:
    """Whether a Function of the framework computes nothing itself."""
    return cls.__name__ in _HARMLESS and str(cls.__module__).startswith("torch.")


def _is_framework(cls: Any) -> bool:
    # Made by torch for each operator with a registered backward; the operator itself is recorded.
    if cls.__name__ in _FRAMEWORK_CLASSES or cls.__name__.startswith("GeneratedBackwardFor_"):
        return True
    return str(cls.__module__).startswith(private.FRAMEWORK_MODULES)
