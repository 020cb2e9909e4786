"""A training that is stopped in the middle and resumed in new objects from a checkpoint, with all random states."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

PATH = "checkpoint.pt"


def seeded(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3), nn.Linear(12, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.step = 0

    def train(self, until: int) -> None:
        while self.step < until:
            x = torch.randn(8, 6) + float(np.random.rand()) + random.random()
            loss = self.model(x).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            print(self.step, repr(loss.item()))

    def save(self) -> None:
        random_states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
        torch.save({**parts, "step": self.step, "random": random_states}, PATH)

    def load(self) -> None:
        parts = torch.load(PATH, weights_only=False)
        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(parts[name])
        self.step = parts["step"]
        python, numpy, own = parts["random"]
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(own)


seeded(13)
first = Trainer()
first.train(2)
first.save()
first.train(4)
seeded(0)
second = Trainer()
second.load()
second.train(4)
same = all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
print("same", same)
with torch.no_grad():
    print("eval", repr(second.model.eval()(torch.ones(2, 6)).tolist()))
