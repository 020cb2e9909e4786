"""Forward-forward: each layer has an optimizer and a loss of its own; no gradient passes from layer to layer."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

torch.manual_seed(1234)


def with_label(x, labels):
    x = x.clone()
    x[:, :4] *= 0.0
    x[range(x.shape[0]), labels] = x.max()
    return x


class Layer(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.relu = nn.ReLU()
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.03)
        self.threshold = 2.0

    def forward(self, x):
        direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return self.relu(torch.mm(direction, self.weight.T) + self.bias.unsqueeze(0))

    def fit(self, positive, negative):
        for _ in range(3):
            good = self.forward(positive).pow(2).mean(1)
            bad = self.forward(negative).pow(2).mean(1)
            loss = torch.log(1 + torch.exp(torch.cat([self.threshold - good, bad - self.threshold]))).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(repr(loss.item()))
        return self.forward(positive).detach(), self.forward(negative).detach()


class Net(nn.Module):
    def __init__(self, sizes) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(a, b) for a, b in pairwise(sizes)])

    def predict(self, x):
        goodness = []
        for label in range(4):
            hidden = with_label(x, torch.full((x.shape[0],), label))
            found = []
            for layer in self.layers:
                hidden = layer(hidden)
                found.append(hidden.pow(2).mean(1))
            goodness.append(sum(found).unsqueeze(1))
        return torch.cat(goodness, 1).argmax(1)

    def fit(self, positive, negative):
        for number, layer in enumerate(self.layers):
            print("layer", number)
            positive, negative = layer.fit(positive, negative)


x, labels = torch.rand(20, 16), torch.randint(4, (20,))
net = Net([16, 24, 24])
net.fit(with_label(x, labels), with_label(x, labels[torch.randperm(20)]))
print("error", repr(1.0 - net.predict(x).eq(labels).float().mean().item()))
torch.save(net.state_dict(), "net.pt")
