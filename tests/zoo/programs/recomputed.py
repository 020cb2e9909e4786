"""Activations are computed again in backward; jagged sequences, attention of torch's own and a loss in chunks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(83)
WIDTH = 16


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(self.out(mixed.transpose(1, 2).flatten(2)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru = (
            nn.Embedding(10, WIDTH, padding_idx=0),
            nn.GRU(WIDTH, WIDTH // 2, bidirectional=True, batch_first=True),
        )
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.tail = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        x, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.training else layer(x)
        x = checkpoint_sequential(self.tail, 2, x, use_reentrant=False)
        return torch.cat([self.head(part) for part in x.split(2, dim=1)], dim=1)


model = Model()
optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)
for step in range(3):
    lengths = torch.tensor([6, 4, 2])
    tokens = torch.randint(1, 10, (3, 6)) * (torch.arange(6) < lengths[:, None])
    loss = F.cross_entropy(model(tokens, lengths)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))

model.eval()
with torch.no_grad():
    print("eval", repr(model(tokens, lengths).sum().item()))
nested = torch.nested.nested_tensor([torch.randn(2, WIDTH), torch.randn(3, WIDTH)], layout=torch.jagged)
print("nested", repr(model.tail(nested).values().sum().item()))
torch.save(model.state_dict(), "recomputed.pt")
