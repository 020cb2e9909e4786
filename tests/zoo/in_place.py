"""Views, writes in place, shared tensors and shared modules: where an identity node in the graph would
break training."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors


class TwoViews(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:, :4], x[:, 4:]


@architecture()
def module_returning_two_views() -> TrainingCase:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.halves, self.second = nn.Linear(8, 8), TwoViews(), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = self.halves(self.first(x))
            left += 1.5
            left.mul_(2)
            return self.second(left) + right.detach()

    return supervised(Model(), vectors, lambda net, x: net(x).square().mean())


@architecture()
def in_place_relu_chain() -> TrainingCase:
    model = nn.Sequential(
        nn.Linear(8, 16),
        nn.ReLU(inplace=True),
        nn.Linear(16, 16),
        nn.ReLU6(inplace=True),
        nn.Dropout(0.2, inplace=True),
        nn.Hardtanh(inplace=True),
        nn.Linear(16, 16),
        nn.SELU(inplace=True),
        nn.Linear(16, 16),
        nn.Threshold(0.1, 0.0, inplace=True),
        nn.Linear(16, 4),
    )

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out = net(x)
        version = out._version
        out = F.elu(out.mul_(0.7).add_(0.2), inplace=True)
        return out.mean(), {"out": out, "versions": [version, out._version]}

    return supervised(model, vectors, loss_of)


@architecture()
def writes_into_views() -> TrainingCase:
    """In-place writes through slices, transposes, views of views, advanced indices, and into a leaf's
    data."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.scale = nn.Linear(8, 1)
            self.register_buffer("cache", torch.zeros(6, 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[object]]:
            h = self.linear(x)
            canvas = torch.zeros(6, 8)
            canvas[:3] = h[:3]
            canvas[3:].copy_(h[3:] * 2)
            canvas[:, ::2].mul_(self.scale(h))
            canvas.t()[1].add_(h[:, 1])
            canvas[torch.tensor([0, 2]), torch.tensor([1, 3])] = h[1, :2]
            canvas.diagonal().mul_(0.5)
            canvas.view(-1)[5:9].sigmoid_()
            with torch.no_grad():
                self.cache.mul_(0.5).add_(h)
            kept = canvas.narrow(0, 1, 4).select(1, 2)
            names = [kept.grad_fn.name(), kept._base is canvas, canvas._version, kept.is_contiguous()]
            return canvas + self.cache, kept, names

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        canvas, kept, names = net(x)
        return canvas.square().mean() + kept.sum(), {"canvas": canvas, "kept": kept, "names": names}

    return supervised(Model(), vectors, loss_of)


@architecture()
def passed_through_objects() -> TrainingCase:
    """Modules that return the very object they were given, or their own parameter, or the same tensor
    twice."""

    class Pass(nn.Module):
        def forward(self, x: object) -> object:
            return x

    class OwnWeight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 4))

        def forward(self) -> torch.Tensor:
            return self.weight

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.identity, self.passing, self.flatten = nn.Identity(), Pass(), nn.Flatten()
            self.dropout, self.weight, self.linear = nn.Dropout(0.0), OwnWeight(), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[bool]]:
            h = self.linear(x)
            state = {"h": h, "twice": (h, h)}
            passed = self.passing(state)
            identical = [
                self.identity(h) is h,
                self.identity(x) is x,
                passed is state,
                passed["twice"][0] is passed["twice"][1],
                passed["h"] is h,
                self.weight() is self.weight.weight,
                self.flatten(h) is h,
                h.contiguous() is h,
                h.to(torch.float32) is h,
                h.add_(1) is h,
                F.relu_(h) is h,
                torch.relu(h).data_ptr() != h.data_ptr(),
                h.expand(6, 8).data_ptr() == h.data_ptr(),
            ]
            out = torch.empty(6, 4)
            with torch.no_grad():
                identical.append(torch.mm(h, self.weight(), out=out) is out)
            return self.identity(h) @ self.weight(), identical

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        out, identical = net(x)
        return out.square().mean(), {"out": out, "identical": identical}

    return supervised(Model(), vectors, loss_of)


@architecture()
def shared_modules_and_tensors() -> TrainingCase:
    """One module in two places and called three times, one tensor feeding many calls, one parameter under
    two names."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            self.again = self.block
            self.other = nn.Linear(8, 8)
            self.other.weight = self.block[0].weight
            self.joined = nn.Bilinear(8, 8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.again(self.block(x))
            h = torch.stack([h, h, x]).sum(0) + self.other(h)
            return self.joined(h, h) + self.joined(self.block(h), x)

    return supervised(Model(), vectors, lambda net, x: net(x).square().mean())


@architecture()
def unused_and_constant_branches() -> TrainingCase:
    """Outputs that get no gradient, modules without gradient inputs, inputs as keywords, nothing returned
    at all."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, *, value: torch.Tensor, options: dict[str, object]) -> tuple[torch.Tensor, object, None]:
            return self.used(value), {"unused": [self.unused(value)], "count": options["count"]}, None

    class Silent(nn.Module):
        def forward(self, x: torch.Tensor) -> None:
            x.detach().add_(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.silent, self.constant = Pair(), Silent(), nn.Linear(8, 8).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fixed = self.constant(x)
            used, rest, nothing = self.pair(value=fixed, options={"count": 3, "tensor": fixed})
            assert nothing is None
            self.silent(used)
            return used * rest["count"]

    model = Model()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        out = model(*vectors(i))
        out[:, 0].sum().backward(inputs=[model.pair.used.weight])
        region.end()
        optimizer.step()
        return {"out": out, "without": [name for name, p in model.named_parameters() if p.grad is None]}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})
