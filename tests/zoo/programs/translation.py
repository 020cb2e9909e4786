"""An encoder-decoder transformer that learns to reverse: label smoothing, warm-up, greedy and beam search."""

from __future__ import annotations

import math

import torch
from torch import nn

torch.manual_seed(6)
WORDS, WIDTH, LENGTH, BEGIN, END, PADDING = 14, 32, 6, 1, 2, 0


class Places(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        place = torch.arange(20).unsqueeze(1)
        rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        table = torch.zeros(1, 20, WIDTH)
        table[0, :, 0::2], table[0, :, 1::2] = torch.sin(place * rates), torch.cos(place * rates)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[:, : x.size(1)]


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = (nn.Embedding(WORDS, WIDTH, padding_idx=PADDING) for _ in range(2))
        self.places = Places()
        self.transformer = nn.Transformer(WIDTH, 4, 1, 1, 48, dropout=0.1, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def encode(self, source):
        embedded = self.places(self.source(source) * math.sqrt(WIDTH))
        return self.transformer.encoder(embedded, src_key_padding_mask=source == PADDING)

    def decode(self, target, memory, source):
        embedded = self.places(self.target(target) * math.sqrt(WIDTH))
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        hidden = self.transformer.decoder(
            embedded, memory, tgt_mask=mask, memory_key_padding_mask=source == PADDING, tgt_is_causal=True
        )
        return self.out(hidden)

    def forward(self, source, target):
        return self.decode(target, self.encode(source), source)


def batch_of(count: int):
    source = torch.randint(3, WORDS, (count, LENGTH))
    source[::2, -2:] = PADDING
    reversed_ = source.flip(1)
    begin, end = torch.full((count, 1), BEGIN), torch.full((count, 1), END)
    return source, torch.cat([begin, reversed_, end], dim=1)


@torch.no_grad()
def greedy(source):
    memory, target = model.encode(source), torch.full((source.size(0), 1), BEGIN)
    for _ in range(LENGTH):
        target = torch.cat([target, model.decode(target, memory, source)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return target


@torch.no_grad()
def beam(source, width: int = 3):
    memory, beams = model.encode(source), [(0.0, [BEGIN])]
    for _ in range(LENGTH):
        candidates = []
        for score, words in beams:
            logits = model.decode(torch.tensor([words]), memory, source)[0, -1].log_softmax(-1)
            best = logits.topk(width)
            candidates += [(score + s.item(), [*words, w.item()]) for s, w in zip(*best, strict=True)]
        beams = sorted(candidates, reverse=True)[:width]
    return beams[0]


model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: WIDTH**-0.5 * min((step + 1) ** -0.5, (step + 1) * 400**-1.5)
)
criterion = nn.CrossEntropyLoss(ignore_index=PADDING, label_smoothing=0.1)
for step in range(3):
    source, target = batch_of(6)
    logits = model(source, target[:, :-1])
    loss = criterion(logits.reshape(-1, WORDS), target[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print(step, repr(loss.item()))

model.eval()
torch.save(model, "translator.pt")
source, _ = batch_of(2)
print("greedy", greedy(source).tolist())
print("beam", beam(source[1:]))
print("loss", repr(model(source, source[:, :3]).logsumexp(-1).sum().item()))
