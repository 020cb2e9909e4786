"""A multilayer perceptron split by columns and rows over two ranks, with collectives in functions of autograd."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WIDTH, HIDDEN = 8, 16


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class SumOfRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ParallelMLP(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(2)
        up, down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        half = slice(rank * HIDDEN // 2, (rank + 1) * HIDDEN // 2)
        self.up_weight = nn.Parameter(up.weight[half].detach().clone())
        self.up_bias = nn.Parameter(up.bias[half].detach().clone())
        self.down_weight = nn.Parameter(down.weight[:, half].detach().clone())
        self.down_bias = nn.Parameter(down.bias.detach().clone())

    def forward(self, x):
        hidden = nn.functional.gelu(nn.functional.linear(CopyToRanks.apply(x), self.up_weight, self.up_bias))
        return SumOfRanks.apply(nn.functional.linear(hidden, self.down_weight)) + self.down_bias


class Model(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.mlp, self.norm = ParallelMLP(rank), nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.norm(x + self.mlp(x))


def work(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = Model(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    lines = []
    for step in range(3):
        torch.manual_seed(step)
        loss = model(torch.randn(5, WIDTH)).pow(2)[:, ::2].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lines.append(repr(loss.item()))
    gathered = [torch.empty_like(model.mlp.up_weight) for _ in range(2)]
    dist.all_gather(gathered, model.mlp.up_weight.detach().contiguous())
    torch.save({"model": model.state_dict(), "whole": torch.cat(gathered)}, f"rank_{rank}.pt")
    lines.append(repr(model(torch.ones(1, WIDTH)).sum().item()))
    with open(f"log_{rank}.txt", "w") as file:
        file.write("\n".join(lines))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.abspath("store")
    mp.start_processes(work, args=(store,), nprocs=2, start_method="fork")
    if os.path.exists(store):
        os.remove(store)
    logs = []
    for rank in range(2):
        with open(f"log_{rank}.txt") as file:
            logs.append(file.read())
    print(logs[0], logs[0] == logs[1])
