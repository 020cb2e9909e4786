"""A compiled model and a compiled training step, with backend eager; the original is saved and exported."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(91)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 12), nn.ReLU()), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.body(x))


def loss_of(x, labels):
    return nn.functional.cross_entropy(compiled(x), labels)


model = Net()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
step_of = torch.compile(loss_of, backend="eager")
for step in range(3):
    x, labels = torch.randn(8, 6), torch.randint(3, (8,))
    loss = step_of(x, labels) if step else loss_of(x, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))

model.eval()
with torch.no_grad():
    print("eval", repr(compiled(torch.ones(1, 6)).tolist()))
torch.save(compiled.state_dict(), "compiled.pt")
torch.save(model, "model.pt")
again = torch.load("model.pt", weights_only=False)
print("again", repr(again(torch.ones(1, 6)).tolist()))
