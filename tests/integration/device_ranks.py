"""``device_ranks.py DEVICE FOLDER LEVEL``: a training of two ranks that average their gradients, recorded."""

from __future__ import annotations

import os
import sys

import simdev
import torch
import torch.distributed as dist
from torch import nn

from msprobe.pytorch import PrecisionDebugger


def main() -> None:
    """Train."""
    device, folder, level = sys.argv[1:4]
    simdev.load()
    if device == "sim":
        from simdev.ranks import register

        register()
    store = dist.FileStore(os.path.join(folder, f"store_{device}_{level}"), 2)
    rank = int(os.environ["RANK"])
    dist.init_process_group("simccl" if device == "sim" else "gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    debugger = PrecisionDebugger(dump_path=os.path.join(folder, f"{device}_{level}"), task="statistics", level=level)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(rank)).to(device)
    trace = simdev.Trace()
    with trace:
        debugger.start(model)
        model(x).square().sum().backward()
        for parameter in model.parameters():
            work = dist.all_reduce(parameter.grad, async_op=True)
            work.wait()
            parameter.grad.div_(2)
        gathered = [torch.zeros(3, 4, device=device) for _ in range(2)]
        dist.all_gather(gathered, x)
        torch.stack(gathered).sum()
    assert trace.number_of_waits == 0, trace.waits
    debugger.stop()
    debugger.step()
    if device == "sim":
        torch.sim.synchronize()  # type: ignore[attr-defined]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
