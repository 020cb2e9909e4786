"""Where a call runs: a device that is looked for, what is switched there, and faults that are put in."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.side.trees import map_tree
from msprobe.precheck.side.types import dtype_of
from msprobe.precheck.side.words import Executor, Fault

_NUMBERS = itertools.count()
_BEST = ("npu", "cuda", "xpu", "mps")


class NotHereError(ValueError):
    """A device that this machine does not have."""


class Side:
    """Who runs the call. Raises NotHereError, or ValueError for a plugin that cannot be imported."""

    def __init__(self, plan: Executor) -> None:
        self.plan = plan
        self.fault = plan.fault
        self.device = device_of(plan)
        self.plugin = plugin_of(plan)
        self.dtype = dtype_of(plan.dtype) if plan.dtype else None
        self.autocast = dtype_of(plan.autocast) if plan.autocast else None
        #: As it was asked for, with the device that was found.
        self.name = re.sub(r"^auto(:\d+)?", str(self.device), re.sub("^inject:", "auto+inject:", plan.text))
        #: The types of the results of the last call.
        self.gave: list[torch.dtype] = []

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in the place of a function: itself, or with a fault, a plugin or compiled."""
        plugin, fault = self.plugin, self.fault
        made = function
        if plugin is not None:
            made = lambda *args, **kwargs: plugin(function, args, kwargs)  # noqa: E731
        elif self.plan.compiled:
            made = compiled(function)
        if fault is None or fault.kind in ("tf32", "swap"):
            return made
        return lambda *args, **kwargs: spoiled(made(*args, **kwargs), fault)

    @contextlib.contextmanager
    def switched(self, autocast: torch.dtype | None = None) -> Iterator[None]:
        """What is switched while this side runs; ``autocast``: the type in which the recorded call was."""
        plan, autocast = self.plan, self.autocast or autocast
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

    def given(self, tensor: torch.Tensor) -> torch.Tensor:
        """An argument as this side gets it: with 10 bits of mantissa where that is its fault."""
        if self.fault is None or self.fault.kind != "tf32" or tensor.dtype is not torch.float32 or not tensor.numel():
            return tensor
        return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)

    def arranged(self, args: list[Any]) -> list[Any]:
        """Positional arguments: the first two of one shape and type are exchanged where that is its fault."""
        places = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)]
        for first, second in pairwise(places if self.fault is not None and self.fault.kind == "swap" else []):
            a, b = args[first], args[second]
            if a.shape == b.shape and a.dtype == b.dtype:
                return [*args[:first], b, *args[first + 1 : second], a, *args[second + 1 :]]
        return args


def spoiled(result: Any, fault: Fault) -> Any:
    """A result with a fault: all of its float tensors scaled, or the first of them with wrong elements."""
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
        wrong = tensor.clone(memory_format=torch.contiguous_format)
        with torch.no_grad():
            flat = wrong.view(-1)
            if fault.kind == "drop-tail":
                flat[flat.numel() - max(1, flat.numel() // 16) :] = 0
            else:
                flat[fault.place % flat.numel()] = float(fault.kind)
        return wrong

    return map_tree(result, "", spoil)


def device_of(plan: Executor) -> torch.device:
    """The device of a plan. Raises NotHereError if it is not there."""
    kind, _, number = plan.device.partition(":")
    with contextlib.suppress(ImportError):
        importlib.import_module("torch_npu")
    if kind == "auto":
        kind = next((kind for kind in _BEST if is_there(kind)), "") or accelerator()
    whole = said("of-executor", plan.text) if plan.text != plan.device else ""
    if not is_there(kind):
        raise NotHereError(said("device-not-here", plan.device, whole))
    device = torch.device(f"{kind}:{number}" if number and kind != "cpu" else kind)
    if kind in ("cuda", "npu", "xpu"):
        module = getattr(torch, kind)
        if number and int(number) >= module.device_count():
            raise NotHereError(said("device-number-too-large", str(device), kind, module.device_count()))
        module.set_device(device)
    return device


def accelerator() -> str:
    """The kind of device that torch has beside the CPU, under any name; the CPU without one, or before torch 2.6."""
    known = getattr(torch, "accelerator", None)
    current = known.current_accelerator() if known is not None and known.is_available() else None
    return current.type if current is not None and is_there(current.type) else "cpu"


def is_there(kind: str) -> bool:
    """True if there are devices of a kind."""
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return kind == "cpu" or bool(module is not None and hasattr(module, "is_available") and module.is_available())


def plugin_of(plan: Executor) -> Callable[..., Any] | None:
    """The function of ``plugin:package.module:function``, or None for no plugin. Raises ValueError."""
    if plan.plugin is None:
        return None
    module, name = plan.plugin
    try:
        plugin: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ValueError(said("plugin-not-imported", plan.text, problem)) from None
    if not callable(plugin):
        raise ValueError(said("plugin-is-no-function", plan.text))
    return plugin


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
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
