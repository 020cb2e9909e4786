"""Runs one call on a device, with what an executor switches: results and all gradients, brought to the CPU."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import said
from msprobe.precheck.side.machine import NotHereError, Side
from msprobe.precheck.side.trees import leaves_of, map_tree
from msprobe.precheck.side.words import Executor
from msprobe.precheck.torch.inputs import Inputs, for_device

_LEAF_WRITTEN = "a leaf Variable that requires grad"


@dataclass
class Outcome:
    """What a call gave: its results as a flat list, and the gradient of each tensor by its path."""

    outputs: list[Any] = field(default_factory=list)
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    backward_problem: str = ""


class Machine(Side):
    """An executor, ready to run calls. Raises NotAvailableError where its device is not there."""

    def __init__(self, executor: Executor) -> None:
        try:
            super().__init__(executor)
        except NotHereError as problem:
            raise NotAvailableError(said("device-problem", problem)) from None
        except ValueError as problem:
            raise InvalidInputError(said("candidate-problem", problem)) from None
        self.executor = executor
        if executor.python:
            self.name = f"{executor.text} (torch {torch.__version__})"

    def run(
        self, function: Callable[..., Any], inputs: Inputs, backward: bool, autocast: torch.dtype | None = None
    ) -> Outcome:
        """Run one call forward and, if asked, backward. What the call raises is raised."""
        prepared = self._moved(inputs, self.dtype)
        with self.switched(autocast):
            return run_call(self.calling(function), prepared, backward)

    def _moved(self, inputs: Inputs, dtype: torch.dtype | None) -> Inputs:
        if self.device.type == "cpu" and dtype is None and self.executor.fault is None:
            return Inputs(
                for_device(inputs.args, self.device),
                for_device(inputs.kwargs, self.device),
                inputs.gradients,
                inputs.wanted,
            )

        def move(tensor: torch.Tensor, path: str) -> torch.Tensor:
            wide = dtype if tensor.is_floating_point() else None
            return copy_with_strides(tensor, self.device, wide)

        args, kwargs = inputs.map(lambda tensor, path: self.given(move(tensor, path)))
        gradients = None
        if inputs.gradients is not None:
            gradients = [map_tree(gradient, "", move) for gradient in inputs.gradients]
        args = self.arranged(for_device(args, self.device))
        return Inputs(args, for_device(kwargs, self.device), gradients, inputs.wanted)


#: The reference, and the control that nothing else was asked for.
def cpu() -> Machine:
    """The CPU as it is."""
    return Machine(Executor("cpu", "cpu"))


def run_call(function: Callable[..., Any], inputs: Inputs, backward: bool) -> Outcome:
    """Run a call where its arguments are. In-place calls get copies of leaves, so that gradients reach them."""
    try:
        return _run(function, inputs, backward, copy=False)
    except RuntimeError as problem:
        if _LEAF_WRITTEN not in str(problem) and "leaf" not in str(problem):
            raise
        return _run(function, inputs, backward, copy=True)


def _run(function: Callable[..., Any], inputs: Inputs, backward: bool, copy: bool) -> Outcome:
    leaves: dict[str, torch.Tensor] = {}
    wanted = frozenset(inputs.wanted) if backward else frozenset()

    def leaf(tensor: torch.Tensor, path: str) -> torch.Tensor:
        tensor = tensor.detach()
        if path not in wanted or not (tensor.is_floating_point() or tensor.is_complex()):
            return copy_with_strides(tensor)
        tensor = leaves[path] = copy_with_strides(tensor).requires_grad_()
        return tensor.clone() if copy else tensor

    with warnings.catch_warnings(), torch.set_grad_enabled(backward):
        warnings.simplefilter("ignore")
        args, kwargs = inputs.map(leaf)
        result = function(*args, **kwargs)
        if result is None and args and isinstance(args[0], torch.Tensor):
            result = args[0]  # what is written in place, as by __setitem__
    outputs = leaves_of(result)
    outcome = Outcome(outputs)
    if backward and inputs.gradients is not None:
        outcome.backward_problem = _differentiate(outputs, leaves, inputs.gradients, outcome.gradients)
    return _on_cpu(outcome)


def copy_with_strides(
    tensor: torch.Tensor, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A copy with the same strides, also where those leave gaps or expand: ``clone`` packs such a tensor. Where its
    elements overlap in another way it is packed here, too.
    """
    copy = tensor.to(device=device or tensor.device, dtype=dtype or tensor.dtype, copy=True)
    if tensor.layout is not torch.strided or copy.stride() == tensor.stride() or not tensor.numel():
        return copy
    lengths = [1 if step == 0 else length for step, length in zip(tensor.stride(), tensor.shape, strict=True)]
    with contextlib.suppress(RuntimeError):
        same = torch.empty_strided(lengths, tensor.stride(), dtype=copy.dtype, device=copy.device)
        same.copy_(copy[tuple(slice(0, length) for length in lengths)])
        return same.expand(tensor.shape)
    return copy


def _differentiate(
    outputs: list[Any], leaves: dict[str, torch.Tensor], recorded: list[Any], gradients: dict[str, torch.Tensor | None]
) -> str:
    """Gradients of all leaves through all results that have a recorded gradient; says why where there are none."""
    flat = leaves_of(recorded)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, flat, strict=False)
        if isinstance(output, torch.Tensor) and output.requires_grad and isinstance(gradient, torch.Tensor)
    ]
    if not leaves:
        return said("record-requires-no-gradient")
    if not pairs:
        return said("results-independent")
    for output, gradient in pairs:
        if output.shape != gradient.shape:
            return said("recorded-gradient-shape", list(gradient.shape), list(output.shape))
    results = torch.autograd.grad(
        [output for output, _ in pairs],
        list(leaves.values()),
        [gradient.to(dtype=output.dtype, device=output.device) for output, gradient in pairs],
        allow_unused=True,
    )
    gradients.update(zip(leaves, results, strict=True))
    return ""


def _on_cpu(outcome: Outcome) -> Outcome:
    def home(value: Any) -> Any:
        return value.detach().to("cpu") if isinstance(value, torch.Tensor) else value

    outcome.outputs = [home(value) for value in outcome.outputs]
    outcome.gradients = {path: home(value) for path, value in outcome.gradients.items()}
    return outcome
