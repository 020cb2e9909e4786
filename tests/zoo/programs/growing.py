"""Layers are added in the middle of the training and given to the optimizer; the program ends early with a status."""

from __future__ import annotations

import sys

import torch
from torch import nn

torch.manual_seed(48)


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.out = nn.ModuleList([nn.Linear(6, 6)]), nn.Linear(6, 2)
        self.share = 1.0

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            y = torch.relu(block(x))
            x = y if number < len(self.blocks) - 1 else self.share * y + (1 - self.share) * x
        return self.out(x)

    def grow(self):
        self.blocks.append(nn.Linear(6, 6))
        self.share = 0.3
        return self.blocks[-1].parameters()


model = Growing()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
patience, best = 2, float("inf")
for step in range(20):
    if step in (1, 3):
        optimizer.add_param_group({"params": list(model.grow()), "lr": 2e-2})
    x = torch.randn(8, 6)
    loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.share = min(1.0, model.share + 0.2)
    print(step, len(model.blocks), repr(loss.item()))
    patience = 2 if loss.item() < best else patience - 1
    best = min(best, loss.item())
    if step >= 5 or patience == 0:
        torch.save(model, "grown.pt")
        print("stopped", file=sys.stderr)
        sys.exit(3)
