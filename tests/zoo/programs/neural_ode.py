"""A differential equation solved by Runge-Kutta steps; gradients by the adjoint equation in a function of autograd."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

torch.manual_seed(57)


class Dynamics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2))

    def forward(self, t, y):
        return self.net(y**3)


def runge_kutta(f, t, dt, y):
    k1 = f(t, y)
    k2 = f(t + dt / 2, y + dt * k1 / 2)
    k3 = f(t + dt / 2, y + dt * k2 / 2)
    k4 = f(t + dt, y + dt * k3)
    return y + dt * (k1 + 2 * k2 + 2 * k3 + k4) / 6


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dynamics, y, steps, *parameters):
        ctx.dynamics, ctx.steps = dynamics, steps
        for number in range(steps):
            y = runge_kutta(dynamics, number * 0.1, 0.1, y)
        ctx.save_for_backward(y, *parameters)
        return y

    @staticmethod
    def backward(ctx, gradient):
        y, *parameters = ctx.saved_tensors
        sums = [torch.zeros_like(one) for one in parameters]
        for number in reversed(range(ctx.steps)):
            with torch.enable_grad():
                y = y.detach().requires_grad_()
                slope = ctx.dynamics(number * 0.1, y)
                found = torch.autograd.grad(slope, [y, *parameters], gradient)
            gradient = gradient + 0.1 * found[0]
            sums = [total + 0.1 * one for total, one in zip(sums, found[1:], strict=True)]
            y = y.detach() - 0.1 * slope.detach()
        return None, gradient, None, *sums


dynamics = Dynamics()
optimizer = torch.optim.RMSprop(dynamics.parameters(), lr=1e-2)
turn = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
for step in range(3):
    start = torch.randn(4, 2)
    wanted = start
    for _ in range(5):
        wanted = runge_kutta(lambda t, y: y**3 @ turn, 0.0, 0.1, wanted)
    optimizer.zero_grad()
    loss = (Adjoint.apply(dynamics, start, 5, *dynamics.parameters()) - wanted).abs().mean()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()), repr(parameters_to_vector(dynamics.parameters()).norm().item()))
with torch.no_grad():
    y = torch.ones(1, 2)
    for number in range(4):
        y = runge_kutta(dynamics, number * 0.1, 0.1, y)
    print("path", repr(y.tolist()))
torch.save(dynamics, "dynamics.pt")
