"""Meta-learning with copies: each task trains a deep copy with an optimizer of its own, the original follows."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
outer = torch.optim.Adam(model.parameters(), lr=0.01)


def task():
    turned = torch.linalg.qr(torch.randn(4, 4))[0]
    x = torch.randn(16, 4)
    return x, (x @ turned)[:, :3].argmax(1)


for step in range(3):
    outer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(2):
        x, labels = task()
        learner = copy.deepcopy(model)
        inner = torch.optim.SGD(learner.parameters(), lr=0.1)
        for _ in range(2):
            loss = F.cross_entropy(learner(x[:8]), labels[:8])
            inner.zero_grad()
            loss.backward()
            inner.step()
        query = F.cross_entropy(learner(x[8:]), labels[8:])
        learner.zero_grad()
        query.backward()
        for parameter, fast in zip(model.parameters(), learner.parameters(), strict=True):
            parameter.grad.add_(fast.grad, alpha=0.5)
    outer.step()
    print(step, repr(loss.item()), repr(query.item()))

torch.save({"model": model, "learner": learner}, "both.pt")
both = torch.load("both.pt", weights_only=False)
hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for one in both.values() for part in one.modules()]
print("hooks", sum(hooks), repr(both["learner"](x[:1]).sum().item()))
