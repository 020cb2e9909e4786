"""Replicas of a model run in threads, as DataParallel does; a further thread makes the batches."""

from __future__ import annotations

import queue
import threading

import torch
from torch import nn

torch.manual_seed(64)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 10), nn.Linear(10, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def produce():
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        batches.put(torch.randn(8, 5, generator=generator))
    batches.put(None)


def parallel(replicas, parts):
    results = [None] * len(parts)

    def work(number):
        results[number] = replicas[number](parts[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
        thread.join()  # one after the other: gradients are added in the same order each time
    return torch.cat(results)


batches: queue.Queue = queue.Queue(maxsize=2)
producer = threading.Thread(target=produce)
producer.start()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while (x := batches.get()) is not None:
    whole = model(x)
    made = parallel([model, model], x.chunk(2))
    loss = made.pow(2).mean() + (whole - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()), torch.allclose(whole, made))
producer.join()
model.eval()
print("end", repr(model(torch.ones(1, 5)).tolist()))
