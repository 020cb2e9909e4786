"""User modes around, inside and interleaved with the recorded region: what they see must stay what it was."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors


class ChangingMode(TorchFunctionMode):
    """Notes each call and scales the result of gelu: both a watcher and a changer."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(resolve_name(func) or str(func))
        result = func(*args, **(kwargs or {}))
        return result * 1.5 if func is F.gelu else result


class WatchingDispatch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(str(func))
        return func(*args, **(kwargs or {}))


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))


def one_pass(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    loss.backward()
    return loss


@architecture()
def function_mode_around_the_region() -> TrainingCase:
    model = net()

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        model.zero_grad()
        with ChangingMode() as mode:
            marker = len(mode.called)
            region.begin(model)
            loss = one_pass(model, x)
            seen = list(mode.called[marker:])
            region.end()
            innermost = _get_current_function_mode_stack()[-1] is mode
            after = model(x)
        return {"loss": loss, "called": seen, "innermost": innermost, "after": after}

    return TrainingCase(run_step, {"model": model})


@architecture()
def function_mode_inside_the_region() -> TrainingCase:
    model = net()

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        model.zero_grad()
        region.begin(model)
        with ChangingMode() as mode:
            loss = one_pass(model, x)
            with ChangingMode() as inner:
                second = model(x)
        third = model(x)
        region.end()
        results = {"called": mode.called, "inner": inner.called, "second": second, "third": third}
        return {"loss": loss, **results}

    return TrainingCase(run_step, {"model": model})


@architecture()
def function_mode_interleaved() -> TrainingCase:
    """User mode entered before start and left inside the region; another entered inside and left after
    stop."""
    model = net()

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        depth = len(_get_current_function_mode_stack())
        model.zero_grad()
        first, second = ChangingMode(), ChangingMode()
        first.__enter__()
        region.begin(model)
        loss = one_pass(model, x)
        second.__enter__()
        both = model(x)
        region.end()
        stopped = [mode is first or mode is second for mode in _get_current_function_mode_stack()]
        still = model(x)
        second.__exit__(None, None, None)
        one = model(x)
        first.__exit__(None, None, None)
        none = model(x)
        left = len(_get_current_function_mode_stack()) - depth
        outputs = [both, still, one, none]
        return {"loss": loss, "outputs": outputs, "stopped": stopped, "left": left, "second": second.called}

    return TrainingCase(run_step, {"model": model})


@architecture()
def device_context() -> TrainingCase:
    """`with torch.device(...)` around, inside, and interleaved; `set_default_device` inside; meta tensors."""
    model = net()

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        model.zero_grad()
        outer = torch.device("meta")
        outer.__enter__()
        region.begin(model)
        on_meta = torch.ones(2, 3) + 1
        with torch.device("cpu"):
            built = nn.Linear(4, 4)
            shift = torch.zeros(1)
        outer.__exit__(None, None, None)
        loss = one_pass(model, x + shift)
        torch.set_default_device("meta")
        also_meta = torch.arange(3)
        torch.set_default_device(None)
        on_cpu = torch.arange(3.0)
        with torch.device("meta"):
            region.end()
            last = torch.empty(2)
        devices = [str(t.device) for t in (on_meta, built.weight, also_meta, on_cpu, last, torch.empty(1))]
        return {"loss": loss, "devices": devices, "built": built.weight, "meta": on_meta}

    return TrainingCase(run_step, {"model": model}, close=lambda: torch.set_default_device(None))


@architecture()
def dispatch_mode_of_the_user() -> TrainingCase:
    """A dispatch mode sees every operator that runs: forward, backward, optimizer. It must not see our
    own."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        optimizer.zero_grad()
        with WatchingDispatch() as outside:
            marker = len(outside.called)
            region.begin(model)
            loss = one_pass(model, x)
            with WatchingDispatch() as inside:
                second = one_pass(model, x)
            optimizer.step()
            seen = list(outside.called[marker:])
            region.end()
        return {"loss": loss, "second": second, "outside": seen, "inside": inside.called}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def flop_counter() -> TrainingCase:
    model = nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(24, 8), nn.MultiheadAttention(8, 2))
    model.register_module("3", nn.Linear(8, 4))

    def loss_of(model: nn.Module, x: torch.Tensor) -> LossAndResults:
        with FlopCounterMode(display=False) as counter:
            loss = model(x.unsqueeze(1)).square().mean()
            loss.backward(retain_graph=True)
        counts = {str(key): {str(op): n for op, n in v.items()} for key, v in counter.get_flop_counts().items()}
        return loss, {"total": counter.get_total_flops(), "counts": counts}

    return supervised(model, vectors, loss_of)


@architecture()
def saved_tensor_hooks() -> TrainingCase:
    """Packing of saved tensors (offloading): which tensors are packed and unpacked, in which order, how
    changed."""
    model = net()
    seen: list[str] = []

    def pack(tensor: torch.Tensor) -> tuple[torch.Tensor]:
        seen.append(f"pack {tuple(tensor.shape)}")
        return (tensor.to(torch.float64),)

    def unpack(packed: tuple[torch.Tensor]) -> torch.Tensor:
        seen.append(f"unpack {tuple(packed[0].shape)}")
        return packed[0].to(torch.float32)

    def loss_of(model: nn.Module, x: torch.Tensor) -> LossAndResults:
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = model(x).square().mean()
        with torch.autograd.graph.save_on_cpu():
            loss = loss + model(x).abs().mean()
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            loss = loss + model(x).mean()
        return loss, {"seen": seen}

    return supervised(model, vectors, loss_of)


@architecture()
def anomaly_detection() -> TrainingCase:
    """Anomaly mode finds the NaN in the same function with the same message, and names the same forward
    call."""
    model = net()

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        model.zero_grad()
        region.begin(model)
        with warnings.catch_warnings(record=True) as told, torch.autograd.detect_anomaly():
            warnings.simplefilter("always")
            try:
                (model(x) * 0).sqrt().sum().backward()
                message = "nothing raised"
            except RuntimeError as error:
                message = str(error)
        loss = one_pass(model, x)
        region.end()
        heads = [str(w.message).split("\n")[0] for w in told]
        own = ["modes.py" in str(w.message) for w in told]
        return {"loss": loss, "message": message, "told": heads, "own": own}

    return TrainingCase(run_step, {"model": model})


@architecture()
def gradient_modes() -> TrainingCase:
    """no_grad, enable_grad inside it, inference mode, set_grad_enabled left on its own, versions and
    inference flags."""
    model = net()

    def loss_of(model: nn.Module, x: torch.Tensor) -> LossAndResults:
        flags: list[object] = []
        with torch.no_grad():
            quiet = model(x)
            with torch.enable_grad():
                loud = model(x)
            flags += [torch.is_grad_enabled(), quiet.requires_grad, loud.requires_grad, quiet._version]
        with torch.inference_mode():
            inferred = model(x)
            inferred.add_(1)
            view = inferred[1:]
            flags += [
                inferred.is_inference(),
                view.is_inference(),
                view._base is inferred,
                quiet.is_inference(),
            ]
        previous = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        detached = model(x)
        torch.set_grad_enabled(previous)
        flags += [detached.requires_grad, torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
        return (loud * quiet).mean() + model(x).square().mean(), {"flags": flags, "inferred": inferred}

    return supervised(model, vectors, loss_of)
