"""Every pass through a module of the model: the inputs, the results and its parameters.

Hooks on modules report passes (``module_hooks``). What comes back has files of its own:
:mod:`msprobe.capture.torch.gradients.module_gradients` and :mod:`msprobe.capture.torch.gradients.parameter_gradients`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.stacks import CallStack
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import STOPPED, CallRecorder, TensorWriter
from msprobe.capture.torch.gradients.graph_nodes import ArgumentEdge, edge_of, sequence_number
from msprobe.capture.torch.gradients.module_gradients import FollowedPass, ModuleGradients
from msprobe.capture.torch.gradients.parameter_gradients import ParameterGradients
from msprobe.capture.torch.modules.user_modules import is_training, own_buffers, own_parameters
from msprobe.capture.units import PassWriter

_without_functions = private.without_functions
_is_traced = private.is_traced


class ModuleRecorder(TensorWriter, PassWriter):
    """Writes the records of passes."""

    recompute_last = True

    def __init__(self, calls: CallRecorder) -> None:
        super().__init__(calls.session, calls.describer, calls.statistics, calls.keeper, calls.hooks)
        self.calls = calls
        self.gradients = ModuleGradients(calls)
        self.parameters = ParameterGradients(calls)

    # ------------------------------------------------------------ forward

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module is about to run."""
        session = self.session
        if not session.recording or session.thread.muted or _is_traced():
            return
        with _without_functions():
            try:
                if self.calls.beginning is not None:
                    self.calls.beginning(True)
                self.begin_pass(name, module, args, kwargs)
            except Exception as error:
                session.fault(name, error)

    def leave(self, name: str, module: nn.Module, result: Any, error: BaseException | None = None) -> None:
        """The module has run, or raised ``error``."""
        if not self.is_running(module):
            return
        with _without_functions():
            try:
                self.end_passes(module, result, error)
            except Exception as error:
                self.session.fault(name, error)

    def new_pass(self, entry: str, backward: str, order: int, stack: CallStack, parent: Any) -> FollowedPass:
        return FollowedPass(entry, backward, order, stack, parent)

    def note_pass(self, unit: FollowedPass, args: Sequence[Any], kwargs: dict[str, Any], wanted: bool) -> None:
        if not torch.is_grad_enabled():
            return
        unit.watched = True
        if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
            unit.edges = [edge_of(args[0], "input.0")] if args[0].requires_grad else []
        else:
            unit.edges = self.edges_of(args, kwargs)
        unit.oldest = sequence_number()
        module = unit.module
        if module._parameters and (wanted or self.filter is not None):
            unit.parameters = (*module._parameters.values(),)
            self.parameters.watch(unit.name, module)

    def how_a_pass_failed(self, error: BaseException) -> dict[str, str]:
        if type(error).__name__ == STOPPED:
            return {"stopped": "recomputation ended inside this module"}
        return super().how_a_pass_failed(error)

    def state_of(self, module: nn.Module) -> dict[str, Any]:
        """See :class:`PassWriter`: that it is not training, and its buffers if they are wanted."""
        state: dict[str, Any] = {} if is_training(module) else {"training": False}
        if self.session.settings.buffers:
            describe = self.describer.describe
            state["buffers"] = {key: describe(value) for key, value in own_buffers(module)}
        return state

    def ran(self, unit: FollowedPass) -> None:
        if unit.module._parameters:
            self.parameters.placeholder(unit.name, unit.module)

    def watch(self, unit: FollowedPass, result: Any) -> None:
        module = unit.module
        if module._parameters and not _are_still(unit.parameters, module._parameters):
            self.parameters.watch(unit.name, module)
        self.gradients.watch(unit, result)

    def edges_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[ArgumentEdge]:
        """The gradient edges of the arguments that require grad."""
        return [edge_of(t, path) for path, t in self.tensors_in(args, kwargs) if t.requires_grad]

    def inputs_of(self, entry: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if self.saving and self.session.saves(entry):
            return self.kept_inputs(entry, args, kwargs)
        if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
            return [self.statistics.describe(args[0], False)], {}
        describe = self.describer.describe
        return [describe(v) for v in args], {k: describe(v) for k, v in kwargs.items()}

    def parameters_of(self, entry: str, module: nn.Module) -> dict[str, Any]:
        if not module._parameters:
            return {}
        if self.saving and self.session.saves(entry):
            keep = self.keep
            return {
                key: self.describer.describe_kept(value, f"{entry}.parameters.{key}", keep)
                for key, value in own_parameters(module)
            }
        parameters = [(key, value) for key, value in module._parameters.items() if value is not None]
        if self.session.settings.level == "L0":
            # Nobody sees there what a program writes to ``parameter.data``, which has a version of its own. On the CPU
            # the elements are looked at again.
            for _, value in parameters:
                if self.statistics.is_late(value):
                    self.statistics.invalidate(value)
        describe = self.statistics.describe
        return {key: describe(value) for key, value in parameters}

    def close_open(self) -> None:
        """Write the passes whose gradients did not all arrive."""
        self.gradients.close_open()

    def begin_step(self) -> None:
        """A new step: no gradient has arrived yet."""
        self.gradients.open.clear()
        self.parameters.begin_step()


def _are_still(before: Sequence[Any], now: Mapping[str, Any]) -> bool:
    """Whether these are the parameters that a module began with: it may put others in their place while it runs."""
    return len(before) == len(now) and all(map(operator.is_, before, now.values()))
