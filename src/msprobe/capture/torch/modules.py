"""Every pass through a module of the model: what goes in, what comes out, and its parameters.

Hooks on modules tell of passes (:mod:`msprobe.capture.torch.module_hooks`). What comes back has files of its own:
:mod:`msprobe.capture.torch.module_gradients` and :mod:`msprobe.capture.torch.parameter_gradients`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from msprobe.capture.torch import private
from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.gradients import ArgumentEdge, edge_of, sequence_number
from msprobe.capture.torch.module_gradients import ModuleGradients, ModulePass
from msprobe.capture.torch.parameter_gradients import ParameterGradients

_quiet = private.without_functions
# While torch.jit traces, sizes are tensors and what we do would become part of the trace.
_tracing = private.tracing_state


NOT_RETURNED = {"error": "the pass did not return"}


class ModuleRecorder:
    """Writes the records of passes."""

    def __init__(self, calls: CallRecorder) -> None:
        self.calls = calls
        self.session = calls.session
        self.hooks = calls.hooks
        self.gradients = ModuleGradients(calls)
        self.parameters = ParameterGradients(calls)

    # ------------------------------------------------------------ forward

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], above: int = 0) -> None:
        """The module is about to run. ``above``: how many frames of ours lie between this and the hook."""
        session = self.session
        if not session.recording or session.thread.muted or _tracing() is not None:
            return
        with _quiet():
            try:
                self._enter(name, module, args, kwargs, above)
            except Exception as error:
                session.fault(name, error)

    def _enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], above: int) -> None:
        session, calls = self.session, self.calls
        number = session.number(name)
        entry = f"{name}.forward.{number}"
        wanted = calls.filter is None or calls.filter.enter_module(entry)
        recorded = wanted and calls.forward
        stack = session.stacks.here(4 + above)
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
    error = None if result is not None else sys.exc_info()[1]
    if error is None or id(error) == begun.handled:
        return {}
    kind = type(error).__name__
    if kind == "_StopRecomputationError":
        return {"stopped": "recomputation ended inside this module"}
    return {"error": f"{kind}: {error}"[:2000]}
