"""Compiled modules, recorded from outside: one entry for each pass, and the gradients of the parameters
inside.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.identity import IdentityMap, IdentitySet
from msprobe.capture.targets import Passes
from msprobe.capture.torch import private, private_compiler
from msprobe.capture.torch.context import Context
from msprobe.capture.torch.gradients.parameter_gradients import ParameterGradients
from msprobe.capture.torch.modules.user_modules import modules
from msprobe.capture.torch.patches import Patches
from msprobe.guard import attempt

_is_traced = private.is_traced
_Reference = weakref.ref[nn.Module]


class CompiledModules:
    """Watches calls of compiled modules from outside: those that ``torch.compile(module)`` returned,
    wherever they are, and those of the model that were compiled in place (``module.compile()``).
    """

    def __init__(self, context: Context, parameters: ParameterGradients) -> None:
        self.session = context.session
        self.parameters = parameters
        self._targets = context.targets
        self._level = context.level
        self._backward = context.calls.backward
        # Of the modules of the models given to start: the name of its entries, without what torch.compile adds to
        # paths. No module is kept alive here.
        self._names: IdentityMap[str] = IdentityMap()
        # Models without compiled modules, and the names of the modules in them, which have yet to be learned.
        self._unlearned: list[tuple[list[_Reference], list[tuple[str, _Reference]]]] = []
        # Those that were compiled in place, and their names.
        self._in_place: IdentityMap[str] = IdentityMap()
        self._models = IdentitySet()
        # Those of them in whose place something of ours is called.
        self._replaced = IdentitySet()
        self._patches = Patches()
        self._patched = False
        self._passes = _Passes()
        self._watched_all = False

    @property
    def passing(self) -> bool:
        """True if a pass of a compiled module runs in this thread, and will be recorded as such."""
        return self._passes.depth > 0

    def forget(self) -> None:
        """Recording begins anew, perhaps with other models."""
        self._names.clear()
        self._unlearned.clear()
        self._in_place.clear()
        self._models.clear()
        self._watched_all = False

    def plan(
        self, models: Sequence[nn.Module], named: Sequence[tuple[str, nn.Module]], eager: bool
    ) -> Sequence[tuple[str, nn.Module]]:
        """Learn the models' modules; return those of ``named`` that run outside of compiled modules.

        ``named``: names of entries, and modules. ``eager``: nothing will run compiled, so all run outside.
        """
        self._models.update(models)
        self._unlearned.append(
            ([weakref.ref(model) for model in models], [(name, weakref.ref(module)) for name, module in named])
        )
        wrapper: Any = private_compiler.optimized_module()
        if not any(_is_compiled(module, wrapper) for _, module in named) and not any(
            _is_compiled(module, wrapper) for module in models
        ):
            return named
        names = self._learn()
        inside: set[int] = set()
        roots = {id(_plain(root, wrapper)) for root in models}
        for root in models:
            for module in modules(root):
                if wrapper is not None and isinstance(module, wrapper):
                    inside.update(map(id, modules(module)))
                elif module.__dict__.get("_compiled_call_impl") is not None:
                    name = names.get(module)
                    if id(module) not in inside and name is not None:
                        self._in_place[module] = name
                    inside.update(map(id, modules(module)))
        if not inside:
            return named
        if not eager:
            return [(name, module) for name, module in named if id(module) not in inside]
        return [
            (known, module)
            for name, module in named
            if (known := names.get(module)) is not None and (".root." in name or id(module) not in roots)
        ]

    def _learn(self) -> IdentityMap[str]:
        """The names of all modules, made when they are needed: hardly ever."""
        wrapper: Any = private_compiler.optimized_module()
        unlearned, self._unlearned = self._unlearned, []
        for models, named in unlearned:
            for name, reference in named:
                module = reference()
                if module is not None and (wrapper is None or not isinstance(module, wrapper)):
                    self._names.setdefault(module, _without_wrappers(name))
            for index, reference in enumerate(models):
                root = reference()
                if root is not None:
                    lead = f"{index}." if len(models) > 1 else ""
                    plain = _plain(root, wrapper)
                    self._names.setdefault(plain, f"Module.{lead}root.{type(plain).__name__}")
        return self._names

    def attach(self) -> None:
        """Watch the compiled modules."""
        if not self._patched:
            wrapper = private_compiler.optimized_module()
            if wrapper is not None:
                self._patches.add(wrapper, "__call__", self._call)
                self._patched = True
        self._patches.attach()
        if not len(self._replaced):
            for module in self._in_place:
                original = module.__dict__.get("_compiled_call_impl")
                name = self._in_place.get(module)
                if original is not None and name is not None:
                    module.__dict__["_compiled_call_impl"] = _InPlace(self, name, weakref.ref(module), original)
                    self._replaced.add(module)

    def detach(self) -> None:
        """Leave them as they were."""
        self._patches.detach()
        replaced = list(self._replaced)
        self._replaced.clear()
        for module in replaced:
            call_impl = module.__dict__.get("_compiled_call_impl")
            if type(call_impl) is _InPlace and call_impl.modules is self:
                module.__dict__["_compiled_call_impl"] = call_impl.compiled

    # ------------------------------------------------------------ one pass

    def _call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(optimized: Any, *args: Any, **kwargs: Any) -> Any:
            return self.around(optimized, lambda: original(optimized, *args, **kwargs), args, kwargs)

        return __call__

    def around(self, module: nn.Module, call: Callable[[], Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call of ``module`` that has begun, as recorded if it is a compiled module."""
        named = attempt(self._named, module)
        if named is None:
            return call()
        name, plain = named
        return self.run(name, plain, call, args, kwargs)

    def _named(self, module: nn.Module) -> tuple[str, nn.Module] | None:
        """The name of a compiled module, and the module itself; None if it is none."""
        wrapper: Any = private_compiler.optimized_module()
        if wrapper is None or not isinstance(module, wrapper):
            return None
        plain = module._orig_mod
        return self._name_of(plain), plain

    def _name_of(self, module: nn.Module) -> str:
        return self._learn().get(module) or f"Module.compiled.{type(module).__name__}"

    def run(
        self,
        name: str,
        module: nn.Module,
        call: Callable[[], Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a compiled module and record its pass."""
        passes = attempt(self._enter, name, module, args, kwargs)
        if passes is None:
            return call()
        self._passes.depth += 1
        try:
            result = call()
        except BaseException as error:
            attempt(passes.leave, name, module, None, error)
            raise
        finally:
            self._passes.depth -= 1
        attempt(passes.leave, name, module, result)
        return result

    def _enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Passes | None:
        """A pass begins; who is notified of its end. None if it is not recorded."""
        session, passes = self.session, self._targets.passes
        if not session.recording or session.thread.muted or _is_traced():
            return None
        passes.enter(name, module, args, kwargs)
        if self._level in ("L0", "mix"):
            session.guard(self._watch_parameters, module)
        return passes

    def _watch_parameters(self, module: nn.Module) -> None:
        """The modules inside have no entries; the gradients of their parameters have, under the usual
        names.
        """
        if not self._backward or not self.session.is_dumping or not torch.is_grad_enabled():
            return
        for inner in modules(module):
            name = self._learn().get(inner)
            if name is not None and inner is not module:
                self.parameters.watch(name, inner)

    def watch_all_parameters(self) -> None:
        """A compiled function may run any of the models' modules: see the gradients of all their
        parameters.
        """
        if self._watched_all or not self._backward or not torch.is_grad_enabled():
            return
        if not self.session.is_dumping:
            return
        self._watched_all = True
        for model in self._models:
            for module in modules(model):
                name = self._learn().get(module)
                if name is not None:
                    self.parameters.watch(name, module)


def _plain(module: nn.Module, wrapper: Any) -> nn.Module:
    """The module itself, where ``torch.compile`` has wrapped it."""
    return getattr(module, "_orig_mod", module) if wrapper is not None and isinstance(module, wrapper) else module


def _is_compiled(module: nn.Module, wrapper: Any) -> bool:
    return "_compiled_call_impl" in module.__dict__ or (wrapper is not None and isinstance(module, wrapper))


def _without_wrappers(name: str) -> str:
    """``Module.{path}.{Class}`` without what ``torch.compile`` adds to the path."""
    parts = name.split(".")
    path = [part for part in parts[1:-1] if part != "_orig_mod"] or ["root"]
    return ".".join(["Module", *path, parts[-1]])


class _Passes(threading.local):
    def __init__(self) -> None:
        self.depth = 0


class _InPlace:
    """What a module that was compiled in place calls while recording."""

    __slots__ = ("compiled", "module", "modules", "name")

    def __init__(self, modules: CompiledModules, name: str, module: _Reference, compiled: Any) -> None:
        self.modules = modules
        self.name = name
        self.module = module
        self.compiled = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self.module()
        if module is None:
            return self.compiled(*args, **kwargs)
        return self.modules.run(self.name, module, lambda: self.compiled(*args, **kwargs), args, kwargs)
