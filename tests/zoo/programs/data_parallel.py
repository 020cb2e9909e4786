"""DistributedDataParallel on two ranks: a distributed sampler, accumulation under no_sync, the first rank saves."""

from __future__ import annotations

import contextlib
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def work(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    data = TensorDataset(torch.randn(32, 6), torch.randint(3, (32,)))
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    inner = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 3))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    lines = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (x, labels) in enumerate(loader):
            last = number % 2 == 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), labels) / 2
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            lines.append(repr(loss.item()))
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "checkpoint.pt")
        dist.barrier()
    model.eval()
    right = torch.tensor([(model(data.tensors[0][rank::2]).argmax(1) == data.tensors[1][rank::2]).sum()])
    dist.all_reduce(right)
    lines.append(str(right.item()))
    weights = torch.nn.utils.parameters_to_vector(inner.parameters()).detach()
    with open(f"log_{rank}.txt", "w") as file:
        file.write("\n".join([*lines, repr(weights.double().sum().item())]))
    # The reducer of the model must not be the last that holds the group: it would wait for a thread of the group, which
    # may itself wait for Python's lock (torch 2.13).
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.abspath("store")
    mp.start_processes(work, args=(store,), nprocs=2, start_method="fork")
    if os.path.exists(store):
        os.remove(store)
    for rank in range(2):
        with open(f"log_{rank}.txt") as file:
            print(file.read())
    print(sorted(torch.load("checkpoint.pt")["model"]))
