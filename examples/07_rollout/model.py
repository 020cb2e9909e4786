"""A language model of two kilobytes, the same in the engine and in the trainer."""

from __future__ import annotations

import torch
from torch import nn

WORDS, LENGTH = 40, 48


class Model(nn.Module):
    """Scores of the next word, of every place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(WORDS, 24)
        self.layer = nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Words of shape (requests, places): scores of shape (requests, places, WORDS)."""
        return self.head(4.0 * self.layer(self.embedding(words))[0])
