"""The modules of a model whose passes are watched between start and stop.

Who is notified of a module's passes is decided when it is watched first: the dumper, or
:class:`msprobe.capture.relayed.RelayedPasses` where somebody listens to this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from msprobe import log
from msprobe.capture.identity import IdentityMap
from msprobe.capture.session import Session
from msprobe.capture.targets import Passes
from msprobe.capture.torch.modules import module_calls
from msprobe.capture.torch.modules.module_calls import WatchedModule, watch_module
from msprobe.capture.torch.modules.user_modules import is_scripted
from msprobe.messages import said

# Who is notified of the passes of a module that goes by this name; None: nobody.
TargetOf = Callable[[str, nn.Module], "Passes | None"]


class ModuleHooks:
    """The watched modules of one recorder."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.names: IdentityMap[str] = IdentityMap()
        self._target_of: TargetOf = lambda name, module: None
        self._watched: IdentityMap[WatchedModule] = IdentityMap()
        self._is_paused = False

    def watch(self, named: Sequence[tuple[str, nn.Module]], target_of: TargetOf) -> None:
        """Watch these modules, each under the name that its entries carry: ``Module.{path}.{Class}``; but none of
        those that nobody is notified of.
        """
        self._target_of = target_of
        self.watch_more(named)

    def watch_more(self, named: Sequence[tuple[str, nn.Module]]) -> None:
        """As :meth:`watch`, for modules that join those that are watched already."""
        for name, module in named:
            if module in self.names:
                continue
            try:
                target = self._target_of(name, module)
                if target is None:
                    continue
                if is_scripted(module):
                    log.once(
                        "scripted",
                        "info",
                        said("scripted-from-outside"),
                    )
                self._watched[module] = watch_passes(target, name, module)
            except Exception as error:
                self.session.fault(name, error)
                continue
            self.names[module] = name

    def pause(self) -> None:
        """See no passes until :meth:`resume`. Without watched modules there is nothing to pause."""
        if self._watched and not self._is_paused:
            self._is_paused = True
            module_calls.pause()

    def resume(self) -> None:
        """See them again."""
        if self._is_paused:
            self._is_paused = False
            module_calls.resume()

    def remove(self) -> None:
        """Watch nothing more."""
        self.resume()
        every = self._watched.values()
        self._watched.clear()
        for watched in every:
            watched.remove()
        module_calls.let_go()
        self.names.clear()
        self.session.thread.forget_passes()


def watch_passes(passes: Passes, name: str, module: nn.Module) -> WatchedModule:
    """Notify ``passes`` of each pass of ``module``, under ``name``, until what this returns is removed."""
    return watch_module(module, _Named(passes, name))


class _Named:
    """Notifies ``passes`` of the passes of one module, under its name."""

    __slots__ = ("name", "passes")

    def __init__(self, passes: Passes, name: str) -> None:
        self.passes = passes
        self.name = name

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.passes.enter(self.name, module, args, kwargs)

    def leave(self, module: nn.Module, result: Any, error: BaseException | None) -> Any:
        return self.passes.leave(self.name, module, result, error)
