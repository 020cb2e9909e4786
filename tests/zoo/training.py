"""Training loops that are more than forward, backward, step."""

from __future__ import annotations

import copy
import io
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .attention import GPT
from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .generative import vectors
from .recurrent import predict_next, sequences
from .vision import ResNet, images


@architecture()
def gradient_accumulation() -> TrainingCase:
    """Three micro-batches inside one region, then one optimizer step."""
    model = GPT(layers=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        region.begin(model)
        losses = []
        for micro in range(3):
            loss, _ = predict_next(model, *sequences(3 * i + micro, count=2))
            (loss / 3).backward()
            losses.append(loss)
        optimizer.step()
        region.end()
        return {"losses": losses}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def accumulation_in_several_regions() -> TrainingCase:
    """Start and stop around each micro-batch; the optimizer step lies outside."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.NAdam(model.parameters())

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        losses = []
        for micro in range(3):
            region.begin(model)
            loss = model(*vectors(3 * i + micro)).square().mean()
            loss.backward()
            region.end()
            losses.append(loss)
        optimizer.step()
        return {"losses": losses}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def stopped_before_backward() -> TrainingCase:
    """Backward runs after stop: what was left on the graph must neither disturb nor keep anything alive."""
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        pictures, labels = images(i)
        optimizer.zero_grad()
        region.begin(model)
        loss = F.cross_entropy(model(pictures), labels)
        region.end()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def started_before_backward() -> TrainingCase:
    """Forward runs bare, only backward and the optimizer step are recorded; another forward follows in the
    region."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters())

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad()
        loss = model(*vectors(i)).square().mean()
        region.begin(model)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            after = model(*vectors(i))
        region.end()
        return {"loss": loss, "after": after}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def variables_saved_by_hand() -> TrainingCase:
    """Tensors, containers and scalars are handed to the recorder in forward, one of them changed in place
    afterwards."""
    first, last = nn.Linear(8, 8), nn.Linear(8, 4)
    model = nn.ModuleList([first, last])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        optimizer.zero_grad()
        region.begin(model)
        region.save(x, "x")
        hidden = first(x)
        region.save({"hidden": hidden, "more": [1, 2.5, "text", (hidden, None)]}, "container")
        hidden = hidden.add_(1).tanh()
        region.save(hidden, "hidden")
        out = last(hidden)
        region.save(out[:, 1:], "view")
        out.mul_(2)
        loss = out.square().mean()
        region.save(loss, "loss")
        loss.backward()
        region.save(first.weight.grad, "gradient")
        optimizer.step()
        region.end()
        return {"loss": loss, "hidden": hidden, "out": out}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def lbfgs_closure() -> TrainingCase:
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        losses: list[float] = []

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) - x[:, :2]).square().mean()
            loss.backward()
            losses.append(loss.item())
            return loss

        region.begin(model)
        first = optimizer.step(closure)
        region.end()
        return {"first": first, "losses": losses}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def exponential_moving_average() -> TrainingCase:
    """Averaged weights by hand and by `AveragedModel`; the average is evaluated inside the region."""
    model = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.SiLU(), nn.Linear(12, 4))
    shadow = copy.deepcopy(model).requires_grad_(False)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        optimizer.zero_grad()
        region.begin(model)
        with torch.no_grad():
            target = shadow(x)
        loss = F.mse_loss(model(x), target + x[:, :4])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(shadow.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        averaged.update_parameters(model)
        region.end()
        return {"loss": loss, "target": target, "average": averaged(x)}

    return TrainingCase(run_step, {"model": model, "shadow": shadow, "averaged": averaged, "optimizer": optimizer})


@architecture()
def random_everywhere() -> TrainingCase:
    """Draws from every generator, between and inside the calls: one draw too many shows at once."""
    own = torch.Generator().manual_seed(7)

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            self.noise = nn.RReLU()
            self.drops = nn.ModuleList([nn.Dropout(0.5), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for linear, drop in zip(self.linears, self.drops, strict=True):
                x = self.noise(drop(linear(x).unsqueeze(-1)).squeeze(-1))
                if random.random() < 0.5:
                    x = x + float(np.random.normal())
                x = x * torch.bernoulli(torch.full_like(x, 0.7), generator=own)
                x = F.gumbel_softmax(x, tau=0.7) + torch.rand(1) + torch.randn_like(x) * 0.01
            order = torch.randperm(len(x))
            return x[order] + torch.multinomial(x.softmax(-1), 2).float().mean() + torch.empty_like(x).normal_()

    model = Noisy()

    def loss_of(net: nn.Module, x: torch.Tensor) -> LossAndResults:
        with torch.random.fork_rng():
            torch.manual_seed(5)
            forked = torch.rand(2)
        out = net(x)
        return out.square().mean(), {"out": out, "forked": forked, "own": own.get_state()}

    return supervised(model, vectors, loss_of)


@architecture()
def saved_and_copied_while_recording() -> TrainingCase:
    """Checkpoints, deep copies, state dicts, moves between dtypes, printing: all inside the region."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def run_step(i: int, region: Region) -> Results:
        (x,) = vectors(i)
        optimizer.zero_grad()
        region.begin(model)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        twin = copy.deepcopy(model)
        twin_out = twin.double()(x.double())
        copied = copy.deepcopy(x), copy.copy(x), x.numpy().sum(), x.tolist()
        text = f"{loss} {x[0]} {model}"
        region.end()
        return {"loss": loss, "twin": twin_out, "copied": copied, "text": text, "hash": hash(x) == id(x)}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})


@architecture()
def optimizers_of_many_kinds() -> TrainingCase:
    """One parameter group for each of the optimizers: fused, foreach, capturable-less, and a user's own."""

    class SignDescent(torch.optim.Optimizer):
        def __init__(self, parameters: object) -> None:
            super().__init__(parameters, {"lr": 0.01})

        @torch.no_grad()
        def step(self, closure: object = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.add_(parameter.grad.sign(), alpha=-group["lr"])

    model = nn.Sequential(*(layer for _ in range(7) for layer in (nn.Linear(8, 8), nn.Tanh())))
    kinds = [
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
        lambda p: torch.optim.Adamax(p, foreach=True),
        lambda p: torch.optim.Adadelta(p),
        lambda p: torch.optim.RAdam(p),
        lambda p: torch.optim.ASGD(p),
        SignDescent,
    ]
    optimizers = [kind(list(model[2 * i].parameters())) for i, kind in enumerate(kinds)]
    called: list[str] = []
    optimizers[0].register_step_pre_hook(lambda *_: called.append("before"))
    optimizers[0].register_step_post_hook(lambda *_: called.append("after"))

    def run_step(i: int, region: Region) -> Results:
        model.zero_grad()
        region.begin(model)
        loss = model(*vectors(i)).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        region.end()
        return {"loss": loss, "called": list(called)}

    return TrainingCase(run_step, {"model": model, **{f"optimizer{i}": o for i, o in enumerate(optimizers)}})


@architecture()
def optimizer_in_backward() -> TrainingCase:
    """Each parameter is updated by its own post-accumulate hook while backward runs, and its gradient
    freed."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizers = {p: torch.optim.SGD([p], lr=0.05, momentum=0.9) for p in model.parameters()}
    order: list[int] = []
    numbers = {p: i for i, p in enumerate(model.parameters())}

    def update(parameter: torch.Tensor) -> None:
        order.append(numbers[parameter])
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    tracked = {"model": model, **{f"optimizer{numbers[p]}": o for p, o in optimizers.items()}}

    def run_step(i: int, region: Region) -> Results:
        region.begin(model)
        loss = model(*vectors(i)).square().mean()
        loss.backward()
        region.end()
        return {"loss": loss, "order": list(order), "freed": [p.grad is None for p in model.parameters()]}

    return TrainingCase(run_step, tracked)
