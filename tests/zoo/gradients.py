"""Backward passes that are not one plain `loss.backward()`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors


class StraightThrough(torch.autograd.Function):
    """Rounds forward, lets the gradient pass; saves tensors, marks one output as not differentiable."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        codes = torch.round(x / scale)
        ctx.save_for_backward(x)
        ctx.scale = scale
        ctx.mark_non_differentiable(codes)
        return codes * scale, codes

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradients[0] * (x.abs() < 2).to(x.dtype), None


class InPlaceScale(torch.autograd.Function):
    """Writes its input in place and says so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.clone(), factor)
        ctx.mark_dirty(x)
        return x.mul_(factor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, factor = ctx.saved_tensors
        return gradient * factor, (gradient * x).sum()


class Twice(torch.autograd.Function):
    """The two-method form (`setup_context`) with a vmap rule made by PyTorch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> torch.Tensor | None:
        return None if gradient is None else gradient * 2


@architecture()
def custom_function() -> TrainingCase:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)
            self.factor = nn.Parameter(torch.tensor(1.3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            rounded, codes = StraightThrough.apply(self.first(x), 0.25)
            return self.second(Twice.apply(InPlaceScale.apply(rounded + 0, self.factor))), codes

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out, codes = net(x)
        return out.square().mean(), {"out": out, "codes": codes, "node": type(out.grad_fn).__name__}

    return supervised(Model(), vectors, loss_of)


@architecture()
def double_backward() -> TrainingCase:
    """A gradient penalty: the norm of an input gradient is part of the loss; plus a Hessian-vector
    product."""
    model = nn.Sequential(nn.Linear(8, 12), nn.Softplus(), nn.LayerNorm(12), nn.Linear(12, 1))

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        x.requires_grad_()
        out = net(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        penalty = (slope.norm(dim=-1) - 1).square().mean()
        weight = net[0].weight
        (first,) = torch.autograd.grad(out.mean(), weight, create_graph=True)
        (product,) = torch.autograd.grad(first, weight, torch.ones_like(weight), retain_graph=True)
        results = {"slope": slope, "product": product, "node": type(slope.grad_fn).__name__, "input": x}
        return out.mean() + penalty, results

    return supervised(model, vectors, loss_of)


@architecture()
def retained_graph() -> TrainingCase:
    """Several backward passes through one graph, gradients kept on inner tensors, several losses at once."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters())

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        hidden = model[1](model[0](*vectors(i)))
        hidden.retain_grad()
        out = model[2](hidden)
        out.sum().backward(retain_graph=True)
        first = model[0].weight.grad.clone()
        out.square().mean().backward(retain_graph=True)
        inner = torch.autograd.grad(out[:, 0].sum(), hidden, retain_graph=True)
        torch.autograd.backward([out[:, 1].sum(), hidden.mean()], [torch.tensor(0.5), None])
        unused = torch.autograd.grad(out.detach().requires_grad_().sum(), model[0].bias, allow_unused=True)
        region.end()
        optimizer.step()
        return {"out": out, "first": first, "inner": inner, "kept": hidden.grad, "unused": unused}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


class RecomputedStack(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.inside = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8))
            for _ in range(3)
        )
        self.tail = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inside(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.use_reentrant)
        return checkpoint_sequential(self.tail, 2, x, use_reentrant=self.use_reentrant)


@architecture()
def recompute_reentrant() -> TrainingCase:
    return supervised(RecomputedStack(True), vectors, lambda net, x: net(x).square().mean())


@architecture()
def recompute_non_reentrant() -> TrainingCase:
    return supervised(RecomputedStack(False), vectors, lambda net, x: net(x).square().mean())


@architecture()
def recompute_selective() -> TrainingCase:
    """Selective recomputation keeps the matrix products: PyTorch runs its own dispatch modes around the
    block."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}

    def policy(_: object, operator: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))

    def loss_of(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        out = checkpoint(net, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
        return out.square().mean()

    return supervised(model, vectors, loss_of)


@architecture()
def gradients_of_inputs_and_leaves() -> TrainingCase:
    """Adversarial training: the input is a leaf that is changed by its own gradient between two passes."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        target = torch.arange(6) % 3
        optimizer.zero_grad()
        region.begin(model)
        x.requires_grad_()
        F.cross_entropy(model(x), target).backward()
        gradient = x.grad
        with torch.no_grad():
            x.add_(0.1 * x.grad.sign())
        x.grad = None
        model.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        region.end()
        return {"loss": loss, "first": gradient, "x": x, "same": x.grad is not gradient}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})
