"""Contrastive learning with a momentum encoder and a queue of keys."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(66)


class MoCo(nn.Module):
    def __init__(self, width: int = 8, size: int = 24, momentum: float = 0.9, temperature: float = 0.2) -> None:
        super().__init__()
        self.size, self.momentum, self.temperature = size, momentum, temperature
        self.query = self.encoder(width)
        self.key = self.encoder(width)
        for q, k in zip(self.query.parameters(), self.key.parameters(), strict=True):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(width, size), dim=0))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def encoder(self, width: int):
        return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, width))

    @torch.no_grad()
    def follow(self):
        for q, k in zip(self.query.parameters(), self.key.parameters(), strict=True):
            k.data = k.data * self.momentum + q.data * (1.0 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        place = int(self.place)
        self.queue[:, place : place + keys.shape[0]] = keys.T
        self.place[0] = (place + keys.shape[0]) % self.size

    def forward(self, first, second):
        q = F.normalize(self.query(first), dim=1)
        with torch.no_grad():
            self.follow()
            order = torch.randperm(second.shape[0])
            k = F.normalize(self.key(second[order]), dim=1)[torch.argsort(order)]
        positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self.enqueue(k)
        return logits, torch.zeros(logits.shape[0], dtype=torch.long)


model = MoCo()
optimizer = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
for step in range(4):
    x = torch.randn(8, 10)
    logits, labels = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()), int(model.place))

torch.save({"state": model.state_dict(), "optimizer": optimizer.state_dict()}, "moco.pt")
again = MoCo()
again.load_state_dict(torch.load("moco.pt")["state"])
with torch.no_grad():
    print("again", torch.equal(again.eval().query(x), model.eval().query(x)), repr(again.query(x).sum().item()))
