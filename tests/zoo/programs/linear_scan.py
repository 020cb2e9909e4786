"""A gated linear recurrence computed by a parallel scan for training and step by step for generation."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(31)
WIDTH, LENGTH = 12, 16


def parallel_scan(gates, inputs):
    """h[t] = gates[t] * h[t - 1] + inputs[t], in log2(length) passes."""
    shift = 1
    while shift < gates.shape[1]:
        earlier_inputs = F.pad(inputs, (0, 0, shift, 0))[:, : inputs.shape[1]]
        earlier_gates = F.pad(gates, (0, 0, shift, 0), value=1.0)[:, : gates.shape[1]]
        inputs = inputs + gates * earlier_inputs
        gates = gates * earlier_gates
        shift *= 2
    return inputs


def sequential_scan(gates, inputs, state):
    states = []
    for gate, value in zip(gates.unbind(1), inputs.unbind(1), strict=True):
        state = gate * state + value
        states.append(state)
    return torch.stack(states, dim=1)


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, state=None):
        gates = torch.sigmoid(self.gate(x) + 2.0)
        values = (1 - gates) * self.value(x)
        if state is None:
            states = parallel_scan(gates, values)
        else:
            states = sequential_scan(gates, values, state)
        return x + self.out(states), states[:, -1]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, WIDTH)
        self.layers = nn.ModuleList([Recurrence(), Recurrence()])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens, states=None):
        x, following = self.embed(tokens), []
        for number, layer in enumerate(self.layers):
            x, state = layer(x, None if states is None else states[number])
            following.append(state)
        return self.head(x), following


model = Model()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
for step in range(4):
    tokens = torch.randint(10, (3, LENGTH + 1))
    states = None if step % 2 == 0 else [torch.zeros(3, WIDTH), torch.zeros(3, WIDTH)]
    logits, _ = model(tokens[:, :-1], states)
    loss = F.cross_entropy(logits.reshape(-1, 10), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, "parallel" if states is None else "sequential", repr(loss.item()))

model.eval()
with torch.no_grad():
    at_once, _ = model(tokens)
    step_by_step, _ = model(tokens, [torch.zeros(3, WIDTH)] * 2)
    print("same", torch.allclose(at_once, step_by_step, atol=1e-5))
    states, token, made = [torch.zeros(1, WIDTH)] * 2, torch.zeros(1, 1, dtype=torch.long), []
    for _ in range(6):
        logits, states = model(token, states)
        token = logits[:, -1:].argmax(-1)
        made.append(token.item())
print(made)
torch.save(model, "scan.pt")
