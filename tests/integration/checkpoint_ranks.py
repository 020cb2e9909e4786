"""Two gloo ranks that train with FSDP2 and save a distributed checkpoint: `checkpoint_ranks.py FOLDER`.

Into FOLDER: `dcp` (weights, optimizer, a number), and `whole.pt`, the same weights and moments gathered by rank 0.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import fully_shard


def main(folder: Path) -> None:
    faulthandler.enable()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=int(os.environ["RANK"]), world_size=2
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.randn(4, 5)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "iteration": 2}, checkpoint_id=folder / "dcp")
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, optimizer, options=whole)
    if dist.get_rank() == 0:
        torch.save({"model": weights, "optimizer": moments, "iteration": 2}, folder / "whole.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    # A thread of gloo may still free the tensors of the last collective while Python ends, and then aborts the process
    # ("terminate called without an active exception", pytorch/pytorch#179291). All files are written: no end of Python.
    os._exit(0)
