"""A variational autoencoder; the whole model is saved after every epoch and loaded again, and samples are drawn."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc21 = nn.Linear(32, 4)
        self.fc22 = nn.Linear(32, 4)
        self.fc3 = nn.Linear(4, 32)
        self.fc4 = nn.Linear(32, 64)

    def encode(self, x):
        hidden = F.relu(self.fc1(x))
        return self.fc21(hidden), self.fc22(hidden)

    def sample(self, mean, log_variance):
        deviation = torch.exp(0.5 * log_variance)
        return mean + torch.randn_like(deviation) * deviation

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mean, log_variance = self.encode(x.view(-1, 64))
        return self.decode(self.sample(mean, log_variance)), mean, log_variance


def loss_of(rebuilt, x, mean, log_variance):
    likelihood = F.binary_cross_entropy(rebuilt, x.view(-1, 64), reduction="sum")
    return likelihood - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())


def train(epoch):
    model.train()
    total = 0.0
    for (pictures,) in train_loader:
        optimizer.zero_grad()
        loss = loss_of(*(lambda made: (made[0], pictures, made[1], made[2]))(model(pictures)))
        loss.backward()
        total += loss.item()
        optimizer.step()
    print("epoch", epoch, repr(total / len(train_loader.dataset)))


def test():
    model.eval()
    total = 0.0
    with torch.no_grad():
        for (pictures,) in test_loader:
            rebuilt, mean, log_variance = model(pictures)
            total += loss_of(rebuilt, pictures, mean, log_variance).item()
    print("test", repr(total / len(test_loader.dataset)))


pictures = torch.rand(40, 8, 8)
train_loader = DataLoader(TensorDataset(pictures[:32]), batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(pictures[32:]), batch_size=16)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
copies = []
for epoch in range(2):
    train(epoch)
    torch.save(model, f"vae_{epoch}.pt")
    copies.append(copy.deepcopy(model))
    test()
    with torch.no_grad():
        drawn = model.decode(torch.randn(3, 4))
    print(repr(drawn.mean().item()))
again = torch.load("vae_1.pt", weights_only=False)
rebuilt, _, _ = again(pictures[:1])
print("again", repr(rebuilt.sum().item()), torch.equal(again.fc4.weight, copies[1].fc4.weight))
