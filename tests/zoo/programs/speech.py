"""Frames to letters with a connectionist loss: convolution, packed bidirectional LSTM, greedy decoding; and a flow."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(15)
LETTERS = "_abcdef"


class Recognizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Hardtanh(0, 20, inplace=True))
        self.rnn = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.out = nn.Linear(12, len(LETTERS), bias=False)

    def forward(self, frames, lengths):
        hidden = self.front(frames).transpose(1, 2)
        packed = pack_padded_sequence(hidden, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(hidden).log_softmax(-1)


class Coupling(nn.Module):
    def __init__(self, flip: bool) -> None:
        super().__init__()
        self.flip, self.net = flip, nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 4))

    def forward(self, x):
        a, b = x.chunk(2, -1)[:: -1 if self.flip else 1]
        log_scale, shift = self.net(a).chunk(2, -1)
        log_scale = torch.tanh(log_scale)
        moved = b * log_scale.exp() + shift
        return torch.cat((moved, a) if self.flip else (a, moved), -1), log_scale.sum(-1)


recognizer = Recognizer()
flow = nn.ModuleList([Coupling(False), Coupling(True)])
optimizer = torch.optim.AdamW([*recognizer.parameters(), *flow.parameters()], lr=1e-2)
criterion = nn.CTCLoss(zero_infinity=True)
for step in range(3):
    frames, lengths = torch.randn(3, 4, 9), torch.tensor([9, 7, 6])
    letters, counts = torch.randint(1, len(LETTERS), (3, 3)), torch.tensor([3, 2, 3])
    logits = recognizer(frames, lengths)
    z, volume = frames.transpose(1, 2), 0.0
    for layer in flow:
        z, change = layer(z)
        volume = volume + change
    likelihood = (-0.5 * (z.pow(2) + math.log(2 * math.pi)).sum(-1) + volume).mean()
    loss = criterion(logits.transpose(0, 1), letters, lengths, counts) - 0.01 * likelihood
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(recognizer.parameters(), 400)
    optimizer.step()
    print(step, repr(loss.item()), repr(likelihood.item()))
recognizer.eval()
with torch.no_grad():
    best = recognizer(frames, lengths).argmax(-1)
for row in best.tolist():
    print("".join(LETTERS[letter] for letter in row).replace("_", "."))
torch.save(recognizer, "recognizer.pt")
