"""Muon, an optimizer written by hand that makes updates of matrices orthogonal, with AdamW beside it for all else."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(11)


@torch.no_grad()
def orthogonal(update, steps: int = 5):
    """Newton-Schulz iteration, in bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = update.bfloat16()
    if update.size(0) > update.size(1):
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if update.size(0) > update.size(1) else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr: float = 0.02, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter.grad)
                buffer = state["momentum_buffer"]
                buffer.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonal(parameter.grad.lerp(buffer, group["momentum"]))
                scale = max(1, parameter.size(0) / parameter.size(1)) ** 0.5
                parameter.add_(update.type_as(parameter), alpha=-group["lr"] * scale)


class RMSNorm(nn.Module):
    def forward(self, x):
        return F.rms_norm(x, (x.size(-1),)) if hasattr(F, "rms_norm") else x / x.pow(2).mean(-1, keepdim=True).sqrt()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = RMSNorm(), nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.scale * self.down(F.relu(self.up(self.norm(x))).square())


model = nn.Sequential(nn.Embedding(20, 16), Block(16), Block(16), nn.Linear(16, 20))
matrices = [p for block in model[1:3] for p in block.parameters() if p.ndim == 2]
others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
optimizers = [torch.optim.AdamW(others, lr=3e-3, betas=(0.8, 0.95)), Muon(matrices)]
schedulers = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 - step / 10) for one in optimizers]
for step in range(4):
    tokens = torch.randint(20, (4, 9))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    for group in optimizers[1].param_groups:
        group["momentum"] = 0.85 + 0.025 * step
    for one, scheduler in zip(optimizers, schedulers, strict=True):
        one.step()
        scheduler.step()
    model.zero_grad(set_to_none=True)
    print(step, repr(loss.item()))

torch.save([one.state_dict() for one in optimizers], "optimizers.pt")
with torch.inference_mode():
    print("after", repr(model(tokens).logsumexp(-1).mean().item()))
