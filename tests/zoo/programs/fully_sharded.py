"""FSDP2: layers sharded over two ranks with fully_shard, mixed precision, clipping, a whole state dict at the end."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WIDTH = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(WIDTH, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def work(rank: int, store: str) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    model = Model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    lines = []
    for step in range(3):
        torch.manual_seed(10 * step + rank)
        x, labels = torch.randn(6, WIDTH), torch.randint(5, (6,))
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lines.append(f"{step} {loss.item()!r} {norm.full_tensor().item()!r}")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        torch.save(state, "whole.pt")
    with torch.no_grad():
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
    for rank in range(2):
        with open(f"log_{rank}.txt") as file:
            print(file.read())
    whole = Model()
    whole.load_state_dict(torch.load("whole.pt"))
    print("whole", repr(whole(torch.ones(1, WIDTH)).sum().item()))
