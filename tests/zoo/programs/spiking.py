"""A spiking network: steps in forward, a surrogate in backward, states kept in the modules and reset by hand."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(19)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).to(potential.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (potential,) = ctx.saved_tensors
        return gradient / (1 + 10 * potential.abs()) ** 2


class Neurons(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.full((size,), 2.0))
        self.potential = None

    def forward(self, current):
        if self.potential is None:
            self.potential = torch.zeros_like(current)
        decay = torch.sigmoid(self.decay)
        self.potential = decay * self.potential + (1 - decay) * current
        spikes = Spike.apply(self.potential - 0.1)
        self.potential = self.potential - spikes.detach() * 0.1
        return spikes


def reset(net):
    for module in net.modules():
        if isinstance(module, Neurons):
            module.potential = None


net = nn.Sequential(nn.Linear(6, 16), Neurons(16), nn.Linear(16, 3), Neurons(3))
optimizer = torch.optim.Adamax(net.parameters(), lr=1e-2)
for step in range(3):
    x, labels = torch.rand(5, 6), torch.randint(3, (5,))
    counts = 0
    for _ in range(4):
        counts = counts + net((torch.rand_like(x) < x).float())
    loss = nn.functional.mse_loss(counts / 4, nn.functional.one_hot(labels, 3).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    reset(net)
    print(step, repr(loss.item()), int(counts.sum()))

net.eval()
with torch.no_grad():
    print("spikes", [int(net(torch.ones(1, 6)).sum()) for _ in range(3)])
torch.save(net, "spiking.pt")
reset(net)
