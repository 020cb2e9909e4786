"""The mode that sees every call of torch in its thread, and its place on the stack of modes.

A :class:`torch.overrides.TorchFunctionMode` sees each torch, Tensor and functional call, also of APIs that no list
names and of functions that the user imported long before; no function object is replaced. What is transparent runs
with the mode in place, so that its inside is seen.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from msprobe.capture.around import Around, Plan
from msprobe.capture.call_sites import called_as_builtin, made_by_operator
from msprobe.capture.relayed import RelayedCalls
from msprobe.capture.relayed_units import RelayedCall
from msprobe.capture.stacks import program_frame
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.arguments import as_given, chosen_by, running_frame
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.names import Api, ApiNames
from msprobe.capture.torch.calls.transparent import past_question

_push = private.push_mode
_pop = private.pop_mode
_stack_length = private.count_modes
_without_functions = private.without_functions
_is_traced = private.is_traced


# What `_after` is notified of a transparent function.
_INSIDE = object()


class _Entering(threading.local):
    """What this thread is about to call. Autograd's threads have the mode of the thread that called backward."""

    # The call was made by the reflected form of an operator, as in `2 + a`.
    reflected = False
    # The transparent function that is being entered, until a call inside it shows that it was.
    hop: Any = None


class CallMode(TorchFunctionMode):
    """Sees every call of the thread it was entered in. Enter and leave with :func:`enter` and :func:`leave`."""

    def __init__(self, recorder: CallRecorder, names: ApiNames) -> None:
        super().__init__()
        # Who is notified: the dumper itself where it is alone, and the same as `relayed` where there are listeners.
        self.target: Any = recorder
        self.relayed: RelayedCalls | None = None
        self.table = names.table
        self.find = names.find
        self.include_unlisted = names.include_unlisted
        self.entering = _Entering()
        self.session = recorder.session
        self.thread = recorder.session.thread
        # A method: torch insists on one that is bound to the mode.
        method = types.MethodType(Around(type(self)._before, self._after), self)
        self.__torch_function__ = method  # type: ignore[method-assign]

    def _before(self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Plan:
        """What to run for a call of ``func``, as ``__torch_function__`` is notified of it."""
        try:
            try:
                api = self.table[func]
            except KeyError:
                api = self.find(func)
            except TypeError:  # an unhashable callable
                api = None
            if api is None or not self.session.recording or self.thread.muted or _is_traced():
                return func, args, kwargs, None
            if api.transparent:
                if api.unit is not None:
                    return api.unit, (api, func, args, kwargs), None, None
                entering = self.entering
                if entering.hop is not func:
                    entering.hop = func
                    _push(self)
                    return *past_question(func, kinds, args, kwargs), _INSIDE
                # It asked a second time before it did anything: one unit, rather than entered for ever.
                entering.hop = None
                if not api.key or not self.include_unlisted:
                    return func, args, kwargs, None
            self.entering.hop = None
            key, listed, given, words, function = api.key, True, args, kwargs, func
            try:
                if api.operator is not None:
                    key, listed = self._operator_key(api)
                if api.python:
                    frame = running_frame(func)
                    if (
                        api.dispatcher is not None
                        and frame is not None
                        and chosen_by(api.dispatcher, func, frame.f_back)
                    ):
                        # `max_pool2d(..., return_indices=True)`: known by the function that was called.
                        function, frame = api.dispatcher, frame.f_back
                        known = self.table[function]
                        key = known.key if known is not None else key
                    given, words = as_given(function, args, kwargs, frame, key.startswith("Tensor."))
            except Exception as error:
                self.session.fault(key, error)
            if not listed and not self.include_unlisted:
                return func, args, kwargs, None
            if self.relayed is not None:
                call = self._relay(self.relayed, key, given, words, function)
                if type(call) is RelayedCall and call.is_changed:
                    # In the form in which the user called it.
                    return function, call.args, call.kwargs, call
                return func, args, kwargs, call
            if _stack_length() or kinds:
                # Modes of the user run below ours, or tensor types with a mind of their own: our questions are
                # not calls.
                with _without_functions():
                    call = self.target.begin_call(key, given, words)
                if call is not None:
                    call.among_modes = True
            else:
                call = self.target.begin_call(key, given, words)
                if call is not None:
                    call.among_modes = False
            return func, args, kwargs, call
        except Exception as error:
            self.session.fault("a call", error)
            return func, args, kwargs, None

    @staticmethod
    def _relay(
        relayed: RelayedCalls, key: str, given: Sequence[Any], words: dict[str, Any] | None, function: Any
    ) -> Any:
        """The beginning of a call that listeners may want; None if nobody does."""
        with _without_functions():
            call = relayed.begin_call(key, given, words, function=function)
        if call is not None:
            call.among_modes = True
        return call

    def serve(self, target: Any, relayed: RelayedCalls | None) -> None:
        """Report calls to ``target`` from now on; ``relayed`` is the same if listeners are among those who get them."""
        self.target = target
        self.relayed = relayed

    def _after(self, call: Any, result: Any, error: BaseException | None) -> Any:
        """The call that was planned is over. ``(result,)`` for another result."""
        try:
            if call is _INSIDE:
                self.entering.hop = None
                remove_mode(self)
            elif error is not None:
                with _without_functions():
                    self.target.fail_call(call, error)
            elif call.among_modes or _stack_length():
                with _without_functions():
                    return self.target.end_call(call, result)
            else:
                return self.target.end_call(call, result)
        except Exception as problem:
            self.session.fault("a call", problem)
        return None

    def _operator_key(self, api: Api) -> tuple[str, bool]:
        if self.entering.reflected and api.reflected is not None:
            self.entering.reflected = False
            return api.reflected
        frame: Any = program_frame()
        while frame.f_code.co_name == "__torch_function__":  # modes and subclasses of the user that come first
            frame = frame.f_back
        code, lasti = frame.f_code, frame.f_lasti
        if api.operator is not None and made_by_operator(code, lasti, api.name):
            return api.operator
        if api.name == "abs" and called_as_builtin(code, lasti, "abs"):
            return "Tensor.__abs__", False
        return api.key, api.listed


# ---------------------------------------------------------------- the stack of modes


def enter_mode(mode: TorchFunctionMode) -> None:
    """Put ``mode`` below the user's modes, which may be left before ours is.

    Only the default device (``torch.set_default_device``) stays below: it insists on the bottom.
    """
    above = [_pop() for _ in range(_stack_length())]
    above.reverse()
    default = private.default_device_mode()
    place = 1 if above and above[0] is default else 0
    for other in [*above[:place], mode, *above[place:]]:
        _push(other)


def remove_mode(mode: TorchFunctionMode) -> bool:
    """Take exactly ``mode`` off the stack, wherever it is; the topmost one if it is there twice."""
    above: list[Any] = []
    is_removed = False
    while _stack_length():
        top = _pop()
        if top is mode:
            is_removed = True
            break
        above.append(top)
    for other in reversed(above):
        _push(other)
    return is_removed
