"""A character GPT: tied embeddings, accumulated gradients, warm-up, clipping, the best checkpoint, text at the end."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the quick brown dog. " * 6
LENGTH, WIDTH, HEADS, ACCUMULATED = 16, 24, 3, 3

torch.manual_seed(1337)
characters = sorted(set(TEXT))
number_of = {character: number for number, character in enumerate(characters)}
data = torch.tensor([number_of[character] for character in TEXT])
train_data, test_data = data[:400], data[400:]


class CausalAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.out(mixed.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = CausalAttention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "tokens": nn.Embedding(len(characters), WIDTH),
                "places": nn.Embedding(LENGTH, WIDTH),
                "blocks": nn.ModuleList([Block() for _ in range(2)]),
                "norm": nn.LayerNorm(WIDTH),
            }
        )
        self.head = nn.Linear(WIDTH, len(characters), bias=False)
        self.transformer["tokens"].weight = self.head.weight
        self.apply(self._initialise)

    def _initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, tokens, targets=None):
        places = torch.arange(tokens.size(1))
        x = self.transformer["tokens"](tokens) + self.transformer["places"](places)
        for block in self.transformer["blocks"]:
            x = block(x)
        x = self.transformer["norm"](x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def optimizer(self):
        decayed = [parameter for parameter in self.parameters() if parameter.dim() >= 2]
        others = [parameter for parameter in self.parameters() if parameter.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))

    @torch.no_grad()
    def generate(self, tokens, count, top=5):
        for _ in range(count):
            logits, _ = self(tokens[:, -LENGTH:])
            logits = logits[:, -1, :] / 0.8
            least, _ = torch.topk(logits, top)
            logits[logits < least[:, [-1]]] = -float("inf")
            tokens = torch.cat((tokens, torch.multinomial(F.softmax(logits, dim=-1), 1)), dim=1)
        return tokens


def batch_of(source):
    starts = torch.randint(len(source) - LENGTH - 1, (4,))
    inputs = torch.stack([source[start : start + LENGTH] for start in starts])
    targets = torch.stack([source[start + 1 : start + 1 + LENGTH] for start in starts])
    return inputs, targets


@torch.no_grad()
def estimate():
    model.eval()
    means = {}
    for name, source in (("train", train_data), ("test", test_data)):
        means[name] = torch.stack([model(*batch_of(source))[1] for _ in range(2)]).mean().item()
    model.train()
    return means


model = GPT()
optimizer = model.optimizer()
best = float("inf")
batch = batch_of(train_data)
for step in range(4):
    for group in optimizer.param_groups:
        group["lr"] = 3e-3 * min(1.0, (step + 1) / 2)
    if step % 2 == 0:
        losses = estimate()
        print("step", step, repr(losses))
        if losses["test"] < best:
            best = losses["test"]
            checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "best": best}
            torch.save(checkpoint, "checkpoint.pt")
    for _ in range(ACCUMULATED):
        _, loss = model(*batch)
        loss = loss / ACCUMULATED
        batch = batch_of(train_data)
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(repr(loss.item() * ACCUMULATED), repr(norm.item()))

model.eval()
for seed in (1, 2):
    torch.manual_seed(seed)
    text = model.generate(torch.tensor([[number_of["t"]]]), 20)[0].tolist()
    print("".join(characters[token] for token in text))
again = GPT()
again.load_state_dict(torch.load("checkpoint.pt")["model"])
print("loaded", sum(parameter.numel() for parameter in again.parameters()), torch.load("checkpoint.pt")["step"])
