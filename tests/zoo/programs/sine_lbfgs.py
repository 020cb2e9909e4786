"""Sine waves continued by two LSTM cells in float64, fitted with L-BFGS and a closure."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.seed(2)


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm1, self.lstm2 = nn.LSTMCell(1, 8), nn.LSTMCell(8, 8)
        self.linear = nn.Linear(8, 1)

    def forward(self, waves, future: int = 0):
        outputs = []
        h1, c1, h2, c2 = (torch.zeros(waves.size(0), 8, dtype=torch.double) for _ in range(4))
        for value in waves.split(1, dim=1):
            h1, c1 = self.lstm1(value, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        for _ in range(future):
            h1, c1 = self.lstm1(output, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


places = np.arange(12) + np.random.randint(-16, 16, 5).reshape(5, 1)
waves = torch.from_numpy(np.sin(places / 3.0))
inputs, targets = waves[1:, :-1], waves[1:, 1:]
sequence = Sequence().double()
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(sequence.parameters(), lr=0.8, max_iter=3)


def closure():
    optimizer.zero_grad()
    loss = criterion(sequence(inputs), targets)
    print("loss", repr(loss.item()))
    loss.backward()
    return loss


for step in range(3):
    optimizer.step(closure)
    with torch.no_grad():
        continued = sequence(waves[:1, :-1], future=4)
        print("test", repr(criterion(continued[:, :-4], waves[:1, 1:]).item()))
    np.save(f"continued_{step}.npy", continued.numpy())
print("end", repr(sequence(waves[:1, :-1], future=2)[0, -1].item()))
torch.save(sequence, "sequence.pt")
