"""What users attach to their training: hooks that change values, exceptions they catch, threads, tensor
subclasses."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors


@architecture()
def module_hooks() -> TrainingCase:
    """Forward, pre-forward, keyword, always-call and full backward hooks that replace values; the order is
    compared."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 4))
    called: list[str] = []

    def forward(name: str, factor: float) -> Any:
        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            called.append(f"forward {name} {output.grad_fn.name() if output.grad_fn else None}")
            return output * factor

        return hook

    def before(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        called.append("before " + type(module).__name__)
        return (inputs[0] + 0.1,)

    def with_keywords(module: nn.Module, inputs: Any, kwargs: dict[str, Any]) -> Any:
        called.append(f"keywords {sorted(kwargs)}")
        return inputs, kwargs

    def backward(module: nn.Module, grad_inputs: Any, grad_outputs: Any) -> Any:
        called.append(f"backward {type(module).__name__} {[g is None for g in grad_inputs]}")
        return tuple(None if g is None else g * 0.5 for g in grad_inputs)

    def backward_before(module: nn.Module, grad_outputs: Any) -> Any:
        called.append("before backward " + type(module).__name__)
        return tuple(g * 2 for g in grad_outputs)

    model[0].register_forward_hook(forward("first", 1.1))
    model[1].register_forward_pre_hook(before)
    model[2].register_forward_pre_hook(with_keywords, with_kwargs=True)
    model[2].register_forward_hook(forward("inner", 0.9), prepend=True)
    model[2].register_full_backward_hook(backward)
    model[2][0].register_full_backward_hook(backward)
    model[3].register_full_backward_pre_hook(backward_before)
    model[3].register_forward_hook(lambda *_: called.append("always"), always_call=True)

    def run_step(i: int, region: Region) -> Results:
        called.clear()
        optimizer.zero_grad()
        region.begin(model)
        transient = model[1].register_forward_hook(forward("transient", 1.01))
        loss = model(*vectors(i)).square().mean()
        transient.remove()
        loss.backward()
        optimizer.step()
        kept = model[1].register_forward_hook(forward("kept", 1.02)) if i == 0 else None
        region.end()
        return {
            "loss": loss,
            "called": list(called),
            "kept": None if kept is None else kept.id in model[1]._forward_hooks,
        }

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def tensor_and_node_hooks() -> TrainingCase:
    """Hooks on tensors, leaves, graph nodes (before and after), gradient accumulators, and several tensors
    at once."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    called: list[str] = []

    def accumulated(parameter: torch.Tensor) -> None:
        called.append("accumulated")
        parameter.grad.mul_(2)

    model[0].weight.register_hook(lambda g: called.append("weight") or g * 0.5)
    model[2].bias.register_hook(lambda g: called.append("bias"))
    model[2].weight.register_post_accumulate_grad_hook(accumulated)

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        called.clear()
        hidden = net[1](net[0](x))
        hidden.register_hook(lambda g: called.append("hidden") or g + 0.01)
        hidden.grad_fn.register_hook(lambda gi, go: called.append(f"node {[g is None for g in gi]}") or (gi[0] * 1.5,))
        hidden.grad_fn.register_prehook(lambda go: called.append("node before") or (go[0] * 0.9,))
        out = net[2](hidden)
        accumulator = torch.autograd.graph.get_gradient_edge(net[0].bias).node
        accumulator.register_prehook(lambda go: called.append("accumulator"))
        torch.autograd.graph.register_multi_grad_hook(
            (hidden, out), lambda gs: called.append(f"several {[g is None for g in gs]}")
        )
        out.register_hook(lambda g: called.append("removed")).remove()
        loss = out.square().mean()
        node = loss.grad_fn
        node.metadata["user"] = "kept"
        return loss, {"called": called, "edges": len(node.next_functions), "metadata": dict(node.metadata)}

    return supervised(model, vectors, loss_of)


@architecture()
def exceptions_caught_in_forward() -> TrainingCase:
    """Wrong shapes, a raising module, a raising hook, an out-of-place index: all caught, training goes on."""

    class Raising(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.fail = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.linear(x)
            if self.fail:
                raise ValueError(f"found {tuple(x.shape)}")
            return x

    class Interrupted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt("in the middle")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.raising, self.last = Raising(), nn.Linear(8, 4)
            self.wrong = nn.Sequential(nn.Linear(8, 8), nn.Linear(5, 5))
            self.caught: list[str] = []
            self.interrupted = Interrupted()

        def attempt(self, call: Any) -> None:
            try:
                call()
            except BaseException as error:
                depth = 0
                trace = error.__traceback__
                while trace is not None:
                    depth += trace.tb_frame.f_code.co_filename == __file__
                    trace = trace.tb_next
                self.caught.append(f"{type(error).__name__}: {error} {depth} {error.__cause__} {error.__context__}")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.caught = []
            self.raising.fail = True
            self.attempt(lambda: self.raising(x))
            self.attempt(lambda: self.wrong(x))
            self.attempt(lambda: torch.matmul(x, x))
            self.attempt(lambda: F.linear(x, torch.ones(3, 3)))
            self.attempt(lambda: x[99])
            self.attempt(lambda: F.cross_entropy(x, torch.full((6,), 99)))
            self.attempt(lambda: torch.add(x))
            self.attempt(lambda: self.last.weight.add_(1))
            self.attempt(lambda: F.gelu(x, approximate="none at all"))
            self.attempt(lambda: x.no_such_attribute)
            self.attempt(lambda: self.interrupted(x))
            self.raising.fail = False
            return self.last(self.raising(x))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        return net(x).square().mean(), {"caught": net.caught}

    return supervised(Model(), vectors, loss_of)


@architecture()
def exceptions_caught_in_backward() -> TrainingCase:
    """Backward dies in a custom Function, in a hook, on a saved tensor changed in place, on a freed graph."""

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("no gradient here")

    model = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        caught: list[str] = []

        def attempt(call: Any) -> None:
            try:
                call()
            except Exception as error:
                caught.append(f"{type(error).__name__}: {error}")

        def fail(gradient: torch.Tensor) -> None:
            raise KeyError("from a hook")

        def hooked() -> None:
            out = model(x)
            out.register_hook(fail)
            out.sum().backward()

        def modified() -> None:
            hidden = model[1](model[0](x))
            out = model[2](hidden)
            hidden.mul_(2)
            out.sum().backward()

        def freed() -> None:
            loss = model(x).sum()
            loss.backward()
            loss.backward()

        optimizer.zero_grad()
        region.begin(model)
        attempt(lambda: model[2](Failing.apply(model[0](x))).sum().backward())
        attempt(hooked)
        attempt(modified)
        attempt(freed)
        attempt(lambda: model(x).backward())
        attempt(lambda: torch.autograd.grad(x.sum(), x))
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        region.end()
        return {"loss": loss, "caught": caught}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def exception_leaves_the_region() -> TrainingCase:
    """The step itself raises; the user stops recording in `finally` and goes on with the next step."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        try:
            loss = model(*vectors(i, count=1 if i == 1 else 6)).square().mean()
            loss.backward()
            optimizer.step()
            return {"loss": loss}
        except ValueError as error:
            return {"error": f"{type(error).__name__}: {error}"}
        finally:
            region.end()

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


class LoggedTensor(torch.Tensor):
    """A user's tensor subclass: it notes every function called on it and keeps its type through calls."""

    called: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.called.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@architecture()
def tensor_subclass() -> TrainingCase:
    """What a subclass sees must be the user's calls, no more, no less."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        LoggedTensor.called = []
        out = net(x.as_subclass(LoggedTensor))
        mixed = torch.cat([out, torch.zeros(6, 1)], dim=1)
        loss = (mixed * 2).square().mean().as_subclass(torch.Tensor)
        return loss, {"out": out, "kind": type(mixed).__name__, "called": list(LoggedTensor.called)}

    return supervised(model, vectors, loss_of)


class Scaled(torch.Tensor):
    """A wrapper subclass: the values live in an inner tensor and are multiplied when unpacked
    (`__torch_dispatch__`)."""

    inner: torch.Tensor
    factor: float
    called: list[str] = []

    @staticmethod
    def __new__(cls, inner: torch.Tensor, factor: float) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: torch.Tensor, factor: float) -> None:
        self.inner, self.factor = inner, factor

    def __repr__(self, **kwargs: Any) -> str:
        return f"Scaled({self.factor})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.called.append(str(func))

        def unpack(value: Any) -> Any:
            return value.inner * value.factor if isinstance(value, Scaled) else value

        plain_args, plain_kwargs = torch.utils._pytree.tree_map(unpack, (args, kwargs or {}))
        return func(*plain_args, **plain_kwargs)


@architecture()
def wrapper_subclass() -> TrainingCase:
    """A tensor without storage of its own, as weight-only quantisation uses; each dispatch on it is
    counted."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        Scaled.called = []
        packed = Scaled(torch.arange(64.0).reshape(8, 8), 0.01)
        h = net[0](Scaled(x, 0.5))
        h = F.linear(h, packed) + h @ packed
        loss = net[2](net[1](h)).square().mean()
        return loss, {"h": h, "called": list(Scaled.called)}

    return supervised(model, vectors, loss_of)


@architecture()
def threads() -> TrainingCase:
    """A helper thread runs its own model while the main one trains: it must neither be disturbed nor
    disturb."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    other = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        found: dict[str, Any] = {}

        def work() -> None:
            found["out"] = other(x)
            found["out"].square().mean().backward()

        optimizer.zero_grad()
        region.begin(model)
        hidden = model[1](model[0](x))
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        loss = model[2](hidden).square().mean()
        second = threading.Thread(target=loss.backward)
        second.start()
        second.join()
        optimizer.step()
        region.end()
        return {"loss": loss, "out": found["out"]}

    return TrainingCase(run_step, {"model": model, "other": other, "optimizer": optimizer})
