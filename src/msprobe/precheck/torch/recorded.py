"""``--candidate recorded``: nothing is run on the candidate's side; what is judged is what the training itself got."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.precheck.arguments import ArgumentTensor
from msprobe.precheck.executors import RECORDED
from msprobe.precheck.requests import ApiCall, Requests, flat
from msprobe.precheck.side.trees import leaves_of
from msprobe.precheck.side.words import Executor
from msprobe.precheck.torch.given import casts_of
from msprobe.precheck.torch.inputs import InputMaker, Inputs
from msprobe.precheck.torch.machine import Machine, Outcome, copy_with_strides

#: By how much a result must be nearer to the recorded one to be taken for the same computation.
_NEARER = 4.0
#: One in so many results is taken for the nearest.
_NEAREST = 20
#: Results in single precision are not further apart than this share, those of half types are.
_SINGLE = 2.0**-16


@dataclass
class RecordedOutcome(Outcome):
    """Results of a record, and its gradients: those of which it says whose they are, by argument; without any, all of
    the last node of the graph, which does not say it.
    """

    placed: dict[str, torch.Tensor] = field(default_factory=dict)
    unplaced: list[torch.Tensor] = field(default_factory=list)

    def place_alike(self, inputs: Inputs) -> None:
        """Say of the gradients whose they are where there is no other of the call to be compared with: those of which
        the record says it, and one that alone has the shape of the only argument that a gradient is wanted of.
        """
        self.gradients.update(self.placed)
        alone = [path for path in inputs.wanted if path not in self.gradients]
        shapes = dict(zip(inputs.paths(), (tuple(tensor.shape) for tensor in inputs.tensors()), strict=True))
        if len(alone) == 1:
            fitting = [tensor for tensor in self.unplaced if tuple(tensor.shape) == shapes[alone[0]]]
            if len(fitting) == 1:
                self.gradients[alone[0]] = fitting[0]


class RecordedResults:
    """Stands where a :class:`msprobe.precheck.torch.machine.Machine` does. ``take`` says which call comes next.

    Raises NotAvailableError if the dump has no values.
    """

    name = RECORDED
    device = torch.device("cpu")

    def __init__(self, executor: Executor, requests: Requests | None, maker: InputMaker | None) -> None:
        if requests is None or maker is None or not requests.has_values:
            raise NotAvailableError(said("recorded-results-needed", RECORDED))
        self.executor = executor
        self._requests = requests
        self._maker = maker
        self._call: ApiCall | None = None

    def has_none_of_its_own(self, call: ApiCall, function: Callable[..., Any], inputs: Inputs) -> bool:
        """True if the gradient that the dump has of a call is that of the call before."""
        return self._requests.is_of_the_call_before(call.key) or gives_back(function, inputs)

    def take(self, call: ApiCall) -> None:
        """The next results are those of this call."""
        self._call = call

    def run(
        self, function: Callable[..., Any], inputs: Inputs, backward: bool, autocast: torch.dtype | None = None
    ) -> Outcome:
        """What was recorded."""
        call = self._call
        assert call is not None
        outcome = RecordedOutcome(leaves_of(self._maker.values(call, call.outputs)))
        if backward:
            named = self._requests.gradients_by_argument(call.key)
            values = self._maker.values(call, tuple(named.values()))
            pairs = zip(named, values, strict=True)
            outcome.placed = {path: gradient for path, gradient in pairs if isinstance(gradient, torch.Tensor)}
            # What the last node of the graph gave is the call's own only where it is all of it.
            whose = self._requests.says_whose_gradients(call.key)
            arrived = () if whose else self._requests.gradients_of_arguments(call.key)
            leaves = leaves_of(self._maker.values(call, arrived))
            outcome.unplaced = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return outcome


def gives_back(function: Callable[..., Any], inputs: Inputs) -> bool:
    """True for a call all of whose results are arguments, untouched: it has no node in the graph, so what a dump has as
    its gradient is that of the call before. Recorders that do not say so in the record wrote it, too.
    """
    args, kwargs = inputs.map(lambda tensor, path: copy_with_strides(tensor.detach()))
    given = [(tensor, tensor._version) for tensor in Inputs(args, kwargs).tensors()]
    try:
        with torch.no_grad():
            results = leaves_of(function(*args, **kwargs))
    except Exception:  # what it raises is said where it is checked
        return False
    return bool(results) and all(
        any(result is tensor and result._version == version for tensor, version in given) for result in results
    )


def autocast_of_record(
    machine: Machine, function: Callable[..., Any], inputs: Inputs, recorded: Outcome
) -> torch.dtype | None:
    """The half type in which a recorded call was autocast, where its types do not say it: some calls round their
    arguments inside and give single precision back. Its results are then far from those without autocast, and by far
    nearer to those with it. None for none.
    """
    if {tensor.dtype for tensor in inputs.tensors() if tensor.is_floating_point()} != {torch.float32}:
        return None
    alone = Inputs(inputs.args, inputs.kwargs)
    plain = _apart(machine, function, alone, recorded, None)
    if not any(_SINGLE < distance < math.inf for distance in plain):
        return None
    for autocast in (torch.bfloat16, torch.float16):
        if casts_of(machine, function, inputs, autocast):
            near = _apart(machine, function, alone, recorded, autocast)
            if any(
                _SINGLE < distance < math.inf and other * _NEARER < distance
                for distance, other in zip(plain, near, strict=True)
            ):
                return autocast
    return None


def _apart(
    machine: Machine, function: Callable[..., Any], inputs: Inputs, recorded: Outcome, autocast: torch.dtype | None
) -> tuple[float, float]:
    """How far the results of a call are from the recorded ones, as a share of the sizes of these: all of them, and
    those that are nearest, which no dropout inside of the call has changed. Infinite where they have other shapes or it
    cannot run.
    """
    try:
        outcome = machine.run(function, inputs, False, autocast)
    except Exception:
        return math.inf, math.inf
    apart, sizes = [], []
    for output, other in zip(outcome.outputs, recorded.outputs, strict=False):
        if isinstance(output, torch.Tensor) and isinstance(other, torch.Tensor) and other.is_floating_point():
            if output.shape != other.shape:
                return math.inf, math.inf
            distances, size = (output.double() - other.double()).abs().flatten(), other.double().abs().flatten()
            known = distances.isfinite() & size.isfinite()
            apart.append(distances[known])
            sizes.append(size[known])
    if not sum(map(len, apart)):
        return 0.0, 0.0
    every, typical = torch.cat(apart), float(torch.cat(sizes).mean()) or 1.0
    nearest = float(every.kthvalue(len(every) // _NEAREST + 1).values)
    return float(every.mean()) / typical, nearest / typical


def place_gradients(outcome: Outcome, bench: Outcome) -> None:
    """Say of each recorded gradient whose it is. Where its record does not: of those that the reference has with its
    shape, or with that of its transpose (the graph has the gradient of ``weight.t()``), the nearest. What has no
    partner is not judged.
    """
    assert isinstance(outcome, RecordedOutcome)
    free = {path: gradient for path, gradient in bench.gradients.items() if gradient is not None}
    outcome.gradients.update({path: gradient for path, gradient in outcome.placed.items() if path in free})
    for gradient in outcome.unplaced:
        fitting = [
            (path, form)
            for path, form_wanted in free.items()
            for form in _forms(gradient)
            if form.shape == form_wanted.shape
        ]
        if fitting:
            path, form = min(fitting, key=lambda pair: _distance(pair[1], free[pair[0]]))
            outcome.gradients[path] = form
            del free[path]
    for path in [path for path in bench.gradients if path not in outcome.gradients]:
        del bench.gradients[path]
    if not outcome.gradients and not bench.backward_problem:
        bench.backward_problem = said("no-gradient-fits")


def _forms(gradient: torch.Tensor) -> list[torch.Tensor]:
    return [gradient, gradient.t()] if gradient.dim() == 2 else [gradient]


def _distance(first: torch.Tensor, other: torch.Tensor) -> float:
    wide = torch.complex128 if first.is_complex() or other.is_complex() else torch.float64
    apart = (first.to(wide) - other.to(wide)).abs()
    return float(apart[apart.isfinite()].sum())


def unknown_gradients(call: ApiCall) -> str:
    """Why recorded gradients cannot be judged by the inputs; empty if they can: the values of all that came in are
    there, one for each result of floats.
    """
    given = [info for info in flat(call.gradients or ()) if isinstance(info, ArgumentTensor)]
    results = [info for info in flat(call.outputs) if isinstance(info, ArgumentTensor)]
    floats = [info for info in results if info.dtype.startswith(("float", "bfloat", "complex"))]
    if any(info.file is None and info.numel for info in given):
        return said("gradient-values-missing")
    if len(results) > 1 and len(list(flat(call.gradients or ()))) not in (len(floats), len(results)):
        return said("gradient-result-unknown")
    return ""


def other_shapes(call: ApiCall, bench: Outcome) -> str:
    """Why a pass of a module is another computation than was recorded; empty if nothing says."""
    if call.exact:
        return ""
    recorded = [info.shape for info in flat(call.outputs) if isinstance(info, ArgumentTensor)]
    given = [tuple(output.shape) for output in bench.outputs if isinstance(output, torch.Tensor)]
    if not recorded or len(recorded) > len(given) or recorded == given[: len(recorded)]:
        return ""
    return said("module-made-differently", given[: len(recorded)], recorded)
