"""Second-order MAML: fast weights through functional_call, the gradient of a gradient for the outer step."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

torch.manual_seed(222)


class Learner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.body(x))


def task():
    amplitude, phase = 0.1 + 4.9 * torch.rand(1), 3.14 * torch.rand(1)
    x = 10 * torch.rand(10, 1) - 5
    y = amplitude * torch.sin(x + phase)
    return x[:5], y[:5], x[5:], y[5:]


def adapted(x, y, steps: int, create_graph: bool):
    weights = dict(learner.named_parameters())
    for _ in range(steps):
        loss = F.mse_loss(functional_call(learner, weights, (x,)), y)
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=create_graph)
        weights = {name: value - 0.05 * g for (name, value), g in zip(weights.items(), gradients, strict=True)}
    return weights


learner = Learner()
outer = torch.optim.Adam(learner.parameters(), lr=1e-2)
for step in range(3):
    losses = []
    for _ in range(3):
        x_support, y_support, x_query, y_query = task()
        weights = adapted(x_support, y_support, 2, create_graph=True)
        losses.append(F.mse_loss(functional_call(learner, weights, (x_query,)), y_query))
    outer.zero_grad()
    loss = torch.stack(losses).mean()
    loss.backward()
    outer.step()
    print(step, repr(loss.item()))

x_support, y_support, x_query, y_query = task()
weights = adapted(x_support, y_support, 3, create_graph=False)
with torch.no_grad():
    print("adapted", repr(F.mse_loss(functional_call(learner, weights, (x_query,)), y_query).item()))
print("prediction", repr(learner(x_query[:1]).item()))
torch.save(learner, "learner.pt")
