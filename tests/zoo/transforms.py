"""`torch.func` transforms, forward-mode differentiation, scripted modules."""

from __future__ import annotations

import torch
from torch import func, nn
from torch.nn import functional as F

from .case import Region, Results, TrainingCase, architecture, supervised
from .generative import vectors


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))


@architecture()
def per_sample_gradients() -> TrainingCase:
    """vmap of grad of functional_call: every tensor the modules meet is a wrapped one."""
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        labels = torch.arange(len(x)) % 3
        weights = {name: p.detach() for name, p in model.named_parameters()}

        def loss_of(weights: dict[str, torch.Tensor], one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(func.functional_call(model, weights, (one[None],)), label[None])

        region.begin(model)
        gradients = func.vmap(func.grad(loss_of), in_dims=(None, 0, 0))(weights, x, labels)
        for name, parameter in model.named_parameters():
            clipped = gradients[name].flatten(1).clamp(-0.5, 0.5).mean(0)
            parameter.grad = clipped.view_as(parameter)
        optimizer.step()
        region.end()
        return {"gradients": gradients}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def jacobians_and_hessians() -> TrainingCase:
    model = small_net()

    def run_step(i: int, region: Region) -> Results:
        x = vectors(i)[0][:2]
        region.begin(model)
        jacobian = func.jacrev(model)(x)
        forward_jacobian = func.jacfwd(model)(x)
        value, tangent = func.jvp(model, (x,), (torch.ones_like(x),))
        hessian = func.hessian(lambda one: model(one[None]).square().sum())(x[0])
        output, pullback = func.vjp(model, x)
        (cotangent,) = pullback(torch.ones_like(output))
        weights = {name: p.detach() for name, p in model.named_parameters()}
        gradient, loss = func.grad_and_value(lambda w: func.functional_call(model, w, (x,)).square().mean())(weights)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.sub_(0.1 * gradient[name])
        region.end()
        maps = [jacobian, forward_jacobian, value, tangent, hessian, output, cotangent]
        return {"maps": maps, "gradient": gradient, "loss": loss}

    return TrainingCase(run_step, {"model": model})


@architecture()
def forward_mode() -> TrainingCase:
    """Dual numbers: the tangent travels with the tensor through recorded calls."""
    import torch.autograd.forward_ad as forward_ad

    model = small_net()

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        region.begin(model)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            value, tangent = forward_ad.unpack_dual(model(dual))
            value, tangent = value.detach().clone(), tangent.detach().clone()
        loss = (model(x) * tangent).mean()
        model.zero_grad()
        loss.backward()
        region.end()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)
        return {"loss": loss, "value": value, "tangent": tangent}

    return TrainingCase(run_step, {"model": model})


@architecture()
def model_ensemble() -> TrainingCase:
    """Several models stacked into one and run by vmap with its own randomness."""
    models = [small_net() for _ in range(3)]
    weights, buffers = func.stack_module_state(models)
    skeleton = small_net().to("meta")

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)

        def run(one: dict[str, torch.Tensor], held: dict[str, torch.Tensor], data: torch.Tensor) -> torch.Tensor:
            return F.dropout(func.functional_call(skeleton, (one, held), (data,)), 0.3)

        for weight in weights.values():
            weight.grad = None
        region.begin(skeleton)
        out = func.vmap(run, in_dims=(0, 0, None), randomness="different")(weights, buffers, x)
        loss = out.square().mean()
        loss.backward()
        region.end()
        with torch.no_grad():
            for weight in weights.values():
                weight.sub_(0.1 * weight.grad)
        return {"loss": loss, "out": out}

    return TrainingCase(run_step, {f"weights.{name}": weight for name, weight in weights.items()})


@architecture()
def scripted_module() -> TrainingCase:
    """A traced sub-module and a scripted function inside an ordinary model."""

    def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if bool((x.sum() > 0).item()):
            return torch.sigmoid(x) * y
        return torch.tanh(x) + y

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
            self.traced = torch.jit.trace(nn.Sequential(nn.Linear(8, 8), nn.ELU()), torch.zeros(2, 8))
            self.gated = torch.jit.script(gated)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            return self.last(self.gated(self.traced(h), h))

    return supervised(Model(), vectors, lambda net, x: net(x).square().mean())
