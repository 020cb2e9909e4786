"""Watchers that are guilty on purpose. A test of innocence that acquits one of them is worthless."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from innocence_run import Models, Nobody
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _pop_mode
from torch.utils._python_dispatch import TorchDispatchMode


def modules_of(models: Models) -> Iterator[nn.Module]:
    for model in models if isinstance(models, Sequence) else [models]:
        yield from model.modules()


class WithHooks(Nobody):
    """Puts something on every module at start and takes it away at stop, unless `leaves` is set."""

    leaves = False

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def attach(self, module: nn.Module) -> Any:
        raise NotImplementedError

    def start(self, models: Models) -> None:
        self.handles = [self.attach(module) for module in modules_of(models)]

    def stop(self) -> None:
        if not self.leaves:
            for handle in self.handles:
                handle.remove()


class FullBackwardHooks(WithHooks):
    """Identity nodes enter the graph: what the reference does at L0."""

    def attach(self, module: nn.Module) -> Any:
        return module.register_full_backward_hook(lambda *_: None)


class ClonesOutputs(WithHooks):
    def attach(self, module: nn.Module) -> Any:
        return module.register_forward_hook(lambda m, i, o: o.clone() if isinstance(o, torch.Tensor) else None)


class MakesOutputsContiguous(WithHooks):
    def attach(self, module: nn.Module) -> Any:
        return module.register_forward_hook(lambda m, i, o: o.contiguous() if isinstance(o, torch.Tensor) else None)


class DrawsRandomNumbers(WithHooks):
    def attach(self, module: nn.Module) -> Any:
        return module.register_forward_hook(lambda *_: (torch.rand(1), None)[1])


class DrawsFromPython(Nobody):
    def stop(self) -> None:
        random.random()


class LeavesHooks(WithHooks):
    leaves = True

    def attach(self, module: nn.Module) -> Any:
        return module.register_forward_hook(lambda *_: None)


class LeavesParameterHooks(Nobody):
    def start(self, models: Models) -> None:
        for module in modules_of(models):
            for parameter in module.parameters(recurse=False):
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(lambda p: None)


class LeavesAttributes(Nobody):
    def start(self, models: Models) -> None:
        for module in modules_of(models):
            module.msprobe_name = "x"


class TouchesGradients(Nobody):
    """Gradient hooks that change one bit."""

    def start(self, models: Models) -> None:
        self.handles = [
            p.register_hook(lambda g: g * (1 + 2**-20))
            for module in modules_of(models)
            for p in module.parameters(recurse=False)
            if p.requires_grad
        ]

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()


class PatchesFunctions(Nobody):
    """Replaces functions while it records, and restores them: identity checks of users fail in between."""

    def start(self, models: Models) -> None:
        self.original = F.gelu
        F.gelu = lambda *args, **kwargs: self.original(*args, **kwargs)

    def stop(self) -> None:
        F.gelu = self.original


class LeavesPatches(Nobody):
    """Wraps `Function.apply` and forgets to restore it; the training does not notice."""

    def start(self, models: Models) -> None:
        if not hasattr(self, "original"):
            self.original = torch.autograd.Function.__dict__["apply"]
            original = torch.autograd.Function.apply.__func__
            torch.autograd.Function.apply = classmethod(lambda cls, *a, **k: original(cls, *a, **k))

    def close(self) -> None:
        torch.autograd.Function.apply = self.original


class PlainMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class KeepsModeOverFastPaths(Nobody):
    """An honest function mode that only calls through: already enough to lose PyTorch's fused inference
    path."""

    def start(self, models: Models) -> None:
        self.mode = PlainMode()
        self.mode.__enter__()

    def stop(self) -> None:
        self.mode.__exit__(None, None, None)


class LeavesMode(Nobody):
    entered = 0

    def stop(self) -> None:
        PlainMode().__enter__()
        self.entered += 1

    def close(self) -> None:
        for _ in range(self.entered):
            _pop_mode()


class ComputesInSight(WithHooks):
    """Statistics with the user's modes still on: users' modes and subclasses see calls that are not
    theirs."""

    def attach(self, module: nn.Module) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                with torch.no_grad(), suppress(RuntimeError):
                    torch.abs(output).amax()

        return module.register_forward_hook(look)


class ComputesWithGradient(WithHooks):
    """Statistics that are part of the graph: user's saved-tensor hooks see them."""

    def attach(self, module: nn.Module) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.is_floating_point():
                output.square().sum()

        return module.register_forward_hook(look)


class BumpsVersions(WithHooks):
    def attach(self, module: nn.Module) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                with torch.no_grad():
                    output.add_(0)

        return module.register_forward_hook(look)


class Quiets(Nobody):
    """Leaves gradient recording off."""

    def stop(self) -> None:
        torch.set_grad_enabled(False)

    def close(self) -> None:
        torch.set_grad_enabled(True)


class SwallowsExceptions(WithHooks):
    """Makes wrong calls raise another message."""

    def attach(self, module: nn.Module) -> Any:
        def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if isinstance(module, nn.Linear) and inputs[0].shape[-1] != module.in_features:
                raise RuntimeError("linear: wrong shape")

        return module.register_forward_pre_hook(look)


class Warns(Nobody):
    def start(self, models: Models) -> None:
        warnings.warn("recording begins", UserWarning, stacklevel=1)


class RecompilesEverything(Nobody):
    """A dispatch mode that stays on in compiled regions."""

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def start(self, models: Models) -> None:
        self.mode = self.Mode()
        self.mode.__enter__()

    def stop(self) -> None:
        self.mode.__exit__(None, None, None)


# Each with one architecture that has to notice it, and a word that has to be in the report.
CULPRITS: list[tuple[Callable[[], Nobody], str, str]] = [
    (FullBackwardHooks, "resnet", "raised"),
    (FullBackwardHooks, "gqa_rope", "graph of loss"),
    (FullBackwardHooks, "shared_modules_and_tensors", "weight"),
    (ClonesOutputs, "passed_through_objects", "identical"),
    (MakesOutputsContiguous, "resnet_channels_last", "stride"),
    (DrawsRandomNumbers, "vae", "generator torch"),
    (DrawsFromPython, "vae", "generator python"),
    (LeavesHooks, "unet", "attached"),
    (LeavesHooks, "unet", "pickle"),
    (LeavesParameterHooks, "lstm", "_post_accumulate_grad_hooks"),
    (LeavesAttributes, "vit", "msprobe_name"),
    (TouchesGradients, "gqa_rope", "bytes differ"),
    (PatchesFunctions, "vae", "torch.nn.functional.gelu"),
    (LeavesPatches, "custom_function", "torch.autograd.Function.apply"),
    (KeepsModeOverFastPaths, "encoder_layer_fast_path", "bytes differ"),
    (LeavesMode, "gru", "PlainMode"),
    (ComputesInSight, "function_mode_inside_the_region", "torch.abs"),
    (ComputesInSight, "tensor_subclass", "called"),
    (ComputesInSight, "dispatch_mode_of_the_user", "aten.amax"),
    (ComputesWithGradient, "saved_tensor_hooks", "pack"),
    (BumpsVersions, "encoder_layer_fast_path", "version"),
    (Quiets, "stopped_before_backward", "raised"),
    (SwallowsExceptions, "exceptions_caught_in_forward", "caught"),
    (Warns, "gpt_tied", "recording begins"),
    (RecompilesEverything, "compiled_model", "counts"),
]
