"""Two stages of a model on two ranks: activations are sent forward, gradients back, in micro-batches."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WIDTH, MICRO_BATCHES = 8, 2


def stage_of(rank: int):
    torch.manual_seed(9 + rank)
    last = nn.Linear(WIDTH, 4) if rank else nn.Tanh()
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), last)


def first_stage(stage, step):
    kept = []
    for micro in range(MICRO_BATCHES):
        torch.manual_seed(100 * step + micro)
        output = stage(torch.randn(3, WIDTH))
        dist.send(output.detach(), dst=1)
        kept.append(output)
    for output in kept:
        gradient = torch.empty_like(output)
        dist.recv(gradient, src=1)
        output.backward(gradient)


def last_stage(stage, step):
    total = 0.0
    losses = []
    for micro in range(MICRO_BATCHES):
        inputs = torch.empty(3, WIDTH)
        dist.recv(inputs, src=0)
        inputs.requires_grad_()
        targets = (torch.arange(3) + step + micro) % 4
        loss = nn.functional.cross_entropy(stage(inputs), targets) / MICRO_BATCHES
        losses.append((inputs, loss))
        total += loss.item()
    for inputs, loss in losses:
        loss.backward()
        dist.send(inputs.grad, dst=0)
    return total


def work(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    stage = stage_of(rank)
    optimizer = torch.optim.Adam(stage.parameters(), lr=1e-2)
    lines = []
    for step in range(3):
        optimizer.zero_grad()
        loss = (last_stage if rank else first_stage)(stage, step)
        optimizer.step()
        lines.append(f"{step} {loss!r} {stage[0].weight.double().sum().item()!r}")
    torch.save(stage, f"stage_{rank}.pt")
    torch.save(optimizer.state_dict(), f"optimizer_{rank}.pt")
    with open(f"log_{rank}.txt", "w") as file:
        file.write("\n".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.abspath("store")
    mp.start_processes(work, args=(store,), nprocs=2, start_method=sys.argv[1] if len(sys.argv) > 1 else "fork")
    if os.path.exists(store):
        os.remove(store)
    for rank in range(2):
        with open(f"log_{rank}.txt") as file:
            print(file.read())
    whole = nn.Sequential(*(torch.load(f"stage_{rank}.pt", weights_only=False) for rank in range(2)))
    with torch.no_grad():
        print("whole", repr(whole(torch.ones(1, WIDTH)).tolist()))
