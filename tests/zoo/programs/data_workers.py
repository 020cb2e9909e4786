"""Batches come from worker processes with random augmentation of their own; the best weights are kept."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

torch.manual_seed(21)


class Pictures(Dataset):
    def __init__(self, count: int) -> None:
        self.pictures = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int):
        picture = torch.from_numpy(self.pictures[index])
        if torch.rand(()) < 0.5:
            picture = picture.flip(-1)
        return picture + 0.01 * torch.randn(1, 8, 8), index % 3


class Numbers(IterableDataset):
    def __iter__(self):
        for number in range(4):
            yield torch.full((1, 8, 8), number / 4.0), number % 3


model = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
model(torch.zeros(1, 1, 8, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(Pictures(12), batch_size=4, shuffle=True, num_workers=2, drop_last=True)
best, kept = float("inf"), None
for epoch in range(2):
    model.train()
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, repr(loss.item()))
    model.eval()
    with torch.no_grad():
        total = 0.0
        for pictures, labels in DataLoader(Numbers(), batch_size=2, num_workers=1):
            total += nn.functional.cross_entropy(model(pictures), labels).item()
    if total < best:
        best, kept = total, copy.deepcopy(model.state_dict())
    print("valid", repr(total))
model.load_state_dict(kept)
torch.save(model, "best.pt")
