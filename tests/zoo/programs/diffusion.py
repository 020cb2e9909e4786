"""Diffusion on points with a moving average of the weights kept by hand; samples are drawn with the average."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

torch.manual_seed(17)
TIMES = 20


class Sinusoidal(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, times):
        half = self.width // 2
        rates = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        angles = times[:, None].float() * rates[None, :]
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(Sinusoidal(16), nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.middle, self.last = nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 2)
        self.norm = nn.GroupNorm(4, 32)

    def forward(self, x, times):
        x = self.first(x) + self.time(times)
        return self.last(x + nn.functional.silu(self.middle(self.norm(x))))


class EMA:
    def __init__(self, model, decay: float) -> None:
        self.decay, self.module = decay, copy.deepcopy(model).eval()
        self.module.requires_grad_(False)

    @torch.no_grad()
    def update(self, model) -> None:
        for kept, new in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            kept.copy_(self.decay * kept + (1.0 - self.decay) * new)


betas = torch.linspace(1e-4, 0.2, TIMES)
products = torch.cumprod(1 - betas, 0)
model = Denoiser()
average = EMA(model, 0.8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    points = torch.randn(12, 2) * 0.1 + torch.tensor([1.0, -1.0])
    times, noise = torch.randint(TIMES, (12,)), torch.randn(12, 2)
    noisy = products[times].sqrt()[:, None] * points + (1 - products[times]).sqrt()[:, None] * noise
    loss = nn.functional.mse_loss(model(noisy, times), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
    average.update(model)
    print(step, repr(loss.item()))

with torch.no_grad():
    x = torch.randn(3, 2)
    for time in reversed(range(TIMES)):
        predicted = average.module(x, torch.full((3,), time))
        x = (x - betas[time] / (1 - products[time]).sqrt() * predicted) / (1 - betas[time]).sqrt()
        if time:
            x = x + betas[time].sqrt() * torch.randn_like(x)
print("drawn", repr(x.tolist()))
torch.save({"model": model.state_dict(), "average": average.module}, "diffusion.pt")
again = torch.load("diffusion.pt", weights_only=False)["average"]
print("again", repr(again(x, torch.zeros(3, dtype=torch.long)).sum().item()))
