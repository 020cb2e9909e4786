"""The model is a script from the beginning and trains as such; a custom LSTM loops inside, the end is frozen."""

from __future__ import annotations

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(12)
torch.jit.set_fusion_strategy([("STATIC", 0), ("DYNAMIC", 0)])


class Cell(torch.jit.ScriptModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 12) * 0.3)

    @torch.jit.script_method
    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        gates = torch.cat([x, h], 1) @ self.weight.t()
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = Cell(), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.size(1), 8)
        c = torch.zeros(x.size(1), 8)
        for t in range(x.size(0)):
            h, c = self.cell(x[t], h, c)
        return self.out(h)


eager = Model()
scripted = torch.jit.script(eager)
optimizer = torch.optim.Adam(scripted.parameters(), lr=1e-2)
for step in range(4):
    model = eager if step % 2 else scripted
    x, labels = torch.randn(4, 5, 4), torch.randint(2, (5,))
    loss = nn.functional.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
frozen = torch.jit.freeze(scripted.eval())
frozen.save("frozen.pt")
print("frozen", repr(torch.jit.load("frozen.pt")(x).tolist()))
