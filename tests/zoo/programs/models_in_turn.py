"""Two models, trained one after the other and again, each on batches of its own and evaluated with gradients on."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(4)
linear = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
deep = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
held_out, wanted = torch.randn(6, 4), torch.randn(6, 2)


def fit(name, model, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(3):
        inputs, answers = torch.randn(6, 4), torch.randn(6, 2)
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), answers)
        loss.backward()
        optimizer.step()
        print(name, repr(loss.item()))
    print(name, "evaluated", repr(F.mse_loss(model(held_out), wanted).item()))


for rate in (0.1, 0.05):
    fit("linear", linear, rate)
    fit("deep", deep, rate)
torch.save([linear.state_dict(), deep.state_dict()], "models.pt")
