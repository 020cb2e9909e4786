"""A sparse mixture of experts: tokens are routed to two of four experts, with noise, capacity and a balancing loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(44)
WIDTH, EXPERTS, CHOSEN = 12, 4, 2


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        return self.net(x)


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores, self.noise = nn.Linear(WIDTH, EXPERTS), nn.Linear(WIDTH, EXPERTS)

    def forward(self, x):
        scores = self.scores(x)
        if self.training:
            scores = scores + torch.randn_like(scores) * F.softplus(self.noise(x))
        best, chosen = scores.topk(CHOSEN, dim=-1)
        sparse = torch.full_like(scores, float("-inf")).scatter(-1, chosen, best)
        return F.softmax(sparse, dim=-1), chosen


class SparseMoE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = Router(), nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x):
        weights, chosen = self.router(x)
        result = torch.zeros_like(x)
        flat_x, flat_weights = x.view(-1, WIDTH), weights.view(-1, EXPERTS)
        flat_result = result.view(-1, WIDTH)
        capacity = int(flat_x.shape[0] * CHOSEN / EXPERTS * 1.25)
        for number, expert in enumerate(self.experts):
            mask = (chosen == number).any(dim=-1).view(-1)
            places = torch.nonzero(mask).squeeze(-1)[:capacity]
            if places.numel() > 0:
                made = expert(flat_x[places]) * flat_weights[places, number].unsqueeze(1)
                flat_result.index_add_(0, places, made)
        share = flat_weights.mean(0)
        used = F.one_hot(chosen, EXPERTS).float().mean((0, 1)).sum(0)
        return result, EXPERTS * (share * used).sum()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.moe, self.norm, self.head = (
            nn.Embedding(16, WIDTH),
            SparseMoE(),
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 16),
        )

    def forward(self, tokens):
        x = self.embed(tokens)
        mixed, balance = self.moe(self.norm(x))
        return self.head(x + mixed), balance


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    tokens = torch.randint(16, (2, 9))
    logits, balance = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * balance
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    idle = [name for name, p in model.named_parameters() if p.grad is None]
    print(step, repr(loss.item()), repr(balance.item()), len(idle))

model.eval()
print("eval", repr(model(tokens)[0].mean().item()))
torch.save(model, "experts.pt")
