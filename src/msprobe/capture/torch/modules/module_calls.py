"""Calls of modules, seen without anything on the modules themselves.

Whoever takes a module apart while it is watched (``torch.save``, ``copy.deepcopy``, ``pickle``, ``torch.jit.script``,
``torch.export``, a walker that compares modules) finds the user's module: there is no hook of ours in it. While
somebody watches, ``torch.nn.Module._call_impl`` runs other code, as watched functions do
(:mod:`msprobe.capture.torch.watched_functions`), and who is called is looked up by identity.

A watcher sees the result behind all forward hooks of the user, and the arguments behind all pre-forward hooks. Where a
module has pre-forward hooks, one of ours stands behind them until it has run, which is before the module's ``forward``.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from torch import nn

from msprobe import log
from msprobe.capture.around import Around, Plan
from msprobe.capture.torch import private, private_compiler
from msprobe.capture.torch.compiled.compiler import COMPILER_WATCH, ImportWatch, compiler_import
from msprobe.capture.torch.watched_functions import FunctionCalls
from msprobe.capture.user_hooks import PassHook
from msprobe.guard import attempt, report
from msprobe.messages import said


class Watcher(Protocol):
    """Whoever wants to know of the passes of a module. What it raises is logged once and goes no further."""

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The module is about to run. ``(args, kwargs)`` for other arguments, else None."""

    def leave(self, module: nn.Module, result: Any, error: BaseException | None) -> Any:
        """It has run, or raised ``error``. ``(result,)`` for another result, else None."""


class WatchedModule:
    """One watcher of one module; :meth:`remove` ends it."""

    __slots__ = ("_key", "_watcher")

    def __init__(self, key: int, watcher: Watcher) -> None:
        self._key = key
        self._watcher = watcher

    def remove(self) -> None:
        """The watcher is called no more, in passes that run now neither."""
        _CALLS.remove(self._key, self._watcher)


def watch_module(module: nn.Module, watcher: Watcher, ahead: bool = False) -> WatchedModule:
    """Call ``watcher`` in each pass of ``module`` from now on, behind the others that watch it.

    ``ahead``: it sees the arguments as the module is called with them, before any pre-forward hook.
    """
    return _CALLS.add(module, watcher, ahead)


def let_go() -> None:
    """If all modules that were watched are gone, torch's calls are as before."""
    _CALLS.let_go()


def pause() -> None:
    """No pass is seen until :func:`resume`: torch looks as if nobody watched. May be nested."""
    _CALLS.pause()


def see_regions(are_seen: bool) -> None:
    """Whether passes inside of compiled regions are seen, as they run uncompiled."""
    _CALLS.are_regions_seen = are_seen


def resume() -> None:
    """Undo one :func:`pause`."""
    _CALLS.resume()


class _Watchers(NamedTuple):
    """Those of one module, which is not kept alive: with it these go. ``ahead``: before pre-forward hooks."""

    module: weakref.ref[nn.Module]
    ahead: tuple[Watcher, ...] = ()
    behind: tuple[Watcher, ...] = ()


class _Pass:
    """A pass that is on its way. ``placed``: the hook of ours that waits behind those of the user."""

    __slots__ = ("entered", "module", "placed")

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.entered = False
        self.placed: _BehindOthers | None = None


class _BehindOthers(PassHook):
    """A pre-forward hook behind those of the user, which takes itself off the module before it does anything."""

    __slots__ = ("running",)

    def __init__(self, running: _Pass | None = None) -> None:
        super().__init__()
        self.running = running

    def __call__(self, module: nn.Module, args: Any, kwargs: Any = None) -> Any:
        try:
            running = self.running
            if running is None:
                return None
            self.take_off(module)
            changed = _CALLS.enter(running, args, kwargs or {})
            # Without keywords: a hook of the user took ours off in this very pass, and torch forgot that it wants them.
            return changed if changed is None or kwargs is not None else changed[0]
        except Exception as error:
            report("a pass", error)
            return None

    def put(self, module: nn.Module) -> None:
        module._forward_pre_hooks[_KEY] = self
        module._forward_pre_hooks_with_kwargs[_KEY] = True

    def take_off(self, module: nn.Module) -> None:
        if module._forward_pre_hooks.get(_KEY) is self:
            del module._forward_pre_hooks[_KEY]
            module._forward_pre_hooks_with_kwargs.pop(_KEY, None)


# Under which our hook stands in the dictionary of a module: torch counts up from 0.
_KEY = -1


class _ModuleCalls:
    """All modules that are watched in this process, and the code that torch runs for their calls."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watchers] = {}
        self._functions: FunctionCalls | None = None
        self._paused = 0
        # Compiled code runs uncompiled now, so what is inside of it is seen.
        self.are_regions_seen = False
        self._lock = threading.RLock()
        self._in_regions = 0
        self._import: ImportWatch | None = None

    # ------------------------------------------------------------ who is watched

    def add(self, module: nn.Module, watcher: Watcher, ahead: bool) -> WatchedModule:
        key = id(module)
        with self._lock:
            gone = partial(attempt, _forget, self._watched, key)  # type: ignore[call-arg]
            present = self._of(module) or _Watchers(weakref.ref(module, gone))
            if ahead:
                self._watched[key] = present._replace(ahead=(*present.ahead, watcher))
            else:
                self._watched[key] = present._replace(behind=(*present.behind, watcher))
            if len(self._watched) == 1:
                self._attach()
        return WatchedModule(key, watcher)

    def _of(self, module: Any) -> _Watchers | None:
        watchers = self._watched.get(id(module))
        return watchers if watchers is not None and watchers.module() is module else None

    def remove(self, key: int, watcher: Watcher) -> None:
        with self._lock:
            present = self._watched.get(key)
            if present is not None:
                remaining = present._replace(
                    ahead=_without(present.ahead, watcher), behind=_without(present.behind, watcher)
                )
                if remaining.ahead or remaining.behind:
                    self._watched[key] = remaining
                else:
                    self._watched.pop(key, None)
            self.let_go()

    def let_go(self) -> None:
        with self._lock:
            if not self._watched:
                self._detach()

    # ------------------------------------------------------------ the code that torch runs

    def _attach(self) -> None:
        self._see_calls()
        if private_compiler.eval_frame() is not None:
            self._watch_compiler()
        elif self._import is None:
            self._import = compiler_import(self._watch_compiler)
            sys.meta_path.insert(0, self._import)

    def _see_calls(self) -> None:
        if self._functions is None and not self._paused and not self._in_regions and self._watched:
            self._functions = FunctionCalls()
            if not self._functions.add_around(private.call_of_modules(), _entrance):
                log.once("module calls", "warning", said("module-passes-unseen"))
            self._functions.attach()

    def _leave_calls(self) -> None:
        functions, self._functions = self._functions, None
        if functions is not None:
            functions.detach()

    def _detach(self) -> None:
        self._leave_calls()
        COMPILER_WATCH.leave(self)
        # The end of a region that runs now is not reported any more.
        self._in_regions = 0
        watch, self._import = self._import, None
        if watch is not None and watch in sys.meta_path:
            sys.meta_path.remove(watch)

    def pause(self) -> None:
        with self._lock:
            self._paused += 1
            self._leave_calls()

    def resume(self) -> None:
        with self._lock:
            self._paused = max(0, self._paused - 1)
            self._see_calls()

    # ------------------------------------------------------------ compiled regions

    def _watch_compiler(self) -> None:
        """Compiled code is made of what torch looks like: nobody watches inside."""
        with self._lock:
            if self._watched and private.has("compiled regions"):
                COMPILER_WATCH.join(self)

    def entered(self, frame: types.FrameType) -> None:
        with self._lock:
            if not self.are_regions_seen:
                self._in_regions += 1
                self._leave_calls()

    def left(self, frame: types.FrameType | None) -> None:
        with self._lock:
            self._in_regions = max(0, self._in_regions - 1)
            self._see_calls()

    # ------------------------------------------------------------ a pass

    def begin(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, _Pass | None]:
        """The arguments with which to run the module, and what :meth:`end` is to be given."""
        try:
            watchers = self._of(module)
            if watchers is None:
                return args, kwargs, None
            running = _Pass(module)
            if watchers.ahead:
                changed = _enter(watchers.ahead, module, args, kwargs)
                args, kwargs = (args, kwargs) if changed is None else changed
            if not watchers.behind:
                return args, kwargs, running
            if module.__dict__.get("_forward_pre_hooks") or private.hooks_before_all:
                running.placed = _BehindOthers(running)
                running.placed.put(module)
                return args, kwargs, running
            changed = self.enter(running, args, kwargs)
            return (args, kwargs, running) if changed is None else (*changed, running)
        except Exception as error:
            report("a pass", error)
            return args, kwargs, None

    def enter(self, running: _Pass, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The hooks of the user have run. ``(args, kwargs)`` for other arguments, else None."""
        running.entered = True
        watchers = self._of(running.module)
        return None if watchers is None else _enter(watchers.behind, running.module, args, kwargs)

    def end(self, running: _Pass, result: Any, error: BaseException | None) -> Any:
        """The module has run, or raised. ``(result,)`` for another result, else None."""
        try:
            module, changed = running.module, None
            if running.placed is not None:
                running.placed.take_off(module)
                # They hold each other, and the module.
                running.placed.running = None
                running.placed = None
            watchers = self._of(module)
            if watchers is None:
                return None
            for watcher in (*watchers.behind, *watchers.ahead) if running.entered else watchers.ahead:
                other = attempt(watcher.leave, module, result, error)
                if other is not None and error is None:
                    changed = other
                    result = other[0]
            return changed
        except Exception as problem:
            report("a pass", problem)
            return None


def _forget(watched: dict[int, _Watchers], key: int, reference: weakref.ref[nn.Module]) -> None:
    """A module is gone. What torch runs for calls stays as it is: this is no time to change it."""
    watchers = watched.get(key)
    if watchers is not None and watchers.module is reference:
        watched.pop(key, None)


def _enter(watchers: Sequence[Watcher], module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    changed = None
    for watcher in watchers:
        other = attempt(watcher.enter, module, args, kwargs)
        if other is not None:
            changed = args, kwargs = tuple(other[0]), dict(other[1])
    return changed


def _without(watchers: tuple[Watcher, ...], watcher: Watcher) -> tuple[Watcher, ...]:
    return tuple(other for other in watchers if other is not watcher)


def _entrance(original: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """What runs in the place of ``_call_impl``, given the arguments of a call."""

    def before(given: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan:
        try:
            args = given[1:]
            other, words, running = _CALLS.begin(given[0] if given else None, args, kwargs)
            return original, given if other is args else (given[0], *other), words, running
        except Exception as error:
            report("a pass", error)
            return original, given, kwargs, None

    entrance: Callable[[tuple[Any, ...], dict[str, Any]], Any] = Around(before, _CALLS.end)
    return entrance


_CALLS = _ModuleCalls()
