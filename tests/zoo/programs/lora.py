"""A model is trained, then linear layers are replaced by frozen ones with low-rank additions, trained and merged."""

from __future__ import annotations

import math

import torch
from torch import nn

torch.manual_seed(77)


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 2, alpha: float = 4.0) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.A, self.B = (
            nn.Parameter(torch.empty(rank, base.in_features)),
            nn.Parameter(torch.zeros(base.out_features, rank)),
        )
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        self.drop = nn.Dropout(0.05)

    def forward(self, x):
        return self.base(x) + self.drop(x) @ self.A.T @ self.B.T * self.scale

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.B @ self.A
        return self.base


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.query, self.value, self.out = nn.LayerNorm(16), *(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        y = self.norm(x)
        return x + self.out((self.query(y) @ y.transpose(1, 2)).softmax(-1) @ self.value(y))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(12, 16), nn.ModuleList([Block(), Block()]), nn.Linear(16, 12)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def replaced(module, kind, make):
    for name, child in list(module.named_children()):
        if isinstance(child, kind) and name in ("query", "value"):
            setattr(module, name, make(child))
        else:
            replaced(child, kind, make)
    return module


def train(name, steps):
    for step in range(steps):
        tokens = torch.randint(12, (4, 7))
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(name, step, repr(loss.item()))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
train("whole", 2)
model.requires_grad_(False)
replaced(model, nn.Linear, LoRALinear)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
train("low rank", 3)
small = {name: value for name, value in model.state_dict().items() if name.endswith((".A", ".B"))}
torch.save(small, "adapter.pt")
print(sorted(small))
model.eval()
tokens = torch.arange(6).unsqueeze(0)
before = model(tokens)
replaced(model, LoRALinear, LoRALinear.merged)
print("merged", torch.allclose(before, model(tokens), atol=1e-5), repr(model(tokens).sum().item()))
torch.save(model, "merged.pt")
print(model)
