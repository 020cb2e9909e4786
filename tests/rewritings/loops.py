"""What is done around a model in two ways: passes, gradients, steps. Each function takes a :class:`Training`, and
``other`` and ``bug`` as modules do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import PrecisionDebugger
from rewritings import losses
from rewritings.modules import LENGTH, WIDTH

ROWS = 4


class Model(nn.Module):
    """Layers around a part."""

    def __init__(self, part: nn.Module | None) -> None:
        super().__init__()
        self.lift, self.norm = nn.Linear(5, WIDTH), nn.LayerNorm(WIDTH)
        self.part = part if part is not None else nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, 4)
        self.checkpointed = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of each token."""
        y = self.lift(x)
        if self.checkpointed:
            y = y + checkpoint(self.part, y, use_reentrant=False)
        else:
            y = y + self.part(y)
        return self.head(self.norm(F.gelu(y))).flatten(0, 1)


@dataclass
class Training:
    """A model that is trained, and how."""

    model: Model
    dtype: torch.dtype
    loss: Any = losses.cross_entropy
    optimizer: Any = None
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def step(self, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> torch.Tensor:
        """One step of the plain way; ``other`` and ``bug`` are for the loss."""
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), goals.flatten(), other, bug)
        loss.backward()
        self.optimizer.step()
        return loss


def plain(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Modules or losses differ."""
    return run.step(x, goals, other, bug)


def _gradients(run: Training, x: torch.Tensor, goals: torch.Tensor) -> Any:
    run.optimizer.zero_grad()
    loss = run.loss(run.model(x), goals.flatten(), False, "")
    loss.backward()
    return loss


def clipped(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """All gradients by their norm."""
    loss = _gradients(run, x, goals)
    if not other:
        nn.utils.clip_grad_norm_(run.parameters, 0.1)
    else:
        norm = sum(one.grad.float().square().sum() for one in run.parameters).sqrt()
        for one in run.parameters:
            one.grad.mul_(((0.2 if bug == "limit" else 0.1) / (norm + 1e-6)).clamp(max=1.0).to(one.grad.dtype))
    run.optimizer.step()
    return loss


def clipped_each(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Each gradient by its own norm, if it is too long."""
    loss = _gradients(run, x, goals)
    for number, one in enumerate(run.parameters):
        if not other:
            nn.utils.clip_grad_norm_([one], 0.02)
        elif (norm := one.grad.norm().item() + 1e-6) > 0.02 and not (bug == "one" and number == 2):
            one.grad.mul_(0.02 / norm)
    run.optimizer.step()
    return loss


def clipped_values(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Each element of the gradients."""
    loss = _gradients(run, x, goals)
    if not other:
        nn.utils.clip_grad_value_(run.parameters, 0.01)
    else:
        for one in run.parameters:
            one.grad.clamp_(-0.01, 0.02 if bug == "limit" else 0.01)
    run.optimizer.step()
    return loss


def clipped_flat(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """One vector of all gradients is clipped and copied back."""
    loss = _gradients(run, x, goals)
    if not other:
        nn.utils.clip_grad_norm_(run.parameters, 0.1)
    else:
        flat = torch.cat([one.grad.flatten() for one in run.parameters])
        flat = flat * min(1.0, (0.05 if bug == "limit" else 0.1) / (flat.float().norm().item() + 1e-6))
        for one, part in zip(run.parameters, flat.split([one.numel() for one in run.parameters]), strict=True):
            one.grad.copy_(part.view_as(one))
    run.optimizer.step()
    return loss


def in_pieces(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Gradients of two micro-batches are summed, in the place of one batch."""
    if not other:
        return run.step(x, goals, False, "")
    run.optimizer.zero_grad()
    total = 0.0
    for rows, wanted in zip(x.chunk(2), goals.chunk(2), strict=True):
        loss = run.loss(run.model(rows), wanted.flatten(), False, "")
        (loss if bug == "count" else loss / 2).backward()
        total += loss.detach() / 2
    run.optimizer.step()
    return total


def other_pieces(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Four micro-batches in the place of two."""
    run.optimizer.zero_grad()
    pieces, total = 4 if other else 2, torch.zeros(())
    for rows, wanted in zip(x.chunk(pieces), goals.chunk(pieces), strict=True):
        loss = run.loss(run.model(rows), wanted.flatten(), False, "")
        (loss / (2 if bug == "count" else pieces)).backward()
        total += loss.detach() / pieces
    run.optimizer.step()
    return total


def asked_for(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Gradients by `torch.autograd.grad`."""
    if not other:
        return run.step(x, goals, False, "")
    loss = run.loss(run.model(x), goals.flatten(), False, "")
    found = torch.autograd.grad(loss, run.parameters)
    for number, (one, gradient) in enumerate(zip(run.parameters, found, strict=True)):
        one.grad = gradient * 1.1 if bug == "factor" and number == 1 else gradient
    run.optimizer.step()
    return loss


def repeated(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """A part is computed again for its backward pass."""
    run.model.checkpointed = other
    run.optimizer.zero_grad()
    loss = run.loss(run.model(x), goals.flatten(), False, "") * (1.05 if bug == "factor" else 1.0)
    loss.backward()
    run.optimizer.step()
    return loss


def packed(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Rows of two sequences each, in the place of rows of one."""
    if other:
        x, goals = x.reshape(ROWS // 2, 2 * LENGTH, -1), goals.reshape(ROWS // 2, -1)
        goals = goals.roll(1, 0) if bug == "order" else goals
    return run.step(x, goals, False, "")


def sorted_rows(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Rows in another order."""
    order = torch.tensor([2, 0, 3, 1])
    if other:
        x, goals = x[order], goals if bug == "order" else goals[order]
    return run.step(x, goals, False, "")


def averaged(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """An average of the weights, by `lerp_` in the place of a product and a sum."""
    averages = run.kept.setdefault("averages", [one.detach().clone() for one in run.parameters])
    loss = run.step(x, goals, False, "")
    with torch.no_grad():
        for average, one in zip(averages, run.parameters, strict=True):
            if other:
                average.lerp_(one, 0.2 if bug == "decay" else 0.1)
            else:
                average.mul_(0.9).add_(one, alpha=0.1)
    return loss


def adamw(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """The optimizer's way over its parameters: at once or one by one."""
    first = run.optimizer is None
    if first:
        beta = 0.99 if bug == "beta" else 0.999
        run.optimizer = torch.optim.AdamW(run.parameters, 1e-3, (0.9, beta), foreach=other)
    return run.step(x, goals, False, "")


class OwnAdamW(torch.optim.Optimizer):
    """AdamW by hand."""

    def __init__(self, parameters: Any, bug: str) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.bug = bug

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                if not state:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(one), torch.zeros_like(one)
                state["step"] += 1
                number, first, second = state["step"], state["exp_avg"], state["exp_avg_sq"]
                one.mul_(1 - 1e-3 * 1e-2)
                first.mul_(0.9).add_(one.grad, alpha=0.1)
                second.mul_(0.999).addcmul_(one.grad, one.grad, value=0.002 if self.bug == "moment" else 0.001)
                size = (second / (1 - 0.999**number)).sqrt_().add_(1e-8)
                one.addcdiv_(first, size, value=-1e-3 / (1 - 0.9**number))


def own_adamw(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """AdamW by hand in the place of torch's."""
    if run.optimizer is None:
        own = OwnAdamW(run.parameters, bug)
        run.optimizer = own if other else torch.optim.AdamW(run.parameters, 1e-3, foreach=False)
    return run.step(x, goals, False, "")


def written_sgd(run: Training, x: torch.Tensor, goals: torch.Tensor, other: bool, bug: str) -> Any:
    """Momentum and weights by hand, outside of any optimizer, on both sides; in place or by new numbers."""
    for one in run.parameters:
        one.grad = None
    loss = run.loss(run.model(x), goals.flatten(), False, "")
    loss.backward()
    moments = run.kept.setdefault("moments", [torch.zeros_like(one) for one in run.parameters])
    with torch.no_grad():
        for number, one in enumerate(run.parameters):
            if other:
                moments[number] = moments[number] * (0.8 if bug == "momentum" else 0.9) + one.grad
                if bug == "rounded":
                    one.copy_(one.bfloat16() - (0.1 * moments[number]).bfloat16())
                else:
                    one -= 0.1 * moments[number]
            else:
                moments[number].mul_(0.9).add_(one.grad)
                one.add_(moments[number], alpha=-0.1)
    return loss


def batches(steps: int, dtype: torch.dtype) -> Any:
    """Numbers and goals of each step."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(ROWS, LENGTH, 5, generator=generator).to(dtype)
        yield x, torch.randint(0, 4, (ROWS, LENGTH), generator=generator)


def trained(run: Training, way: Any, other: bool, bug: str, steps: int, watched: bool) -> list[Any]:
    """Train; losses and weights."""
    made = []
    for x, goals in batches(steps, run.dtype):
        if watched:
            PrecisionDebugger.start(run.model)
        made.append(way(run, x, goals, other, bug).detach())
        if watched:
            PrecisionDebugger.stop()
            PrecisionDebugger.step()
    return [*made, *(one.detach().clone() for one in run.model.state_dict().values())]
