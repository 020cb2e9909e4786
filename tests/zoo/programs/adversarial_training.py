"""Inputs are moved against the model by its own gradients before each update; gradients of two tasks are projected."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(61)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1))
        self.first, self.second = nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x):
        hidden = self.body(x)
        return self.first(hidden), self.second(hidden)


def attacked(x, labels):
    model.eval()
    moved = x + torch.empty_like(x).uniform_(-0.1, 0.1)
    for _ in range(2):
        moved = moved.detach().requires_grad_(True)
        loss = F.cross_entropy(model(moved)[0], labels)
        (gradient,) = torch.autograd.grad(loss, moved)
        moved = x + (moved + 0.05 * gradient.sign() - x).clamp(-0.1, 0.1)
    model.train()
    return moved.detach()


def projected(gradients):
    one, two = gradients
    product = sum((a * b).sum() for a, b in zip(one, two, strict=True))
    if product < 0:
        size = sum(b.pow(2).sum() for b in two)
        one = [a - product / size * b for a, b in zip(one, two, strict=True)]
    return [a + b for a, b in zip(one, two, strict=True)], product.item()


model = Net()
shared = list(model.body.parameters())
heads = [*model.first.parameters(), *model.second.parameters()]
optimizer = torch.optim.SGD([{"params": shared}, {"params": heads, "lr": 0.2}], lr=0.1, momentum=0.9)
for step in range(3):
    x, labels, sides = torch.randn(8, 6), torch.randint(3, (8,)), torch.randint(2, (8,))
    first, second = model(attacked(x, labels))
    losses = F.cross_entropy(first, labels), F.cross_entropy(second, sides)
    optimizer.zero_grad()
    gradients = [torch.autograd.grad(loss, shared, retain_graph=True) for loss in losses]
    sum(losses).backward(inputs=heads)
    combined, product = projected(gradients)
    for parameter, gradient in zip(shared, combined, strict=True):
        parameter.grad = gradient
    optimizer.step()
    print(step, *(repr(loss.item()) for loss in losses), repr(product))
model.eval()
print("robust", repr(F.cross_entropy(model(attacked(x, labels))[0], labels).item()))
torch.save({"model": model.state_dict(), "groups": optimizer.state_dict()["param_groups"]}, "robust.pt")
