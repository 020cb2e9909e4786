"""Hogwild: processes train one model in shared memory without a process group; they take turns, to be repeatable."""

from __future__ import annotations

import torch
import torch.multiprocessing as mp
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(6, 12), nn.Dropout(0.2), nn.Linear(12, 3)

    def forward(self, x):
        return self.second(self.drop(torch.relu(self.first(x))))


def train(rank: int, model: nn.Module, losses) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for step in range(3):
        x, labels = torch.randn(8, 6), torch.randint(3, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses[rank, step] = loss.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Net()
    model.share_memory()
    losses = torch.zeros(2, 3).share_memory_()
    for rank in range(2):
        process = mp.get_context("spawn" if rank else "fork").Process(target=train, args=(rank, model, losses))
        process.start()
        process.join()
        print("ended", process.exitcode)
    print(repr(losses.tolist()))
    model.eval()
    with torch.no_grad():
        print("test", repr(nn.functional.cross_entropy(model(torch.ones(3, 6)), torch.arange(3)).item()))
    torch.save(model.state_dict(), "net.pt")
