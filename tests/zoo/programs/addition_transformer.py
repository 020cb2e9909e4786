"""A transformer that learns to add numbers of two digits; accuracy is counted with gradients on; the end is a trace."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
LENGTH, WIDTH = 9, 32


def digits_of(first, second):
    """`a + b = c` as numbers of characters, with the digits of c reversed."""
    texts = [f"{a:02d}+{b:02d}={a + b:03d}"[:6] + f"{a + b:03d}"[::-1] for a, b in zip(first, second, strict=True)]
    return torch.tensor([["0123456789+=".index(character) for character in text] for text in texts])


class Adder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(12, WIDTH), nn.Parameter(torch.zeros(1, LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, 12)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        return self.out(self.layers(self.tokens(tokens) + self.places[:, :length], mask=mask))


model = Adder()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
for _ in range(4):
    tokens = digits_of(rng.integers(0, 100, 16), rng.integers(0, 100, 16))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits[:, 5:].reshape(-1, 12), tokens[:, 6:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(repr(loss.item()), repr(scheduler.get_last_lr()))

model.eval()
tokens = digits_of([12, 34, 99], [30, 7, 1])
right = (model(tokens[:, :-1])[:, 5:].argmax(-1) == tokens[:, 6:]).sum()
print("right", int(right), "of", tokens[:, 6:].numel())
traced = torch.jit.trace(model, tokens[:, :-1], check_trace=False)
traced.save("adder.pt")
print("traced", torch.equal(torch.jit.load("adder.pt")(tokens[:, :-1]), traced(tokens[:, :-1])))
with torch.no_grad():
    answer = digits_of([55], [17])[:, :6]
    for _ in range(3):
        answer = torch.cat([answer, model(answer)[:, -1:].argmax(-1)], dim=1)
print("".join("0123456789+="[token] for token in answer[0].tolist()))
