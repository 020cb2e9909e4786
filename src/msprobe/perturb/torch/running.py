"""Makes calls of PyTorch again under the state in which they were made, and differentiates them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import msprobe
from msprobe.capture.torch.precision import AUTOCAST_DEVICES, autocast_of
from msprobe.messages import said
from msprobe.perturb.framework import Invocation
from msprobe.perturb.thresholds import is_low
from msprobe.perturb.torch import copies
from msprobe.perturb.trees import LeafPath, leaves, mapped

_TORCH = os.path.dirname(torch.__file__)
_OPTIMIZERS = os.path.join(_TORCH, "optim", "")
# What stands between a call of torch and who hears of it.
_WRAPPERS = (
    os.path.join(os.path.dirname(msprobe.__file__), ""),
    *(os.path.join(_TORCH, name) for name in ("_tensor.py", "overrides.py", "utils", "_compile.py")),
    contextlib.__file__,
)
_GENERATOR_DEVICES = ("cuda", "npu", "xpu")


@functools.cache
def _autocast_devices() -> tuple[str, ...]:
    """Those that this torch knows."""
    known = []
    for device in AUTOCAST_DEVICES:
        with contextlib.suppress(Exception):
            autocast_of(device)
            known.append(device)
    return tuple(known)


@dataclass(frozen=True)
class Moment:
    """What was the state before a call: of random generators, and the types that autocast computes in by device."""

    generators: tuple[tuple[torch.Generator, torch.Tensor], ...]
    autocast: tuple[tuple[str, torch.dtype], ...]

    @classmethod
    def now(cls) -> Moment:
        """The state as it is."""
        generators = [torch.default_generator]
        for name in _GENERATOR_DEVICES:
            device = getattr(torch, name, None)
            if device is not None and device.is_initialized():
                generators += device.default_generators
        types = ((device, autocast_of(device)) for device in _autocast_devices())
        return cls(
            tuple((generator, generator.get_state()) for generator in generators),
            tuple((device, dtype) for device, dtype in types if dtype is not None),
        )

    @property
    def precision(self) -> str:
        """The type that autocast computes in; empty where it is off."""
        return str(self.autocast[0][1]).removeprefix("torch.") if self.autocast else ""

    @contextlib.contextmanager
    def entered(self, widened: bool) -> Iterator[None]:
        """This state; ``widened``: without autocast. Generators are left as the call leaves them: whoever makes calls
        again puts them back.
        """
        for generator, state in self.generators:
            generator.set_state(state)
        on = dict(self.autocast)
        with contextlib.ExitStack() as stack:
            for device in _autocast_devices():
                wanted = None if widened else on.get(device)
                if wanted is autocast_of(device):
                    continue
                if wanted is not None:
                    stack.enter_context(torch.autocast(device, dtype=wanted, cache_enabled=False))
                else:
                    stack.enter_context(torch.autocast(device, enabled=False))
            yield


def again(call: Invocation, widened: bool) -> Any:
    """What comes of the call; its tensors have no graph."""
    with call.context.entered(widened), torch.set_grad_enabled(call.with_graph), _own_graph():
        answer = call.function(*call.args, **call.kwargs)
    if not call.with_graph:
        return answer
    return mapped(answer, lambda place, leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)


@contextlib.contextmanager
def _own_graph() -> Iterator[None]:
    """What a graph saves inside goes past the hooks of the program, as those of activation checkpointing."""
    if not torch.is_grad_enabled():
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_same, _same))
        if torch.is_anomaly_enabled():
            # It would show the program what is not its own.
            stack.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def vjp(call: Invocation, wanted: Sequence[LeafPath], gradients: Sequence[Any], widened: bool) -> list[Any]:
    """The gradients of the tensors at ``wanted``; see the protocol."""
    chosen = set(wanted)
    inputs: dict[LeafPath, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}

    def change(place: LeafPath, value: Any) -> Any:
        if place not in chosen:
            return value
        # What is one tensor stays one: some kernels are chosen by that.
        if id(value) not in made:
            made[id(value)] = value.detach().requires_grad_(True)
        inputs[place] = made[id(value)]
        return made[id(value)]

    with call.context.entered(widened), torch.enable_grad(), _own_graph():
        args = mapped(tuple(call.args), change, ("args",))
        kwargs = mapped(dict(call.kwargs), change, ("kwargs",))
        result = call.function(*args, **kwargs)
        return _gradients(result, [inputs[place] for place in wanted], gradients)


def _gradients(result: Any, inputs: Sequence[torch.Tensor], gradients: Sequence[Any]) -> list[Any]:
    outputs = [leaf for _, leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
    if len(outputs) != len(gradients):
        raise ValueError(said("results-for-gradients", len(outputs), len(gradients)))
    pairs = [
        (output, gradient.detach().to(device=output.device, dtype=output.dtype))
        for output, gradient in zip(outputs, gradients, strict=True)
        if gradient is not None and output.requires_grad
    ]
    if not pairs:
        return [None for _ in inputs]
    ends, arriving = zip(*pairs, strict=True)
    return list(torch.autograd.grad(ends, inputs, arriving, allow_unused=True))


def with_graph(call: Invocation, on_cpu: bool) -> Any:
    """What comes of the call in float32, or on the CPU; its gradient goes to the arguments of ``call``."""

    def change(place: LeafPath, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        own = value if value.requires_grad else copies.twin(value)
        dtype = torch.float32 if is_low(str(value.dtype).removeprefix("torch.")) else None
        return own.to(device="cpu" if on_cpu else None, dtype=dtype)

    with torch.enable_grad(), call.context.entered(widened=True):
        args = mapped(tuple(call.args), change)
        kwargs = {word: mapped(value, change) for word, value in call.kwargs.items() if word != "out"}
        return call.function(*args, **kwargs)


def is_in_optimizer() -> bool:
    """True if the innermost code that is neither msprobe's nor a wrapper of torch's is that of torch.optim."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_WRAPPERS):
            return file.startswith(_OPTIMIZERS)
        frame = frame.f_back  # type: ignore[assignment]
    return False


def free_memory(device: torch.device) -> int | None:
    """The bytes that may still be asked for on a device; None if nobody knows."""
    if device.type == "cpu":
        try:
            with open("/proc/meminfo", encoding="ascii") as file:
                for line in file:
                    if line.startswith("MemAvailable:"):
                        return int(line.split()[1]) * 1024
        except OSError:
            return None
        return None
    module: Any = getattr(torch, device.type, None)
    if module is None or not hasattr(module, "mem_get_info"):
        return None
    free, _ = module.mem_get_info(device)
    # What torch has and does not use counts as well.
    return int(free + module.memory_reserved(device) - module.memory_allocated(device))
