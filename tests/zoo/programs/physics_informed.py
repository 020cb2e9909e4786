"""A physics-informed network for the heat equation: derivatives of second order of the output in the loss."""

from __future__ import annotations

import math

import torch
from torch import nn

torch.manual_seed(37)


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


def derivative(of, by):
    return torch.autograd.grad(of, by, grad_outputs=torch.ones_like(of), create_graph=True)[0]


def residual(x, t):
    u = field(x, t)
    return derivative(u, t) - 0.1 * derivative(derivative(u, x), x)


field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
x, t = torch.rand(20, 1, requires_grad=True), torch.rand(20, 1, requires_grad=True)
x_start, edges = torch.rand(10, 1), torch.cat([torch.zeros(5, 1), torch.ones(5, 1)])
for step in range(3):
    optimizer.zero_grad()
    inside = residual(x, t).pow(2).mean()
    start = (field(x_start, torch.zeros(10, 1)) - torch.sin(math.pi * x_start)).pow(2).mean()
    edge = field(edges, torch.rand(10, 1)).pow(2).mean()
    loss = inside + start + edge
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()), repr(inside.item()), repr(x.grad.norm().item()))

refined = torch.optim.LBFGS(field.parameters(), max_iter=2, history_size=3, line_search_fn="strong_wolfe")


def closure():
    refined.zero_grad()
    loss = residual(x, t).pow(2).mean() + field(edges, torch.zeros(10, 1)).pow(2).mean()
    loss.backward()
    return loss


print("refined", repr(float(refined.step(closure))))
grid = torch.linspace(0, 1, 3).unsqueeze(1)
print("field", repr(field(grid, torch.full((3, 1), 0.5)).flatten().tolist()))
torch.save(field, "field.pt")
