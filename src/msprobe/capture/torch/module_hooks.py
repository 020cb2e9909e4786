"""Hooks on the modules of a model between start and stop, which tell of each pass.

Who is told of a module's passes is decided when the hooks are put: the dumper, or
:class:`msprobe.capture.heard.HeardPasses` where somebody listens to this module.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from msprobe import log
from msprobe.capture.session import Session
from msprobe.capture.targets import Passes
from msprobe.capture.torch.user_modules import is_scripted
from msprobe.capture.user_hooks import PassHook
from msprobe.guard import report

# Who is told of the passes of a module that goes by this name; None: nobody.
TargetOf = Callable[[str, nn.Module], "Passes | None"]


class ModuleHooks:
    """Hooks on modules."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.names: dict[int, str] = {}
        self._target_of: TargetOf = lambda name, module: None
        # The hooks on modules, and those on modules that have methods of their own to add hooks.
        self._placed: list[_Placed] = []
        self._handles: list[Any] = []
        # Under which our hooks stand in the dictionaries of modules.
        self._keys = (RemovableHandle(OrderedDict()).id, RemovableHandle(OrderedDict()).id)
        self._placed_are_off = False
        # Hooks that are not in place now: (dictionary of the module, key, value).
        self._paused: list[tuple[Any, int, Any]] = []
        self._modules: list[nn.Module] = []

    def watch(self, named: Sequence[tuple[str, nn.Module]], target_of: TargetOf) -> None:
        """Put hooks on these modules, each under the name that its entries carry: ``Module.{path}.{Class}``; but none
        on those of which nobody is told.
        """
        self._target_of = target_of
        self.watch_more(named)

    def watch_more(self, named: Sequence[tuple[str, nn.Module]]) -> None:
        """As :meth:`watch`, for modules that join those that are watched already."""
        for name, module in named:
            if id(module) in self.names:
                continue
            try:
                target = self._target_of(name, module)
                if target is None:
                    continue
                if is_scripted(module):
                    log.once(
                        "scripted",
                        "info",
                        "Scripted modules (torch.jit) are recorded from outside: the arguments and results of each that"
                        " the program calls, not what is inside.",
                    )
                if _has_usual_hooks(module):
                    placed = _Placed(module, self._keys, _Before(target, name), _After(target, name))
                    placed.put()
                    self._placed.append(placed)
                else:
                    self._handles += watch_passes(target, name, module)
            except Exception as error:
                self.session.fault(name, error)
                continue
            self.names[id(module)] = name
            self._modules.append(module)

    def pause(self) -> None:
        """Take the hooks off the modules until :meth:`resume`."""
        if self._placed_are_off:
            return
        self._placed_are_off = True
        for placed in self._placed:
            placed.take_off()
        for handle in self._handles:
            for reference in (handle.hooks_dict_ref, *handle.extra_dict_ref):
                hooks = reference()
                if hooks is not None and handle.id in hooks:
                    self._paused.append((hooks, handle.id, hooks.pop(handle.id)))

    def resume(self) -> None:
        """Put the hooks back."""
        if self._placed_are_off:
            self._placed_are_off = False
            for placed in self._placed:
                placed.put()
        paused, self._paused = self._paused, []
        for hooks, identity, value in paused:
            hooks[identity] = value

    def remove(self) -> None:
        """Take all hooks off the modules."""
        self._paused = []
        self._placed_are_off = False
        every, self._placed = self._placed, []
        for placed in every:
            placed.take_off()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self.names.clear()
        self._modules.clear()
        self.session.thread.forget_passes()


def watch_passes(passes: Passes, name: str, module: nn.Module) -> list[Any]:
    """Tell ``passes`` of each pass of ``module``, under ``name``. Returns what removes the hooks again."""
    return [
        module.register_forward_pre_hook(_Before(passes, name), with_kwargs=True),
        module.register_forward_hook(_After(passes, name), with_kwargs=True, always_call=True),
    ]


_HOOK_DICTIONARIES = frozenset(
    (
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
    )
)


def _has_usual_hooks(module: nn.Module) -> bool:
    kind = type(module)
    has_usual_methods = (
        kind.register_forward_pre_hook is nn.Module.register_forward_pre_hook
        and kind.register_forward_hook is nn.Module.register_forward_hook
    )
    # A scripted module refuses hooks, which would not be compiled; but who calls it from Python runs those it has.
    return (has_usual_methods or is_scripted(module)) and module.__dict__.keys() >= _HOOK_DICTIONARIES


class _Placed:
    """The two hooks on one module, as :func:`watch_passes` adds them, but without a handle for each: that takes a
    fifth of the time, and it is taken for every module in every step.
    """

    __slots__ = ("after", "before", "keys", "module")

    def __init__(self, module: nn.Module, keys: tuple[int, int], before: Any, after: Any) -> None:
        self.module = module
        self.keys = keys
        self.before = before
        self.after = after

    def put(self) -> None:
        module, (before, after) = self.module, self.keys
        module._forward_pre_hooks[before] = self.before
        module._forward_pre_hooks_with_kwargs[before] = True
        module._forward_hooks[after] = self.after
        module._forward_hooks_with_kwargs[after] = True
        module._forward_hooks_always_called[after] = True

    def take_off(self) -> None:
        module, (before, after) = self.module, self.keys
        module._forward_pre_hooks.pop(before, None)
        module._forward_pre_hooks_with_kwargs.pop(before, None)
        module._forward_hooks.pop(after, None)
        module._forward_hooks_with_kwargs.pop(after, None)
        module._forward_hooks_always_called.pop(after, None)


class _Before(PassHook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any = None) -> Any:
        try:
            if self.passes is None:
                return None
            other = self.passes.enter(self.name, module, args, kwargs or {})
            # Without keywords: another hook called `stop()` in this very pass, and torch forgot that we want them.
            return other if other is None or kwargs is not None else other[0]
        except Exception as error:
            report(self.name, error)
            return None


class _After(PassHook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, *keywords_and_result: Any) -> Any:
        try:
            if self.passes is None:
                return None
            other = self.passes.leave(self.name, module, keywords_and_result[-1])
            return None if other is None else other[0]
        except Exception as error:
            report(self.name, error)
            return None
