"""The compiled side of recording modules: what the functions named here do, for the usual case.

Statistics of everything that goes in and comes out of modules whose arguments and results are plain tensors are
recorded without a step through Python (``_native_modules.h`` and its neighbours). All else - filters, whole tensors,
several arguments, results that are no tensors - is handed to the functions of :mod:`msprobe.capture.torch.modules`
and its neighbours, which work on the same objects; and where one of them is replaced, they do all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from msprobe.capture import native
from msprobe.capture.records import Describer
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStacks
from msprobe.capture.torch import (
    call_gradients,
    calls,
    gradients,
    module_gradients,
    parameter_gradients,
    pass_gradients,
    private,
)
from msprobe.capture.torch.statistics_framework import Quiet

if TYPE_CHECKING:
    from msprobe.capture.torch.modules import ModuleRecorder

_STANDS_FOR: tuple[tuple[Any, str], ...] = (
    (Describer, "describe"),
    (Session, "put"),
    (Session, "parent"),
    (Session, "number"),
    (Session, "next_order"),
    (CallStacks, "here"),
    (calls.CallRecorder, "outputs_of"),
    (calls.CallRecorder, "tensors_in"),
    (calls, "edge_of"),
    (call_gradients, "find_boundary"),
    (call_gradients.CallGradients, "put"),
    (gradients, "edge_of"),
    (gradients, "find_boundary"),
    (gradients.Gathering, "add"),
    (gradients.Gathering, "result"),
    (gradients.NodeHooks, "before"),
    (gradients.NodeHooks, "after"),
    (pass_gradients, "find_boundary"),
    (pass_gradients, "bases_of"),
    (module_gradients.ModuleGradients, "watch"),
    (parameter_gradients, "accumulating_node"),
    (parameter_gradients, "_node_through_view"),
    (parameter_gradients.ParameterGradients, "watch"),
    (parameter_gradients.ParameterGradients, "placeholder"),
    (parameter_gradients.ParameterGradients, "arrive"),
)
_USUAL = [getattr(holder, name) for holder, name in _STANDS_FOR]


def make_passes(recorder: ModuleRecorder, edge_of: Any, leave: Any, problem_of: Any) -> Any:
    """The compiled recorder of modules; None where there is none, or where it would not do what is asked.

    ``edge_of`` is what the recorder itself would ask for edges. ``leave(begun, result, problem)`` writes a pass that
    raised (``...``: that did not return), ``problem_of(handled)`` tells what was raised.
    """
    parameters, watched, recording = recorder.parameters, recorder.gradients, recorder.calls
    session, statistics = recorder.session, recording.statistics
    everything = recording.forward and recording.backward and recording.input and recording.output
    special = recording.saving or recording.overflow or recording.filter is not None or session.settings.buffers
    if not all(private.has(ability) for ability in ("recording", "gradients", "parameter gradients", "modules")):
        return None
    if native.Passes is None or not everything or special or not statistics.is_compiled():
        return None
    if edge_of is not gradients.edge_of:
        return None
    if any(getattr(holder, name) is not usual for (holder, name), usual in zip(_STANDS_FOR, _USUAL, strict=True)):
        return None
    passes = native.Passes(
        session=session,
        memo=statistics.compiled,
        hooks=recorder.hooks,
        open=watched.open,
        stacks=session.stacks,
        stacks_known=session.stacks.known,
        tensor=torch.Tensor,
        parameter=nn.Parameter,
        quiet=private.without_functions,
        function_modes=private.count_modes,
        dispatch_modes=private.count_dispatch_modes,
        grad_enabled=torch.is_grad_enabled,
        sequence_number=gradients.sequence_number,
        tracing=private.tracing_state,
        accumulating=gradients.AccumulateGrad,
        slices=gradients.CopySlices,
        strided=torch.strided,
        edge=gradients.ArgumentEdge,
        base=gradients.Base,
        inputs_of=recorder.inputs_of,
        edges_of=recorder.edges_of,
        outputs_of=recording.outputs_of,
        problem_of=problem_of,
        leave=leave,
        watch=watched.watch,
        share=_add_share,
        watch_parameter=parameters.watch_unusual,
        watch_parameters=parameters.watch,
        hook_on=parameters.hook_on,
        nothing=parameter_gradients.NOTHING,
        of_all_uses=pass_gradients.OF_ALL_USES,
        trees=parameters.trees,
        passes=parameters.passes,
        earlier=parameters.earlier,
        waiting=parameters.waiting,
        several=parameters.several,
        parameter_hooks=parameters.known,
        attached=parameters.attached,
    )
    recording.gradients.compiled = passes
    return passes


def _add_share(before: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
    """The sum of what has arrived, see :class:`msprobe.capture.torch.gradients.Gathering`."""
    with Quiet():
        # A copy: the engine may add to a gradient in place only while nobody else holds it.
        return gradient.detach().clone() if before is None else before + gradient
