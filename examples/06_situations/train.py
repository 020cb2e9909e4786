"""A small training in which things go wrong as they do in large ones: the program of docs/situations.

    python train.py                     the healthy training
    python train.py --eps 1e-3          a default that changed with a library
    python train.py --empty-batch 2     a batch without labels: the loss is divided by 0
    python train.py --dropout 0.1 --seed 2
    python train.py --steps 2 --save state.pt
    python train.py --steps 2 --resume state.pt [--forget-optimizer]
    torchrun --nproc-per-node 2 train.py [--forget-mean]

It does not know msprobe.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.nn.functional as F
from torch import distributed, nn

WORDS, LENGTH, WIDTH, HEADS, BATCH = 50, 16, 32, 2, 8
NO_LABEL = -100


class Block(nn.Module):
    """Attention and two linear maps, each behind a norm."""

    def __init__(self, eps: float, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=eps), nn.LayerNorm(WIDTH, eps=eps)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: [batch, tokens, width]; the result has the same shape."""
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    """Predicts the next word."""

    def __init__(self, eps: float = 1e-5, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block(eps, dropout) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor, places: torch.Tensor | None = None) -> torch.Tensor:
        """``words``: [batch, tokens]; the scores of the next word at each place."""
        places = torch.arange(words.shape[1]) if places is None else places
        return self.head(self.norm(self.blocks(self.words(words) + self.places(places))))


def batch_of(step: int) -> torch.Tensor:
    """Words of a step: the same in every run, also in one that is resumed."""
    return torch.randint(WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, words: torch.Tensor, has_labels: bool) -> torch.Tensor:
    """The mean over all words that have a label."""
    labels = words[:, 1:].flatten() if has_labels else torch.full((words[:, 1:].numel(),), NO_LABEL)
    scores = model(words[:, :-1]).flatten(0, 1)
    total = F.cross_entropy(scores, labels, ignore_index=NO_LABEL, reduction="sum")
    return total / (labels != NO_LABEL).sum()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train a small GPT.")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eps", type=float, default=1e-5)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--empty-batch", type=int, metavar="STEP")
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--resume", metavar="FILE")
    parser.add_argument("--forget-optimizer", action="store_true")
    parser.add_argument("--forget-mean", action="store_true")
    options = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = Model(options.eps, options.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if options.resume:
        state = torch.load(options.resume)
        first = state["step"]
        model.load_state_dict(state["model"])
        if not options.forget_optimizer:
            optimizer.load_state_dict(state["optimizer"])
    for step in range(first, first + options.steps):
        words = batch_of(step)
        if ranks > 1:
            words = words.chunk(ranks)[distributed.get_rank()]
        loss = loss_of(model, words, has_labels=step != options.empty_batch)
        loss.backward()
        if ranks > 1:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad)
                if not options.forget_mean:
                    parameter.grad /= ranks
        optimizer.step()
        optimizer.zero_grad()
        if ranks == 1 or distributed.get_rank() == 0:
            print(f"step {step}  loss {loss.item():.4f}")
    if options.save:
        state = {"step": first + options.steps, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, options.save)
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
