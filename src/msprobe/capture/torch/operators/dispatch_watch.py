"""Two ways to see every operator that a thread calls: kernels for an unused dispatch key, and a dispatch
mode.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from msprobe.capture.torch import private
from msprobe.capture.torch.operators.dispatch_operators import SKIPPED_SPACES, Operator, describe_operator, has_numbers
from msprobe.guard import attempt, pass_on
from msprobe.messages import said

# Nothing but tests of torch itself registers anything for this key; it stands above autograd.
KEY_NAME = "TESTING_ONLY_GenericMode"

# torch makes tensors of other Python types from what these give, which must not have a Python object yet.
_ORIGINS = ("aten::alias", "aten::detach", "aten::lift", "aten::lift_fresh", "aten::empty.memory_format")
# A sparse gradient is copied, not taken over, once one of its parts has a Python object.
_PARTS = ("aten::_indices", "aten::_values")
_UNSEEN = frozenset(_ORIGINS + _PARTS)

_without_functions = private.without_functions
_is_traced = private.is_traced


class Observer(Protocol):
    """Who wants to know of operators."""

    @property
    def wants(self) -> bool:
        """False while nothing is recorded in this thread."""

    @property
    def over(self) -> bool:
        """True once nothing is recorded at all."""

    def run(self, operator: Operator, go: Callable[[], Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Run the operator by ``go`` and record it."""


def find_watch() -> Watch:
    """The better of the two that this torch can do."""
    return _watch_by_key() or _WatchByMode()


class Watch:
    """How operators are brought to a recorder."""

    def attach(self, recorder: Observer) -> None:
        """Begin, in this thread."""
        raise NotImplementedError

    def detach(self, recorder: Observer) -> None:
        """End."""
        raise NotImplementedError

    def is_on(self) -> bool:
        """True if this thread is watched."""
        raise NotImplementedError

    def resume(self, recorder: Observer) -> None:
        """Begin again, in this thread."""
        self.attach(recorder)

    def away(self) -> contextlib.AbstractContextManager[Any]:
        """What runs inside is not seen in this thread."""
        raise NotImplementedError

    def leave(self) -> bool:
        """What runs until :meth:`come_back` is not seen in this thread. True if it was."""
        return False

    def come_back(self) -> None:
        """What runs from now on is seen again."""


_get_included = private.is_key_included
_set_included = private.include_key


class _Away:
    """Switches the key off in this thread, and on again if it was on."""

    __slots__ = ("key", "was_on")

    def __init__(self, key: Any) -> None:
        self.key = key

    def __enter__(self) -> None:
        self.was_on = _get_included(self.key)
        _set_included(self.key, False)

    def __exit__(self, *error: object) -> None:
        if self.was_on:
            _set_included(self.key, True)


class _WatchByKey(Watch):
    """Kernels for an unused dispatch key, registered once in a process and without effect while the key is
    off. A kernel passes each call on to where it would have gone.
    """

    def __init__(self) -> None:
        self.key = private.key_of_name(KEY_NAME)
        self.below = private.keys_below(self.key)
        self.current: Observer | None = None
        # As long as these live, the kernels are registered.
        self._libraries: dict[str, Any] = {}
        self._registered: set[str] = set()
        self._known: tuple[int, ...] = ()
        # Operators that are made later pass by unseen until the next start.
        self._library("_").fallback_fallthrough(KEY_NAME)
        self._register()
        atexit.register(self._libraries.clear)

    def attach(self, recorder: Observer) -> None:
        self._register()
        self.resume(recorder)

    def resume(self, recorder: Observer) -> None:
        self.current = recorder
        _set_included(self.key, True)

    def is_on(self) -> bool:
        return _get_included(self.key)

    def detach(self, recorder: Observer) -> None:
        if self.current is recorder:
            self.current = None
        _set_included(self.key, False)

    def away(self) -> contextlib.AbstractContextManager[Any]:
        return _Away(self.key)

    def leave(self) -> bool:
        was_on = _get_included(self.key)
        _set_included(self.key, False)
        return was_on

    def come_back(self) -> None:
        _set_included(self.key, True)

    def _library(self, space: str) -> Any:
        library = self._libraries.get(space)
        if library is None:
            library = self._libraries[space] = private.make_library("IMPL", space, "", __file__, 0)
        return library

    def _register(self) -> None:
        """Give operators that have none yet a kernel. New ones come with imports and definitions."""
        known = (len(sys.modules), private.count_definitions(), len(torch.ops.loaded_libraries))
        if known == self._known:
            return
        self._known = known
        for name in private.operator_names():
            if name in self._registered:
                continue
            self._registered.add(name)
            space, _, rest = name.partition("::")
            if space in SKIPPED_SPACES or name in _UNSEEN:
                continue
            if private.has_kernel(name, "CompositeImplicitAutograd"):
                continue
            self._library(space).impl(rest, KEY_NAME, _Kernel(self, space, rest), True)


class _Kernel:
    """What one operator runs while its calls are watched."""

    __slots__ = ("_name", "_op", "_operator", "_space", "_watch")

    def __init__(self, watch: _WatchByKey, space: str, name: str) -> None:
        self._watch = watch
        self._space = space
        self._name = name
        self._op: Any = None
        self._operator: Operator | None = None

    def __call__(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = attempt(self._recorder)
        if recorder is None:
            return self._pass_on(keys, args, kwargs)
        observer, operator = recorder
        return observer.run(operator, lambda: self._pass_on(keys, args, kwargs), args, kwargs)

    def _recorder(self) -> tuple[Observer, Operator] | None:
        """Who wants to know of the call that begins, and of which operator it is; None if nobody does."""
        watch = self._watch
        recorder = watch.current
        if recorder is None or recorder.over:
            # A guard of the user's (inference mode is one) has brought the key back after it was switched
            # off.
            _set_included(watch.key, False)
            return None
        return (recorder, self._described()) if recorder.wants and not _is_traced() else None

    def _described(self) -> Operator:
        if self._operator is None:
            self._operator = describe_operator(self._find())
        return self._operator

    def _find(self) -> Any:
        if self._op is None:
            base, _, overload = self._name.partition(".")
            self._op = getattr(getattr(getattr(torch.ops, self._space), base), overload or "default")
        return self._op

    def _has_numbers(self, args: Sequence[Any]) -> bool:
        return has_numbers(self._described(), args)

    def _pass_on(self, keys: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        numbers = attempt(self._has_numbers, args)
        op = self._op or self._find()
        if numbers is not False:
            # A number that C++ made a tensor of, to take part in type promotion as a number. Only a call
            # from the top makes it one again.
            key = self._watch.key
            was_on = _get_included(key)
            _set_included(key, False)
            try:
                with _without_functions():
                    return op(*args, **kwargs)
            finally:
                if was_on:
                    _set_included(key, True)
        return op._handle.redispatch_boxed(keys & self._watch.below, *args, **kwargs)


_by_key: _WatchByKey | None = None


def _watch_by_key() -> _WatchByKey | None:
    """The one watch of this process; None where torch cannot do it."""
    global _by_key
    if _by_key is None:
        try:
            _by_key = _WatchByKey() if private.has("operators by key") else None
        except Exception as error:
            pass_on(error)
            private.say_missing("operators by key", said("torch-takes-no-kernels"))
    return _by_key


class _WatchByMode(Watch):
    """A dispatch mode, put below the user's modes and taken away from wherever it is then."""

    def __init__(self) -> None:
        self._mode: _OperatorMode | None = None

    def is_on(self) -> bool:
        return self._mode is not None

    def attach(self, recorder: Observer) -> None:
        if self._mode is None:
            self._mode = _OperatorMode(recorder)
            above = _pop_modes()
            private.push_dispatch_mode(self._mode)
            _push_modes(above)

    def detach(self, recorder: Observer) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            _push_modes([other for other in _pop_modes() if other is not mode])

    def away(self) -> contextlib.AbstractContextManager[Any]:
        # While a mode handles a call, it is off.
        return contextlib.nullcontext()


def _pop_modes() -> list[Any]:
    """Take all modes off the stack; the lowest one comes first."""
    count = private.count_dispatch_modes()
    modes = [private.pop_dispatch_mode() for _ in range(count)]
    return modes[::-1]


def _push_modes(modes: Sequence[Any]) -> None:
    for mode in modes:
        private.push_dispatch_mode(mode)


class _OperatorMode(private.DispatchMode):  # type: ignore[misc]
    def __init__(self, recorder: Observer) -> None:
        super().__init__()
        self.recorder = recorder
        self.known: dict[Any, Operator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = attempt(self._wanted, func)
        kwargs = kwargs or {}
        if operator is None:
            return func(*args, **kwargs)
        return self.recorder.run(operator, lambda: func(*args, **kwargs), args, kwargs)

    def _wanted(self, func: Any) -> Operator | None:
        """What is called, where it is recorded."""
        recorder = self.recorder
        operator = self.known.get(func)
        if operator is None:
            operator = self.known[func] = describe_operator(func)
        return None if operator.skipped or recorder.over or not recorder.wants else operator
