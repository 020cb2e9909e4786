"""No gradient at all: a population of weights is drawn, judged without gradients and averaged by ranks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.manual_seed(34)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
centre = parameters_to_vector(model.parameters()).detach().clone()
x = torch.randn(16, 3)
y = (x[:, :1] * x[:, 1:2]).sin()


@torch.no_grad()
def fitness(weights):
    vector_to_parameters(weights, model.parameters())
    return -nn.functional.mse_loss(model(x), y)


for generation in range(3):
    noise = torch.randn(6, len(centre))
    noise = torch.cat([noise, -noise])
    scores = torch.stack([fitness(centre + 0.1 * one) for one in noise])
    ranks = scores.argsort().argsort().float() / (len(scores) - 1) - 0.5
    centre += 0.2 / (len(noise) * 0.1) * noise.T @ ranks
    print(generation, repr(scores.max().item()), repr(fitness(centre).item()))
torch.save(model, "evolved.pt")
print("prediction", repr(model(x[:2]).tolist()))
