"""Every pass through a module of the model: what goes in, what comes out, and its parameters.

Modules are watched through forward hooks of their own. What comes back through them has files of its own:
:mod:`msprobe.capture.torch.module_gradients` and :mod:`msprobe.capture.torch.parameter_gradients`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from msprobe.capture import native
from msprobe.capture.torch import private
from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.compiled_passes import make_passes
from msprobe.capture.torch.gradients import ArgumentEdge, edge_of, sequence_number
from msprobe.capture.torch.module_gradients import ModuleGradients, ModulePass
from msprobe.capture.torch.parameter_gradients import ParameterGradients
from msprobe.capture.user_hooks import PassHook

_quiet = private.without_functions
# While torch.jit traces, sizes are tensors and what we do would become part of the trace.
_tracing = private.tracing_state


NOT_RETURNED = {"error": "the pass did not return"}


class ModuleRecorder:
    """Hooks the modules of a model between start and stop."""

    def __init__(self, calls: CallRecorder) -> None:
        self.calls = calls
        self.session = calls.session
        self.hooks = calls.hooks
        self.names: dict[int, str] = {}
        # The hooks on modules, and those on modules that have methods of their own to add hooks.
        self._placed: list[_Placed] = []
        # Those of the last models by the module's identity, to be put in place again in the next step.
        self._known: dict[int, _Placed] = {}
        self._handles: list[Any] = []
        # Under which our hooks stand in the dictionaries of modules.
        self._keys = (RemovableHandle(OrderedDict()).id, RemovableHandle(OrderedDict()).id)
        self._placed_are_off = False
        # Hooks that are not in place now: (dictionary of the module, key, value).
        self._paused: list[tuple[Any, int, Any]] = []
        self._modules: list[nn.Module] = []
        self._last_models: set[int] = set()
        self.gradients = ModuleGradients(calls)
        self.parameters = ParameterGradients(calls)
        self._passes = make_passes(self, edge_of, self._leave_unusual, _problem_of)
        if self._passes is not None:
            self.parameters.passes_of = self._passes
            # The methods below, without a step through Python.
            self.enter = self._passes.enter  # type: ignore[method-assign]
            self.leave = self._passes.leave  # type: ignore[method-assign]

    # ------------------------------------------------------------ hooks

    def watch(self, named: Sequence[tuple[str, nn.Module]]) -> None:
        """Put hooks on these modules, each under the name that its entries carry: ``Module.{path}.{Class}``."""
        models = {id(module) for _, module in named}
        if models != self._last_models:
            self.forget()
            self._last_models = models
        self.watch_more(named)

    def watch_more(self, named: Sequence[tuple[str, nn.Module]]) -> None:
        """As :meth:`watch`, for modules that join those that are watched already."""
        for name, module in named:
            if id(module) in self.names:
                continue
            try:
                placed = self._place_for(name, module)
                if placed is not None:
                    placed.put()
                    self._placed.append(placed)
                else:
                    self._handles += watch_passes(self, name, module)
            except Exception as error:
                self.session.fault(name, error)
                continue
            self.names[id(module)] = name
            self._modules.append(module)

    def _place_for(self, name: str, module: nn.Module) -> _Placed | None:
        """The hooks for this module; None if it has methods of its own to add some."""
        known = self._known.get(id(module))
        if known is not None and known.module is module and known.name == name:
            return known
        if not _has_usual_hooks(module):
            return None
        before: Any = _Before(self, name)
        after: Any = _After(self, name)
        if self._passes is not None:
            before = native.ModuleHook(self._passes, name, False, _Before)
            after = native.ModuleHook(self._passes, name, True, _After)
        placed = self._known[id(module)] = _Placed(name, module, self._keys, before, after)
        return placed

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

    def forget(self) -> None:
        """Let go of the modules and parameters of the last models."""
        self._known.clear()
        self._last_models = set()
        self.parameters.forget()

    # ------------------------------------------------------------ forward

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module is about to run."""
        session = self.session
        if not session.recording or session.thread.muted or _tracing() is not None:
            return
        with _quiet():
            try:
                self._enter(name, module, args, kwargs)
            except Exception as error:
                session.fault(name, error)

    def _enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        session, calls = self.session, self.calls
        number = session.number(name)
        entry = f"{name}.forward.{number}"
        wanted = calls.filter is None or calls.filter.enter_module(entry)
        recorded = wanted and calls.forward
        stack = session.stacks.here(4)
        running = session.thread.modules
        while running and isinstance(running[-1], ModulePass) and running[-1].stack.depth >= stack.depth:
            # It was left by an interrupt or the like, which torch tells no hook of.
            self._leave(cast("ModulePass", running.pop()), None, NOT_RETURNED)
        begun = ModulePass(name, entry, number, session.next_order(), stack, session.parent(), module)
        running.append(begun)
        begun.recorded = recorded
        begun.handled = id(sys.exc_info()[1])
        if recorded and calls.input:
            begun.inputs, begun.kwinputs = self.inputs_of(entry, args, kwargs)
        begun.watched = calls.backward and torch.is_grad_enabled()
        if begun.watched:
            if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
                begun.edges = [edge_of(args[0], "input.0")] if args[0].requires_grad else []
            else:
                begun.edges = self.edges_of(args, kwargs)
            begun.oldest = sequence_number()
            if module._parameters and (wanted or calls.filter is not None):
                begun.parameters = dict(module._parameters)
                self.parameters.watch(name, module)

    def leave(self, name: str, module: nn.Module, result: Any) -> None:
        """The module has run, or raised."""
        session = self.session
        running = session.thread.modules
        if not running or (running[-1].module is not module and all(r.module is not module for r in running)):
            return  # its beginning was not recorded
        with _quiet():
            try:
                while True:
                    done = running.pop()
                    if done.module is module:
                        if isinstance(done, ModulePass):
                            self._leave(done, result, _problem(done, result))
                        break
                    if isinstance(done, ModulePass):
                        self._leave(done, None, NOT_RETURNED)
            except Exception as error:
                session.fault(name, error)

    def _leave_unusual(self, begun: ModulePass, result: Any, problem: Any) -> None:
        self._leave(begun, result, NOT_RETURNED if problem is ... else problem)

    def _leave(self, begun: ModulePass, result: Any, problem: dict[str, str]) -> None:
        session, calls = self.session, self.calls
        entry, module = begun.entry, begun.module
        if begun.recorded:
            tree: dict[str, Any] = {}
            if calls.input:
                tree["input_args"] = begun.inputs
                tree["input_kwargs"] = begun.kwinputs
            if calls.output:
                tree["output"] = [None] if problem else calls.outputs_of(entry, result)
            tree["parameters"] = self.parameters_of(entry, module) if module._parameters else {}
            tree["is_recompute"] = begun.stack.recompute
            tree.update(problem)
            if not module.training:
                tree["training"] = False
            if session.settings.buffers:
                tree["buffers"] = {
                    key: calls.describer.describe(value) for key, value in module.named_buffers(recurse=False)
                }
            tree["msprobe"] = {"order": begun.order}
            if begun.stack.source:
                tree["msprobe"]["source"] = begun.stack.source
            if not calls.overflow or calls.keeper.overflowed(entry, tree):
                session.put(entry, tree, begun.stack, begun.parent)
            if begun.number == 0 and module._parameters and calls.backward and not calls.overflow:
                self.parameters.placeholder(begun.name, module)
        if calls.filter is not None:
            calls.filter.leave_module(entry)
        if begun.watched and not problem:
            if module._parameters and not _are_still(begun.parameters, module._parameters):
                self.parameters.watch(begun.name, module)
            self.gradients.watch(begun, result)

    def edges_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[ArgumentEdge]:
        """The gradient edges of the arguments that require grad."""
        return [edge_of(t, path) for path, t in self.calls.tensors_in(args, kwargs) if t.requires_grad]

    def inputs_of(self, entry: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments as the record has them: those by position, those by keyword."""
        calls = self.calls
        if calls.saving and self.session.saves(entry):
            return calls.kept_inputs(entry, args, kwargs)
        describe = calls.describer.describe
        if len(args) == 1 and not kwargs:
            return [describe(args[0])], {}
        return [describe(v) for v in args], {k: describe(v) for k, v in kwargs.items()}

    def parameters_of(self, entry: str, module: nn.Module) -> dict[str, Any]:
        """The module's own parameters as the record has them."""
        calls = self.calls
        if calls.saving and self.session.saves(entry):
            keep = calls.keeper.keep
            return {
                key: calls.describer.describe_kept(value, f"{entry}.parameters.{key}", keep)
                for key, value in module.named_parameters(recurse=False)
            }
        describe = calls.statistics.describe
        return {key: describe(value) for key, value in module._parameters.items() if value is not None}

    def close_open(self) -> None:
        """Write the passes whose gradients did not all arrive."""
        self.gradients.close_open()

    def begin_step(self) -> None:
        """A new step: no gradient has arrived yet."""
        self.gradients.open.clear()
        self.parameters.begin_step()


def _are_still(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    """Whether these are the parameters that a module began with: it may put others in their place while it runs."""
    before = before or {}
    return len(before) == len(now) and all(a is b for a, b in zip(before.values(), now.values(), strict=True))


def _problem(begun: ModulePass, result: Any) -> dict[str, str]:
    """What to say of a pass that raised; nothing of one that returned."""
    return {} if result is not None else _problem_of(begun.handled)


def _problem_of(handled: int) -> dict[str, str]:
    """What was raised since the exception of this identity was the one that is handled."""
    error = sys.exc_info()[1]
    if error is None or id(error) == handled:
        return {}
    kind = type(error).__name__
    if kind == "_StopRecomputationError":
        return {"stopped": "recomputation ended inside this module"}
    return {"error": f"{kind}: {error}"[:2000]}


class Passes(Protocol):
    """Whoever wants to know of a module's passes."""

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module is about to run."""

    def leave(self, name: str, module: nn.Module, result: Any) -> None:
        """The module has run, or raised."""


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
    return (
        kind.register_forward_pre_hook is nn.Module.register_forward_pre_hook
        and kind.register_forward_hook is nn.Module.register_forward_hook
        and module.__dict__.keys() >= _HOOK_DICTIONARIES
    )


class _Placed:
    """The two hooks on one module, as :func:`watch_passes` adds them, but without a handle for each: that takes a
    fifth of the time, and it is taken for every module in every step.
    """

    __slots__ = ("after", "before", "keys", "module", "name")

    def __init__(self, name: str, module: nn.Module, keys: tuple[int, int], before: Any, after: Any) -> None:
        self.name = name
        self.module = module
        self.keys = keys
        self.before = before
        self.after = after

    def put(self) -> None:
        module, (before, after) = self.module, self.keys
        if native.place is not None:
            native.place(module, before, after, self.before, self.after)
            return
        module._forward_pre_hooks[before] = self.before
        module._forward_pre_hooks_with_kwargs[before] = True
        module._forward_hooks[after] = self.after
        module._forward_hooks_with_kwargs[after] = True
        module._forward_hooks_always_called[after] = True

    def take_off(self) -> None:
        module, (before, after) = self.module, self.keys
        if native.place is not None:
            native.place(module, before, after)
            return
        module._forward_pre_hooks.pop(before, None)
        module._forward_pre_hooks_with_kwargs.pop(before, None)
        module._forward_hooks.pop(after, None)
        module._forward_hooks_with_kwargs.pop(after, None)
        module._forward_hooks_always_called.pop(after, None)


class _Before(PassHook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        # Without keywords: another hook called `stop()` in this very pass, and torch forgot that we want them.
        if self.passes is not None:
            self.passes.enter(self.name, module, args, kwargs or {})


class _After(PassHook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, *keywords_and_result: Any) -> None:
        if self.passes is not None:
            self.passes.leave(self.name, module, keywords_and_result[-1])
