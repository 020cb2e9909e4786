"""Where every error of ours ends: what we do inside a training costs the training nothing.

What a program, or the framework in its name, calls of ours has one of three forms, none of which lets an error of ours
out, while an error of the program's own passes unchanged:

- a function that runs nothing of the program's: all of it is one ``try`` that ends in :func:`report`, or it is
  decorated with :func:`guarded`;
- a function that stands around one of the program's: it calls that one itself, and what is ours only by
  :func:`attempt` (or a session's ``guard``);
- a method that users call and whose arguments may be wrong: decorated with :func:`answers_user`, which lets the errors
  that are meant for them pass.

What failed is noted by the session that was made last: one line in the log, the details beside the dump.

A signal can arrive while our code runs. What the program's handler raises then (a timeout) is the program's, and
passes: whoever catches an error of ours asks :func:`pass_on` first.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import types
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.messages import said

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Given = ParamSpec("_Given")


class Reporter(Protocol):
    """Who notes errors: a session."""

    def fault(self, what: str, error: BaseException) -> None:
        """``what`` failed with ``error``. Must not raise."""


def _nobody() -> Reporter | None:
    return None


_reporter: Callable[[], Reporter | None] = _nobody


def report_to(reporter: Reporter) -> None:
    """Errors are noted by ``reporter`` from now on, as long as it is there."""
    global _reporter
    _reporter = weakref.ref(reporter)


_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def pass_on(error: BaseException) -> None:
    """Raise ``error``, or what it was made from, again if a signal handler of the program has raised that.

    For an ``except`` around our code.
    """
    first: BaseException | None = error
    codes = _codes_of_handlers()
    while first is not None:
        trace = first.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes or _is_handler(trace.tb_frame):
                raise first
            trace = trace.tb_next
        first = first.__cause__


def _codes_of_handlers() -> set[types.CodeType]:
    """What the handlers of signals run, as far as that can be asked."""
    codes: set[types.CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if not callable(handler) or isinstance(handler, types.BuiltinFunctionType):
            continue
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not isinstance(handler, (types.FunctionType, types.MethodType)):
            handler = vars(type(handler)).get("__call__")
        code = getattr(handler, "__code__", None)
        if isinstance(code, types.CodeType) and not code.co_filename.startswith(_PACKAGE):
            codes.add(code)
    return codes


def _is_handler(frame: types.FrameType) -> bool:
    """Whether a frame is that of a signal handler: it was called with a signal and the frame that it interrupted.

    For handlers that are no longer set, or that others call.
    """
    interrupted = frame.f_back
    if interrupted is None or frame.f_code.co_filename.startswith(_PACKAGE):
        return False
    values = inspect.getargvalues(frame)
    arguments = [values.locals.get(name) for name in values.args]
    arguments += values.locals.get(values.varargs, ()) if values.varargs else ()
    return any(argument is interrupted for argument in arguments) and any(
        type(argument) in (int, signal.Signals) and argument in signal.valid_signals() for argument in arguments
    )


def report(what: str, error: BaseException) -> None:
    """Note an error of ours; ``what`` failed. Raises nothing but what :func:`pass_on` does."""
    pass_on(error)
    try:
        reporter = _reporter()
        if reporter is not None:
            reporter.fault(what, error)
        else:
            kind = type(error).__name__
            log.once(("fault", what, kind), "error", said("work-failed", what, kind, error))
    except Exception as second:
        pass_on(second)


def attempt(work: Callable[_Given, Any], *args: _Given.args, **kwargs: _Given.kwargs) -> Any:
    """Do our own ``work``; what it returns, or None if it failed, which is noted."""
    try:
        return work(*args, **kwargs)
    except Exception as error:
        report(name_of(work), error)
        return None


def guarded(function: _Function) -> _Function:
    """``function``, which runs nothing of the program's: where it fails that is noted, and it returns None."""

    @functools.wraps(function)
    def guarded_function(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            report(name_of(function), error)
            return None

    return cast(_Function, guarded_function)


# An error of the program's that we have met in its place, and that is on its way to it.
_program_error: BaseException | None = None


def hand_to_program(error: BaseException | None) -> None:
    """``error``, which is raised next, is one of the program's own and passes :func:`answers_user`. None: it has."""
    global _program_error
    _program_error = error


def answers_user(function: _Function) -> _Function:
    """As :func:`guarded`, of a method that users call: a MsprobeError says what is wrong with what they gave, and
    passes.
    """

    @functools.wraps(function)
    def answering_function(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MsprobeError:
            raise
        except Exception as error:
            if error is _program_error:
                hand_to_program(None)  # it would keep the frames of the program
                raise
            report(name_of(function), error)
            return None

    return cast(_Function, answering_function)


def name_of(work: Any) -> str:
    """What ``work`` is called in the log."""
    try:
        function = getattr(work, "__func__", work)
        return str(getattr(function, "__qualname__", "work")).rpartition("<locals>.")[2]
    except Exception:
        return "work"
