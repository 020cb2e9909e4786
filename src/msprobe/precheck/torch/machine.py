"""Runs one call on a device, with what an executor switches: results and all gradients, brought to the CPU."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any

import torch

from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.precheck.executors import Executor, Fault
from msprobe.precheck.standalone_side import accelerator
from msprobe.precheck.standalone_types import dtype_of
from msprobe.precheck.torch.inputs import Inputs, for_device, map_tree

_NUMBERS = itertools.count()
_LEAF_WRITTEN = "a leaf Variable that requires grad"
_BEST = ("npu", "cuda", "xpu", "mps")


@dataclass
class Outcome:
    """What a call gave: its results as a flat list, and the gradient of each tensor by its path."""

    outputs: list[Any] = field(default_factory=list)
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    backward_problem: str = ""


class Machine:
    """An executor, ready to run calls. Raises NotAvailableError where its device is not there."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.device = _device_of(executor)
        #: What the files call it: as it was asked for, with the device that was found.
        self.name = re.sub(r"^auto(:\d+)?", str(self.device), executor.text)
        self._plugin = _plugin_of(executor)
        if executor.text.startswith("inject:"):
            self.name = f"{self.device}+{executor.text}"
        if executor.python:
            self.name = f"{executor.text} (torch {torch.__version__})"

    def run(
        self, function: Callable[..., Any], inputs: Inputs, backward: bool, autocast: torch.dtype | None = None
    ) -> Outcome:
        """Run one call forward and, if asked, backward. What the call raises is raised."""
        dtype = dtype_of(self.executor.dtype) if self.executor.dtype else None
        prepared = self._moved(inputs, dtype)
        with self.switched(autocast):
            return run_call(self.wrapped(function), prepared, backward)

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

        args, kwargs = inputs.map(move)
        gradients = None
        if inputs.gradients is not None:
            gradients = [map_tree(one, "", move) for one in inputs.gradients]
        moved = Inputs(for_device(args, self.device), for_device(kwargs, self.device), gradients, inputs.wanted)
        return _faulty_inputs(moved, self.executor.fault)

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in the place of a function: itself, or with a fault, a plugin or compiled."""
        fault = self.executor.fault
        if self._plugin is not None:
            plugin = self._plugin
            return lambda *args, **kwargs: plugin(function, args, kwargs)
        made = _compiled(function) if self.executor.compiled else function
        if fault is None or fault.kind in ("tf32", "swap"):
            return made
        return lambda *args, **kwargs: _faulty_outputs(made(*args, **kwargs), fault)

    @contextlib.contextmanager
    def switched(self, autocast: torch.dtype | None = None) -> Iterator[None]:
        """What the executor switches is switched in this block."""
        plan = self.executor
        if plan.autocast is not None:
            autocast = dtype_of(plan.autocast)
        threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        with contextlib.ExitStack() as stack:
            if plan.threads is not None:
                torch.set_num_threads(plan.threads)
                stack.callback(torch.set_num_threads, threads)
            if plan.deterministic:
                torch.use_deterministic_algorithms(True, warn_only=True)
                stack.callback(torch.use_deterministic_algorithms, deterministic)
            if not plan.mkldnn:
                # Entering and leaving warn of switches for GPUs that are not touched.
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            if autocast is not None:
                stack.enter_context(torch.autocast(self.device.type, dtype=autocast))
            yield


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
    outputs = flat_outputs(result)
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
    outputs: list[Any], leaves: dict[str, torch.Tensor], recorded: list[Any], found: dict[str, torch.Tensor | None]
) -> str:
    """Gradients of all leaves through all results that have a recorded gradient; says why where there are none."""
    flat = flat_outputs(recorded)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, flat, strict=False)
        if isinstance(output, torch.Tensor) and output.requires_grad and isinstance(gradient, torch.Tensor)
    ]
    if not leaves:
        return "no argument of the record requires a gradient."
    if not pairs:
        return "no result with a recorded gradient depends on the arguments."
    for output, gradient in pairs:
        if output.shape != gradient.shape:
            return f"the recorded gradient has the shape {list(gradient.shape)}, the result {list(output.shape)}."
    results = torch.autograd.grad(
        [output for output, _ in pairs],
        list(leaves.values()),
        [gradient.to(dtype=output.dtype, device=output.device) for output, gradient in pairs],
        allow_unused=True,
    )
    found.update(zip(leaves, results, strict=True))
    return ""


def flat_outputs(result: Any) -> list[Any]:
    """The leaves of a result, in order."""
    if isinstance(result, (list, tuple)) and not isinstance(result, torch.Size):
        return [leaf for item in result for leaf in flat_outputs(item)]
    if isinstance(result, dict):
        return [leaf for item in result.values() for leaf in flat_outputs(item)]
    if is_dataclass(result) and not isinstance(result, type):
        return [leaf for one in fields(result) for leaf in flat_outputs(getattr(result, one.name))]
    return [result]


def _on_cpu(outcome: Outcome) -> Outcome:
    def home(value: Any) -> Any:
        return value.detach().to("cpu") if isinstance(value, torch.Tensor) else value

    outcome.outputs = [home(value) for value in outcome.outputs]
    outcome.gradients = {path: home(value) for path, value in outcome.gradients.items()}
    return outcome


def _faulty_inputs(inputs: Inputs, fault: Fault | None) -> Inputs:
    if fault is None:
        return inputs
    if fault.kind == "tf32":
        args, kwargs = inputs.map(lambda tensor, path: _truncated(tensor))
        return Inputs(args, kwargs, inputs.gradients, inputs.wanted)
    if fault.kind == "swap":
        places = [place for place, value in enumerate(inputs.args) if isinstance(value, torch.Tensor)]
        for first, second in pairwise(places):
            a, b = inputs.args[first], inputs.args[second]
            if a.shape == b.shape and a.dtype == b.dtype:
                inputs.args[first], inputs.args[second] = b, a
                break
    return inputs


def _truncated(tensor: torch.Tensor) -> torch.Tensor:
    """float32 values with 10 bits of mantissa."""
    if tensor.dtype is not torch.float32:
        return tensor
    return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _faulty_outputs(result: Any, fault: Fault) -> Any:
    if fault.kind == "abort":
        os.abort()
    if fault.kind == "hang":
        time.sleep(3600)
    done = False

    def spoil(tensor: torch.Tensor, path: str) -> torch.Tensor:
        nonlocal done
        if not tensor.is_floating_point() or tensor.numel() == 0:
            return tensor
        if fault.kind == "scale":
            return tensor * (1 + fault.amount)
        if done:
            return tensor
        done = True
        spoiled = tensor.clone(memory_format=torch.contiguous_format)
        with torch.no_grad():
            flat = spoiled.view(-1)
            if fault.kind == "drop-tail":
                flat[flat.numel() - max(1, flat.numel() // 16) :] = 0
            else:
                flat[fault.place % flat.numel()] = float(fault.kind)
        return spoiled

    return map_tree(result, "", spoil)


def _device_of(executor: Executor) -> torch.device:
    kind, _, number = executor.device.partition(":")
    with contextlib.suppress(ImportError):
        importlib.import_module("torch_npu")
    if kind == "auto":
        kind = next((one for one in _BEST if _is_there(one)), "") or accelerator()
        if kind == "cpu":
            return torch.device("cpu")
    if not _is_there(kind):
        of = f" of {executor.text!r}" if executor.text != executor.device else ""
        raise NotAvailableError(f"the device {executor.device!r}{of} is not available here.")
    device = torch.device(f"{kind}:{number}" if number and kind != "cpu" else kind)
    if kind in ("cuda", "npu", "xpu"):
        module = getattr(torch, kind)
        if number and int(number) >= module.device_count():
            raise NotAvailableError(f"there is no device {device}: {kind} has {module.device_count()} of them.")
        module.set_device(device)
    return device


def _is_there(kind: str) -> bool:
    if kind == "cpu":
        return True
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return bool(module is not None and module.is_available())


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as ``torch.compile`` makes it for the very arguments of one call."""
    # All that was compiled before is forgotten: behind a few variants of one function the compiler would run it as it
    # is, and what is judged would not be compiled code.
    torch.compiler.reset()
    # A function of our own around it: the compiler takes no builtin.
    around = with_own_code(lambda *args, **kwargs: function(*args, **kwargs))
    return torch.compile(around, fullgraph=True, dynamic=False)


def with_own_code(function: Any) -> Callable[..., Any]:
    """A function of ours for the compiler, given back with code that no other one has and that is in no file of ours.

    Of one code it keeps a few variants, and runs what comes behind these as it is; and a recorder has it leave our
    files alone.
    """
    function.__code__ = function.__code__.replace(co_filename=f"<checked {next(_NUMBERS)}>")
    made: Callable[..., Any] = function
    return made


def _plugin_of(executor: Executor) -> Callable[..., Any] | None:
    if executor.plugin is None:
        return None
    module, name = executor.plugin
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise InvalidInputError(f"--candidate {executor.text!r} cannot be imported: {problem}.") from None
    if not callable(found):
        raise InvalidInputError(f"--candidate {executor.text!r} is no function.")
    return found  # type: ignore[no-any-return]
